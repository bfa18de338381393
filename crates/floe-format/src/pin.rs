//! Pins: signed names of store paths in a binary cache. docs/formats.md describes the format.

use std::collections::BTreeSet;
use std::fmt;

use crate::signature::{SecretKey, Signature, TrustedKeys};
use crate::store_path::{StoreDir, StorePath, StorePathError};

/// Reason why bytes are not a valid pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The object is longer than [`PIN_LEN_MAX`].
    #[error("it has more than {PIN_LEN_MAX} bytes")]
    TooLong,
    /// The object is not text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The first line has no version that floe knows.
    #[error("its first line is not `FloePin: 1`")]
    Version,
    /// A line has no field.
    #[error("line {0} is not a field")]
    Line(usize),
    /// A field stands twice.
    #[error("the field {0} stands twice")]
    Duplicate(&'static str),
    /// A field is absent.
    #[error("the field {0} is absent")]
    Absent(&'static str),
    /// The value of a field is wrong.
    #[error("the field {0} has a wrong value")]
    Value(&'static str),
    /// The path is not a store path.
    #[error("the field StorePath is wrong: {0}")]
    Path(#[from] StorePathError),
}

/// A signed name of a store path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The name, which [`is_pin_name`] accepts.
    pub name: String,
    /// The store directory of the path.
    pub store_dir: StoreDir,
    /// The path.
    pub path: StorePath,
    /// The identifier of the cache: 32 hexadecimal digits.
    pub cache_id: String,
    /// The number of this version. A later version has a greater one.
    pub serial: u64,
    /// When the pin was made, in seconds since 1970.
    pub time: u64,
    /// Signatures over [`Pin::fingerprint`].
    pub signatures: BTreeSet<Signature>,
}

impl Pin {
    /// Parses the object. Fields that floe does not know are skipped; the signature does not cover
    /// them.
    ///
    /// Errors: [`PinError`].
    pub fn parse(text: &[u8]) -> Result<Pin, PinError> {
        if text.len() > PIN_LEN_MAX {
            return Err(PinError::TooLong);
        }
        let text = std::str::from_utf8(text).map_err(|_| PinError::NotUtf8)?;
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
            return Err(PinError::Version);
        }
        let mut values: [Option<&str>; FIELDS.len()] = [None; FIELDS.len()];
        let mut signatures = BTreeSet::new();
        for (number, line) in lines {
            let Some((field, value)) = line.split_once(": ") else {
                return Err(PinError::Line(number + 1));
            };
            if field == "Sig" {
                let signature = Signature::parse(value);
                signatures.insert(signature.map_err(|_| PinError::Value("Sig"))?);
            } else if let Some(at) = FIELDS.iter().position(|known| *known == field)
                && values[at].replace(value).is_some()
            {
                return Err(PinError::Duplicate(FIELDS[at]));
            }
        }
        let value = |at: usize| values[at].ok_or(PinError::Absent(FIELDS[at]));
        let number = |at: usize| {
            let text = value(at)?;
            let number = text.parse::<u64>().ok();
            // Another spelling would have another fingerprint.
            let number = number.filter(|number| number.to_string() == text);
            number.ok_or(PinError::Value(FIELDS[at]))
        };
        let (name, full_path, cache_id) = (value(0)?, value(1)?, value(2)?);
        let (serial, time) = (number(3)?, number(4)?);
        if !is_pin_name(name) {
            return Err(PinError::Value("Name"));
        }
        if !is_cache_id(cache_id) {
            return Err(PinError::Value("CacheId"));
        }
        let (dir, base_name) = full_path
            .rsplit_once('/')
            .ok_or(PinError::Value("StorePath"))?;
        let store_dir = StoreDir::new(dir)?;
        let pin = Pin {
            name: name.to_owned(),
            path: StorePath::parse(base_name)?,
            cache_id: cache_id.to_owned(),
            serial,
            time,
            signatures,
            store_dir,
        };
        if pin.full_path() != full_path {
            return Err(PinError::Value("StorePath"));
        }
        Ok(pin)
    }

    /// Returns the path with its store directory.
    pub fn full_path(&self) -> String {
        self.store_dir.full_path(&self.path)
    }

    /// Returns the text that is signed: all fields but the signatures. It begins with `floe-pin`,
    /// and the fingerprint of a path with a number.
    pub fn fingerprint(&self) -> String {
        format!(
            "floe-pin;1;{};{};{};{};{}",
            self.name,
            self.full_path(),
            self.cache_id,
            self.serial,
            self.time
        )
    }

    /// Adds a signature.
    pub fn sign(&mut self, key: &SecretKey) {
        let signature = key.sign(self.fingerprint().as_bytes());
        self.signatures.insert(signature);
    }

    /// Returns the name of a trusted key that has signed the pin, if there is one.
    pub fn trusted_by(&self, keys: &TrustedKeys) -> Option<&str> {
        let fingerprint = self.fingerprint();
        let mut signatures = self.signatures.iter();
        let trusted = signatures.find(|it| keys.verify(fingerprint.as_bytes(), it));
        trusted.map(Signature::key_name)
    }
}

impl fmt::Display for Pin {
    /// Writes the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        writeln!(f, "Name: {}", self.name)?;
        writeln!(f, "StorePath: {}", self.full_path())?;
        writeln!(f, "CacheId: {}", self.cache_id)?;
        writeln!(f, "Serial: {}", self.serial)?;
        writeln!(f, "Time: {}", self.time)?;
        for signature in &self.signatures {
            writeln!(f, "Sig: {signature}")?;
        }
        Ok(())
    }
}

/// Whether a text can be the name of a pin: letters, digits, `-`, `_` and dots, with a letter, a
/// digit or `_` at the beginning, and at most 128 bytes.
pub fn is_pin_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = text.bytes().next();
    text.len() <= NAME_LEN_MAX
        && first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().all(is_allowed)
}

/// Whether a text can be the identifier of a cache: 32 hexadecimal digits in lower case.
pub fn is_cache_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == CACHE_ID_LEN && text.bytes().all(is_digit)
}

/// The folder of the pins in a cache.
pub const PINS_FOLDER: &str = "pins/";

/// The folder with the generations of the pins in a cache.
pub const PIN_GENERATIONS_FOLDER: &str = "pin-generations/";

/// The largest pin in bytes.
pub const PIN_LEN_MAX: usize = 16 * 1024;

/// The number of digits of the identifier of a cache.
pub const CACHE_ID_LEN: usize = 32;

/// The longest name in bytes.
const NAME_LEN_MAX: usize = 128;

const FIRST_LINE: &str = "FloePin: 1";

/// The fields that stand once.
const FIELDS: [&str; 5] = ["Name", "StorePath", "CacheId", "Serial", "Time"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pin() -> Pin {
        Pin {
            name: "web".into(),
            store_dir: StoreDir::default(),
            path: StorePath::parse(&format!("{}-web-1.2", "0".repeat(32))).unwrap(),
            cache_id: "0123456789abcdef".repeat(2),
            serial: 7,
            time: 1_700_000_000,
            signatures: BTreeSet::new(),
        }
    }

    fn keys(seed: u8) -> (SecretKey, TrustedKeys) {
        let secret = SecretKey::from_seed("cache-1", [seed; 32]).unwrap();
        let mut keys = TrustedKeys::new();
        keys.insert(secret.public());
        (secret, keys)
    }

    #[test]
    fn every_field_is_signed() {
        let (secret, keys) = keys(1);
        let mut signed = pin();
        signed.sign(&secret);
        assert_eq!(signed.trusted_by(&keys), Some("cache-1"));
        assert_eq!(signed.trusted_by(&self::keys(2).1), None);
        let text = signed.to_string();
        for (from, to) in [
            ("Name: web", "Name: api"),
            ("-web-1.2", "-web-1.1"),
            ("CacheId: 0", "CacheId: 1"),
            ("Serial: 7", "Serial: 8"),
            ("Time: 17", "Time: 18"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            let changed = Pin::parse(changed.as_bytes()).unwrap();
            assert_eq!(changed.trusted_by(&keys), None, "{from}");
        }
    }

    #[test]
    fn signature_of_a_pin_is_none_of_a_path() {
        let fingerprint = pin().fingerprint();
        assert!(!fingerprint.starts_with(|c: char| c.is_ascii_digit() || c == '{'));
    }

    #[test]
    fn other_texts_are_refused() {
        let text = pin().to_string();
        let change = |from: &str, to: &str| text.replacen(from, to, 1);
        for (text, error) in [
            (String::new(), PinError::Version),
            ("<html>".into(), PinError::Version),
            (change("FloePin: 1", "FloePin: 2"), PinError::Version),
            (change("Serial: 7", "Serial: 07"), PinError::Value("Serial")),
            (change("Serial: 7", "Serial: +7"), PinError::Value("Serial")),
            (
                change("Serial: 7", "Serial: 18446744073709551616"),
                PinError::Value("Serial"),
            ),
            (change("Name: web", "Name: ../web"), PinError::Value("Name")),
            (change("Name: web", "Name: a;b"), PinError::Value("Name")),
            (
                change("CacheId: 0", "CacheId: g"),
                PinError::Value("CacheId"),
            ),
            (change("Time: ", "Time "), PinError::Line(6)),
            (change("Time: 1700000000\n", ""), PinError::Absent("Time")),
            (change("Serial", "Time"), PinError::Duplicate("Time")),
            (
                change("/nix/store/", "/nix//store/"),
                PinError::Value("StorePath"),
            ),
            (format!("{text}Sig: x\n"), PinError::Value("Sig")),
            (
                format!("{text}X: {}\n", "x".repeat(PIN_LEN_MAX)),
                PinError::TooLong,
            ),
        ] {
            let found = Pin::parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, error, "{text}");
        }
        assert_eq!(Pin::parse(b"\xff"), Err(PinError::NotUtf8));
        assert_eq!(
            Pin::parse(format!("{text}More: x\n").as_bytes()).unwrap(),
            pin()
        );
    }

    proptest! {
        #[test]
        fn printed_pins_are_parsed_again(
            name in "[a-zA-Z0-9_][a-zA-Z0-9._-]{0,20}",
            serial in any::<u64>(),
            time in any::<u64>(),
            signatures in 0..3u8,
        ) {
            let mut pin = Pin { name, serial, time, ..pin() };
            for seed in 0..signatures {
                let name = format!("key-{seed}");
                pin.sign(&SecretKey::from_seed(&name, [seed; 32]).unwrap());
            }
            prop_assert_eq!(Pin::parse(pin.to_string().as_bytes()).unwrap(), pin);
        }
    }
}
