//! The credentials in the field `Authorization` of a request.

use std::fmt;

use floe_format::base64;

/// Credentials. `Debug` hides them.
#[derive(PartialEq, Eq)]
pub(super) enum Credentials {
    /// RFC 6750: a token.
    Bearer(String),
    /// RFC 7617: a name and a password, or any name and a token.
    Basic { name: String, password: Vec<u8> },
}

impl Credentials {
    /// Parses the value of the field.
    pub(super) fn parse(field: &str) -> Option<Credentials> {
        let (scheme, value) = field.split_once(' ')?;
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return (!value.is_empty()).then(|| Credentials::Bearer(value.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let bytes = base64::decode(value).ok()?;
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        let (name, password) = bytes.split_at_checked(colon)?;
        Some(Credentials::Basic {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            password: password.get(1..)?.to_vec(),
        })
    }

    /// Returns the bytes that may be a token.
    pub(super) fn secret(&self) -> &[u8] {
        match self {
            Credentials::Bearer(token) => token.as_bytes(),
            Credentials::Basic { password, .. } => password,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn basic(name: &str, password: &[u8]) -> Credentials {
        Credentials::Basic {
            name: name.into(),
            password: password.to_vec(),
        }
    }

    #[test]
    fn both_schemes_are_parsed_in_any_case() {
        let user_pass = Some(basic("user", b"pass"));
        assert_eq!(Credentials::parse("Basic dXNlcjpwYXNz"), user_pass);
        assert_eq!(Credentials::parse("bAsIc  dXNlcjpwYXNz "), user_pass);
        let token = Some(Credentials::Bearer("floe_abc".into()));
        assert_eq!(Credentials::parse("Bearer floe_abc"), token);
        assert_eq!(Credentials::parse("BEARER floe_abc"), token);
    }

    #[test]
    fn fields_of_other_forms_are_rejected() {
        for field in [
            "",
            "Basic",
            "Basic ",
            "Basic ?",
            "Basic dXNlcg==",
            "Bearer ",
            "Digest username=a",
            "dXNlcjpwYXNz",
            "Basic /zph",
        ] {
            assert_eq!(Credentials::parse(field), None, "{field}");
        }
    }

    proptest! {
        #[test]
        fn password_may_have_any_bytes(name in "[^:]{0,20}", password: Vec<u8>) {
            let text = [name.as_bytes(), b":", &password].concat();
            let found = Credentials::parse(&format!("Basic {}", base64::encode(&text)));
            prop_assert_eq!(found, Some(basic(&name, &password)));
        }

        #[test]
        fn any_field_is_parsed_without_panic(field in "\\PC{0,60}") {
            let _: Option<Credentials> = Credentials::parse(&field);
        }
    }
}
