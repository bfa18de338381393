//! The hash of a password or of a token, as it stands in the login file.

use std::cell::RefCell;
use std::fmt;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Block, Params, PasswordHasher as _, Version};
use floe_format::base16;
use subtle::ConstantTimeEq as _;

/// A hash. `Debug` shows only its kind.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHash(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    /// A text in the format of the Password Hashing Competition.
    Argon2id(String),
    Bcrypt(String),
    /// The SHA-256 of a token.
    Token([u8; 32]),
}

/// The reason why a text is not a hash. No message contains a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretHashError {
    /// The text begins like no known hash.
    #[error(
        "the hash is of an unknown kind; it is $argon2id$…, $2y$… (htpasswd -B) or $sha256$…; \
         floe serve auth add-user makes it"
    )]
    Unknown,
    /// The text is cut or has invalid characters.
    #[error("the {0} hash is not valid; it may be cut")]
    Invalid(&'static str),
    /// To verify a password would take too much time or memory.
    #[error("the {0} hash takes too much time or memory to verify; the most is {1}")]
    Expensive(&'static str, &'static str),
}

impl SecretHash {
    /// Hashes a password.
    pub fn of_password(password: &[u8], salt: &[u8; SALT_LEN]) -> Option<SecretHash> {
        let hash = hasher().hash_password_with_salt(password, salt).ok()?;
        Some(SecretHash(Kind::Argon2id(hash.to_string())))
    }

    /// Hashes a token. A token is random, so nothing can be found out by trying, and a fast hash
    /// is enough.
    pub fn of_token(token: &str) -> SecretHash {
        SecretHash(Kind::Token(token_digest(token.as_bytes())))
    }

    /// Parses a hash.
    pub fn parse(text: &str) -> Result<SecretHash, SecretHashError> {
        if let Some(digits) = text.strip_prefix(TOKEN_PREFIX) {
            let bytes = base16::decode(digits).ok();
            let digest = bytes.and_then(|bytes| bytes.try_into().ok());
            let digest = digest.ok_or(SecretHashError::Invalid("sha256"))?;
            return Ok(SecretHash(Kind::Token(digest)));
        }
        if text.starts_with(ARGON2_PREFIX) {
            check_argon2(text)?;
            return Ok(SecretHash(Kind::Argon2id(text.to_owned())));
        }
        if BCRYPT_PREFIXES
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            check_bcrypt(text)?;
            return Ok(SecretHash(Kind::Bcrypt(text.to_owned())));
        }
        Err(SecretHashError::Unknown)
    }

    /// Returns the text in the login file.
    pub fn to_text(&self) -> String {
        match &self.0 {
            Kind::Argon2id(text) | Kind::Bcrypt(text) => text.clone(),
            Kind::Token(digest) => format!("{TOKEN_PREFIX}{}", base16::encode(digest)),
        }
    }

    /// Returns the name of the kind: `argon2id`, `bcrypt` or `token`.
    pub fn kind(&self) -> &'static str {
        match self.0 {
            Kind::Argon2id(_) => "argon2id",
            Kind::Bcrypt(_) => "bcrypt",
            Kind::Token(_) => "token",
        }
    }

    /// Whether this is the hash of a password. Takes a fraction of a second of one core.
    pub(crate) fn is_of_password(&self, password: &[u8]) -> bool {
        match &self.0 {
            Kind::Argon2id(text) => is_argon2_of(text, password).unwrap_or(false),
            Kind::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            Kind::Token(_) => false,
        }
    }

    /// Returns the digest of a token.
    pub(crate) fn digest(&self) -> Option<&[u8; 32]> {
        match &self.0 {
            Kind::Token(digest) => Some(digest),
            Kind::Argon2id(_) | Kind::Bcrypt(_) => None,
        }
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretHash({}, …)", self.kind())
    }
}

/// Returns the digest by which tokens are looked up.
pub(crate) fn token_digest(token: &[u8]) -> [u8; 32] {
    floe_hash::sha256(token)
}

/// The hasher of new passwords.
fn hasher() -> Argon2<'static> {
    // The default parameters are those that OWASP recommends: 19 MiB, two passes, one lane.
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default())
}

/// Whether a hash with its own parameters is that of a password. `None` if it is not valid.
fn is_argon2_of(text: &str, password: &[u8]) -> Option<bool> {
    let hash = PasswordHash::new(text).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let (salt, expected) = (hash.salt?, hash.hash?);
    let blocks = params.block_count();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut found = [0; HASH_LEN];
    MEMORY.with_borrow_mut(|memory| {
        if memory.len() < blocks {
            memory.resize(blocks, Block::default());
        }
        let memory = memory.get_mut(..blocks)?;
        let hashed = argon2.hash_password_into_with_memory(password, &salt, &mut found, memory);
        hashed.ok()
    })?;
    Some(found.ct_eq(expected.as_bytes()).into())
}

thread_local! {
    /// The memory of one verification. The thread keeps it, because the blocks are aligned and the
    /// C library does not reuse freed memory of aligned blocks.
    static MEMORY: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

fn check_argon2(text: &str) -> Result<(), SecretHashError> {
    const KIND: &str = "argon2id";
    let invalid = SecretHashError::Invalid(KIND);
    let hash = PasswordHash::new(text).map_err(|_| invalid)?;
    let params = Params::try_from(&hash).map_err(|_| invalid)?;
    let is_known_version = hash.version.is_none_or(|version| version == 0x13);
    let has_both = hash.salt.is_some() && hash.hash.is_some_and(|it| it.len() == HASH_LEN);
    if !is_known_version || !has_both {
        return Err(invalid);
    }
    let is_expensive = params.m_cost() > MEMORY_MAX_KIB
        || params.t_cost() > PASSES_MAX
        || params.p_cost() > LANES_MAX;
    if is_expensive {
        Err(SecretHashError::Expensive(KIND, "m=262144,t=16,p=16"))
    } else {
        Ok(())
    }
}

/// Checks `$2y$COST$`, 22 digits of salt and 31 of hash.
fn check_bcrypt(text: &str) -> Result<(), SecretHashError> {
    const KIND: &str = "bcrypt";
    let invalid = SecretHashError::Invalid(KIND);
    let (cost, rest) = text
        .get(4..)
        .and_then(|it| it.split_once('$'))
        .ok_or(invalid)?;
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    if cost.len() != 2 || rest.len() != 53 || !rest.bytes().all(is_digit) {
        return Err(invalid);
    }
    text.parse::<bcrypt::HashParts>().map_err(|_| invalid)?;
    match cost.parse() {
        Ok(4..=BCRYPT_COST_MAX) => Ok(()),
        Ok(0..4) | Err(_) => Err(invalid),
        Ok(_) => Err(SecretHashError::Expensive(KIND, "$2y$14$")),
    }
}

/// The length of the salt of new hashes, as RFC 9106 recommends.
pub const SALT_LEN: usize = 16;

const TOKEN_PREFIX: &str = "$sha256$";
const ARGON2_PREFIX: &str = "$argon2id$";

/// The versions of bcrypt, which differ only in faults of old programs.
const BCRYPT_PREFIXES: [&str; 3] = ["$2a$", "$2b$", "$2y$"];

/// The length that every program uses by default. A shorter hash was probably cut.
const HASH_LEN: usize = 32;

// One thread verifies all passwords, so a single one must not take longer than about a second.

/// The memory of one verification: 256 MiB.
const MEMORY_MAX_KIB: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// `htpasswd` uses 5 by default. Each further step takes twice the time.
const BCRYPT_COST_MAX: u32 = 14;

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The hash of `U*U`, a test vector of crypt_blowfish.
    pub(in super::super) const BCRYPT: &str =
        "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    /// `secret` with the parameters m=8,t=1,p=1, which only tests use.
    pub(in super::super) fn weak_argon2(password: &str) -> SecretHash {
        let params = Params::new(8, 1, 1, None).unwrap();
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let hash = hasher.hash_password_with_salt(password.as_bytes(), b"saltsaltsaltsalt");
        let hash = hash.unwrap();
        SecretHash::parse(&hash.to_string()).unwrap()
    }

    pub(in super::super) fn hashes() -> impl Strategy<Value = SecretHash> {
        prop_oneof![
            "[a-z]{1,9}".prop_map(|password| weak_argon2(&password)),
            any::<[u8; 32]>().prop_map(|digest| SecretHash(Kind::Token(digest))),
            Just(SecretHash::parse(BCRYPT).unwrap()),
        ]
    }

    #[test]
    fn password_matches_its_hash_only() {
        let argon2 = SecretHash::of_password(b"a", &[7; SALT_LEN]).unwrap();
        assert!(
            argon2
                .to_text()
                .starts_with("$argon2id$v=19$m=19456,t=2,p=1$")
        );
        assert_eq!(SecretHash::parse(&argon2.to_text()).unwrap(), argon2);
        assert!(argon2.is_of_password(b"a") && !argon2.is_of_password(b"b"));
        for prefix in BCRYPT_PREFIXES {
            let bcrypt = SecretHash::parse(&format!("{prefix}{}", &BCRYPT[4..])).unwrap();
            assert!(bcrypt.is_of_password(b"U*U") && !bcrypt.is_of_password(b"U*U*"));
            assert_eq!(bcrypt.kind(), "bcrypt");
        }
        // A hash of the command line tool of the reference implementation, with salt `somesalt`.
        let reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
                         CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let reference = SecretHash::parse(reference).unwrap();
        assert!(reference.is_of_password(b"password") && !reference.is_of_password(b"Password"));
        let token = SecretHash::of_token("t");
        assert!(!token.is_of_password(b"t") && token.digest().is_some());
    }

    #[test]
    fn hash_that_is_cut_expensive_or_unknown_is_rejected() {
        let argon2 = weak_argon2("a").to_text();
        let token = SecretHash::of_token("t").to_text();
        let invalid = |text: &str| match SecretHash::parse(text) {
            Err(SecretHashError::Invalid(kind)) => kind,
            other => panic!("{text}: {other:?}"),
        };
        for cut in 1..=30 {
            assert_eq!(invalid(&argon2[..argon2.len() - cut]), "argon2id", "{cut}");
            assert_eq!(invalid(&BCRYPT[..BCRYPT.len() - cut]), "bcrypt", "{cut}");
            assert_eq!(invalid(&token[..token.len() - cut]), "sha256", "{cut}");
        }
        for (from, to) in [("v=19", "v=16"), ("m=8", "m=x"), ("t=1", "t=0")] {
            assert_eq!(invalid(&argon2.replace(from, to)), "argon2id");
        }
        for text in [
            &*argon2.replace("m=8", "m=262145"),
            &argon2.replace("t=1", "t=17"),
            &argon2.replace("m=8", "m=8000").replace("p=1", "p=17"),
            &BCRYPT.replace("$05$", "$15$"),
        ] {
            let found = SecretHash::parse(text);
            assert!(
                matches!(found, Err(SecretHashError::Expensive(..))),
                "{text}"
            );
        }
        for text in [
            "",
            "x",
            "$1$abc",
            "$argon2i$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA",
            "{SHA}AA",
        ] {
            assert_eq!(
                SecretHash::parse(text),
                Err(SecretHashError::Unknown),
                "{text}"
            );
        }
    }
}
