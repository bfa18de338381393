//! The logins of one state of the login file, by token and by name.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::login::Login;
use super::login_file::LoginFile;
use super::secret_hash::token_digest;

/// The logins of a server.
#[derive(Debug)]
pub(super) struct LoginTable {
    /// By the digest of the token.
    tokens: HashMap<[u8; 32], Arc<Login>>,
    /// By name.
    passwords: HashMap<String, Arc<Login>>,
    /// The logins of `passwords`, in the order of the file.
    stand_ins: Vec<Arc<Login>>,
}

impl LoginTable {
    pub(super) fn new(file: &LoginFile) -> LoginTable {
        let mut table = LoginTable {
            tokens: HashMap::new(),
            passwords: HashMap::new(),
            stand_ins: Vec::new(),
        };
        for login in file.logins() {
            let shared = Arc::new(login.clone());
            match login.secret.digest() {
                Some(digest) => {
                    table.tokens.insert(*digest, shared);
                }
                None => {
                    table.stand_ins.push(shared.clone());
                    table.passwords.insert(login.name().to_owned(), shared);
                }
            }
        }
        table
    }

    /// Returns the login with a token.
    ///
    /// The time depends on the digest of the token, which tells a client nothing about the digests
    /// of other tokens. The last comparison takes the same time for any two digests.
    pub(super) fn find_token(&self, token: &[u8]) -> Option<&Arc<Login>> {
        let digest = token_digest(token);
        let login = self.tokens.get(&digest)?;
        let expected = login.secret.digest()?;
        bool::from(expected.ct_eq(&digest)).then_some(login)
    }

    pub(super) fn has_passwords(&self) -> bool {
        !self.stand_ins.is_empty()
    }

    /// Returns the login with a name and a password. Takes a fraction of a second, also if there
    /// is no such name: otherwise the time would tell which names exist.
    pub(super) fn verify_password(&self, name: &str, password: &[u8]) -> Option<Arc<Login>> {
        let known = self.passwords.get(name);
        let is_right = known
            .or_else(|| self.stand_in(name))?
            .secret
            .is_of_password(password);
        known.filter(|_| is_right).cloned()
    }

    /// Returns the login whose hash is verified instead of that of an unknown name. It is always
    /// the same for a name, because the hashes of the file may take different times.
    fn stand_in(&self, name: &str) -> Option<&Arc<Login>> {
        let number = self.passwords.hasher().hash_one(name);
        let index = number.checked_rem(self.stand_ins.len() as u64)?;
        self.stand_ins.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::secret_hash::SecretHash;
    use super::super::secret_hash::tests::weak_argon2;
    use super::*;

    fn table(logins: &[(&str, SecretHash)]) -> LoginTable {
        let mut file = LoginFile::new();
        for (name, secret) in logins {
            file.insert(Login::new(name, secret.clone()).unwrap());
        }
        LoginTable::new(&file)
    }

    #[test]
    fn password_belongs_to_its_name_only() {
        let table = table(&[("alice", weak_argon2("a")), ("bob", weak_argon2("b"))]);
        let name = |name: &str, password: &[u8]| {
            let login = table.verify_password(name, password);
            login.map(|login| login.name().to_owned())
        };
        assert_eq!(name("alice", b"a").as_deref(), Some("alice"));
        assert_eq!(name("alice", b"b"), None);
        // The hash of alice or bob is verified for carol, and must not let carol in.
        assert_eq!(name("carol", b"a"), None);
        assert_eq!(name("carol", b"b"), None);
    }

    #[test]
    fn unknown_name_is_verified_against_some_hash() {
        let one = table(&[("alice", weak_argon2("a"))]);
        assert!(one.stand_in("carol").is_some() && one.has_passwords());
        let none = table(&[("ci", SecretHash::of_token("t"))]);
        assert!(none.stand_in("carol").is_none() && !none.has_passwords());
    }

    #[test]
    fn token_is_found_and_is_no_password() {
        let table = table(&[("ci", SecretHash::of_token("floe_t"))]);
        let found = table.find_token(b"floe_t").unwrap();
        assert_eq!(found.name(), "ci");
        assert!(table.find_token(b"floe_T").is_none());
        assert!(table.verify_password("ci", b"floe_t").is_none());
    }
}
