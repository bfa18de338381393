//! A login, and its line in the login file.

use std::fmt;

use super::expiry::Expiry;
use super::scopes::Scopes;
use super::secret_hash::{SecretHash, SecretHashError};
use super::token::{PREFIX, may_be_token};

/// A name with a password or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    name: String,
    /// The hash of the password or of the token.
    pub secret: SecretHash,
    /// The routes that the login may request.
    pub scopes: Scopes,
    /// When the login expires.
    pub expiry: Option<Expiry>,
}

/// The reason why a text is not a login. No message contains a part of the hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// There is no colon.
    #[error("the line has no colon; a login is NAME:HASH:SCOPES:EXPIRY")]
    NoColon,
    /// The name is empty or too long, or has characters that a name may not have.
    #[error(
        "the name is not valid; a name has 1 to {NAME_LEN_MAX} visible characters, no space and no \
         colon, and does not begin with # or {PREFIX}"
    )]
    Name,
    /// The hash is not valid.
    #[error(transparent)]
    Hash(#[from] SecretHashError),
    /// The list of scopes has a word that is not a scope.
    #[error("the scopes are not valid; the scopes are read, metrics and status, with commas")]
    Scopes,
    /// The last field is not a time.
    #[error("the expiry is not valid; it is a date such as 2027-01-31 or 2027-01-31T12:00:00Z")]
    Expiry,
}

impl Login {
    /// Makes a login that may read the cache and does not expire.
    ///
    /// Errors: the name cannot be that of a login.
    pub fn new(name: &str, secret: SecretHash) -> Result<Login, LoginError> {
        if !is_valid_name(name) {
            return Err(LoginError::Name);
        }
        Ok(Login {
            name: name.to_owned(),
            secret,
            scopes: Scopes::DEFAULT,
            expiry: None,
        })
    }

    /// Parses `NAME:HASH:SCOPES:EXPIRY`. The last two fields may be absent, as in a line that
    /// `htpasswd` has written, and the scopes may be empty.
    pub fn parse(line: &str) -> Result<Login, LoginError> {
        // A time contains colons itself.
        let mut fields = line.splitn(4, ':');
        let name = fields.next().unwrap_or_default();
        let hash = fields.next().ok_or(LoginError::NoColon)?;
        let mut login = Login::new(name, SecretHash::parse(hash)?)?;
        if let Some(scopes) = fields.next().filter(|text| !text.is_empty()) {
            login.scopes = Scopes::parse(scopes).ok_or(LoginError::Scopes)?;
        }
        let expiry = fields.next();
        login.expiry = expiry
            .map(|text| Expiry::parse(text).ok_or(LoginError::Expiry))
            .transpose()?;
        Ok(login)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The line in the login file.
impl fmt::Display for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, hash) = (&self.name, self.secret.to_text());
        write!(formatter, "{name}:{hash}:{}", self.scopes)?;
        match self.expiry {
            Some(expiry) => write!(formatter, ":{expiry}"),
            None => Ok(()),
        }
    }
}

fn is_valid_name(name: &str) -> bool {
    let is_valid = |c: char| !c.is_control() && !c.is_whitespace() && c != ':';
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.chars().all(is_valid)
        && !name.starts_with('#')
        && !may_be_token(name)
}

/// The longest name in bytes. Names stand in every line of the access log.
pub const NAME_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::scopes::Scope;
    use super::super::secret_hash::tests::{BCRYPT, hashes};
    use super::*;

    #[test]
    fn line_of_htpasswd_is_a_login_with_scope_read() {
        let login = Login::parse(&format!("alice:{BCRYPT}")).unwrap();
        assert_eq!((login.name(), login.scopes), ("alice", Scopes::DEFAULT));
        assert_eq!(login.expiry, None);
    }

    #[test]
    fn scopes_may_be_empty_before_an_expiry() {
        let line = format!("alice:{BCRYPT}::2027-01-31T12:30:00Z");
        let login = Login::parse(&line).unwrap();
        assert_eq!(login.scopes, Scopes::DEFAULT);
        assert_eq!(login.expiry, Expiry::parse("2027-01-31T12:30:00Z"));
        let line = format!("alice:{BCRYPT}:metrics,status");
        let scopes = Scopes::new([Scope::Metrics, Scope::Status]);
        assert_eq!(Login::parse(&line).unwrap().scopes, scopes);
    }

    #[test]
    fn invalid_line_is_an_error_without_its_hash() {
        for (line, error) in [
            ("alice", LoginError::NoColon),
            (&format!(":{BCRYPT}"), LoginError::Name),
            (&format!("a b:{BCRYPT}"), LoginError::Name),
            (&format!("floe_abc:{BCRYPT}"), LoginError::Name),
            (&format!("{}:{BCRYPT}", "a".repeat(65)), LoginError::Name),
            (&format!("alice:{BCRYPT}:write"), LoginError::Scopes),
            (&format!("alice:{BCRYPT}:read:"), LoginError::Expiry),
            (&format!("alice:{BCRYPT}:read:soon"), LoginError::Expiry),
        ] {
            let found = Login::parse(line).unwrap_err();
            assert_eq!(found, error, "{line}");
            assert!(!found.to_string().contains("$2y$"), "{found}");
        }
        let half = format!("alice:{}", &BCRYPT[..40]);
        let message = Login::parse(&half).unwrap_err().to_string();
        assert!(!message.contains(&BCRYPT[7..20]), "{message}");
    }

    fn expiries() -> impl Strategy<Value = Option<Expiry>> {
        let texts = prop_oneof![Just("2027-01-31"), Just("2030-12-31T23:59:59Z")];
        prop::option::of(texts.prop_map(|text| Expiry::parse(text).unwrap()))
    }

    proptest! {
        #[test]
        fn printed_login_parses_to_itself(
            name in "[!-9;-~]{1,64}|[a-zé]{1,20}",
            secret in hashes(),
            scopes in prop::sample::subsequence(Scope::ALL.to_vec(), 1..=3),
            expiry in expiries(),
        ) {
            prop_assume!(is_valid_name(&name));
            let mut login = Login::new(&name, secret).unwrap();
            login.scopes = Scopes::new(scopes);
            login.expiry = expiry;
            prop_assert_eq!(Login::parse(&login.to_string()).unwrap(), login);
        }

        #[test]
        fn any_line_is_parsed_without_panic(line in "\\PC{0,80}") {
            let _: Result<Login, LoginError> = Login::parse(&line);
        }
    }
}
