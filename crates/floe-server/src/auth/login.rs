//! A login, and its line in the login file.

use std::fmt;

use floe_format::realisation::is_output_name;

use super::expiry::Expiry;
use super::scopes::{Scope, Scopes};
use super::secret_hash::{SecretHash, SecretHashError};
use super::token::{PREFIX, may_be_token};
use crate::receive::PushScope;

/// A name with a password or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    name: String,
    /// The hash of the password or of the token.
    pub secret: SecretHash,
    /// The routes that the login may request.
    pub scopes: Scopes,
    /// The paths that a login with the scope `push` may push.
    pub may_push: PushScope,
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
    #[error(
        "the scopes are not valid; the scopes are read, metrics, status and push, with commas; push=PREFIX allows names with a prefix"
    )]
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
            may_push: PushScope::default(),
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
            let (scopes, may_push) = parse_scopes(scopes).ok_or(LoginError::Scopes)?;
            login.scopes = scopes;
            login.may_push = may_push;
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

    /// Returns the scopes as [`parse_scopes`] reads them.
    pub fn scope_words(&self) -> String {
        let prefixes = self.may_push.prefixes();
        let scopes = Scope::ALL
            .into_iter()
            .filter(|it| self.scopes.has_any(&[*it]));
        let mut words = Vec::new();
        for scope in scopes {
            match scope {
                Scope::Push if !prefixes.is_empty() => {
                    words.extend(prefixes.iter().map(|it| format!("{PUSH}{it}")));
                }
                scope => words.push(scope.name().to_owned()),
            }
        }
        words.join(",")
    }
}

/// The line in the login file.
impl fmt::Display for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, hash) = (&self.name, self.secret.to_text());
        write!(formatter, "{name}:{hash}:{}", self.scope_words())?;
        match self.expiry {
            Some(expiry) => write!(formatter, ":{expiry}"),
            None => Ok(()),
        }
    }
}

/// Parses scopes with commas. `push=PREFIX` is the scope `push` for the paths whose names begin
/// with this text.
pub fn parse_scopes(text: &str) -> Option<(Scopes, PushScope)> {
    let (mut names, mut prefixes, mut may_push_all) = (Vec::new(), Vec::new(), false);
    for word in text.split(',') {
        match word.strip_prefix(PUSH) {
            Some(prefix) => {
                let is_valid = !prefix.is_empty() && is_output_name(prefix);
                prefixes.push(is_valid.then(|| prefix.to_owned())?);
                names.push(Scope::Push);
            }
            None => {
                let scope = Scope::from_name(word)?;
                may_push_all |= scope == Scope::Push;
                names.push(scope);
            }
        }
    }
    if may_push_all {
        prefixes.clear();
    }
    Some((Scopes::new(names), PushScope::new(prefixes)))
}

/// The beginning of the scope of some paths.
const PUSH: &str = "push=";

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
    use floe_format::StorePath;
    use proptest::prelude::*;

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
    fn push_may_be_allowed_for_prefixes() {
        let may_push = |scopes: &str, name: &str| {
            let login = Login::parse(&format!("alice:{BCRYPT}:{scopes}")).unwrap();
            let path = format!("{}-{name}", "0".repeat(32));
            login.may_push.allows(&StorePath::parse(&path).unwrap())
        };
        assert!(may_push("push", "web-1"));
        assert!(may_push("read,push=web-,push=api", "web-1"));
        assert!(may_push("read,push=web-,push=api", "api"));
        assert!(!may_push("read,push=web-,push=api", "web"));
        assert!(may_push("push=web-,push", "other"));
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
            (&format!("alice:{BCRYPT}:push="), LoginError::Scopes),
            (&format!("alice:{BCRYPT}:push=a/b"), LoginError::Scopes),
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
            scopes in prop::sample::subsequence(Scope::ALL.to_vec(), 1..=4),
            prefixes in prop::collection::vec("[a-z0-9.+_-]{1,9}", 0..3),
            expiry in expiries(),
        ) {
            prop_assume!(is_valid_name(&name));
            let mut login = Login::new(&name, secret).unwrap();
            if scopes.contains(&Scope::Push) {
                login.may_push = PushScope::new(prefixes);
            }
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
