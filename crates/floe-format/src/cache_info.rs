//! The file `nix-cache-info`, which describes a binary cache.

use crate::store_path::{StoreDir, StorePathError};

/// Reason why bytes are not a valid `nix-cache-info`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheInfoError {
    /// The file is longer than [`CACHE_INFO_LEN_MAX`].
    #[error("cannot parse nix-cache-info: longer than {CACHE_INFO_LEN_MAX} bytes")]
    TooLong(usize),
    /// None of the known fields is there.
    #[error("cannot parse nix-cache-info: it has no StoreDir, WantMassQuery or Priority")]
    NoField,
    /// The value of a known field is not UTF-8.
    #[error("cannot parse nix-cache-info: a value is not UTF-8")]
    NotUtf8,
    /// The store directory is not valid.
    #[error("cannot parse nix-cache-info: {0}")]
    StoreDir(#[from] StorePathError),
    /// The priority does not start with a 32-bit number.
    #[error("cannot parse nix-cache-info: priority {0:?} is not a number")]
    Priority(String),
}

/// The description of a binary cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheInfo {
    /// The store directory of all paths in the cache.
    pub store_dir: StoreDir,
    /// Whether Nix should query the cache for many paths at once.
    pub want_mass_query: bool,
    /// The priority among several caches: Nix asks the lowest number first.
    pub priority: Option<i32>,
}

impl CacheInfo {
    /// Parses the file as leniently as Nix, except that it needs at least one known field.
    /// Otherwise any text would be a cache, such as that of a server that answers every request
    /// alike.
    ///
    /// Lines without a colon and unknown fields are skipped, and the last of several equal fields
    /// counts. A priority may have text after its digits.
    ///
    /// Differences from Nix: an absent `StoreDir` means `/nix/store`, whereas Nix then skips the
    /// comparison with its own directory. A directory that is not normalized is normalized,
    /// whereas Nix finds it different from its own.
    pub fn parse(text: &[u8]) -> Result<CacheInfo, CacheInfoError> {
        if text.len() > CACHE_INFO_LEN_MAX {
            return Err(CacheInfoError::TooLong(text.len()));
        }
        let (mut info, mut has_field) = (CacheInfo::default(), false);
        for line in text.split(|&byte| byte == b'\n') {
            let mut parts = line.splitn(2, |&byte| byte == b':');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                continue;
            };
            match name {
                b"StoreDir" => info.store_dir = StoreDir::new(trimmed(value)?)?,
                b"WantMassQuery" => info.want_mass_query = trimmed(value)? == "1",
                b"Priority" => info.priority = Some(leading_number(trimmed(value)?)?),
                _ => continue,
            }
            has_field = true;
        }
        if has_field {
            Ok(info)
        } else {
            Err(CacheInfoError::NoField)
        }
    }

    /// Returns the text of the file, without fields that have their default value.
    pub fn to_text(&self) -> String {
        let mut text = format!("StoreDir: {}\n", self.store_dir);
        if self.want_mass_query {
            text.push_str("WantMassQuery: 1\n");
        }
        if let Some(priority) = self.priority {
            text.push_str(&format!("Priority: {priority}\n"));
        }
        text
    }
}

/// Length of the longest file that parses, in bytes. Real files have about 60 bytes.
pub const CACHE_INFO_LEN_MAX: usize = 64 * 1024;

fn trimmed(value: &[u8]) -> Result<&str, CacheInfoError> {
    let value = std::str::from_utf8(value).map_err(|_| CacheInfoError::NotUtf8)?;
    Ok(value.trim_matches([' ', '\n', '\r', '\t']))
}

/// Parses the number at the start of a text, as C does: white space, a sign, digits.
///
/// The text may continue after the digits.
fn leading_number(text: &str) -> Result<i32, CacheInfoError> {
    // White space of C; `char::is_ascii_whitespace` lacks the vertical tab.
    let number = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let len = number.len() - digits.len() + end;
    let parsed = number.get(..len).and_then(|number| number.parse().ok());
    parsed.ok_or_else(|| CacheInfoError::Priority(text.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<CacheInfo, CacheInfoError> {
        CacheInfo::parse(text.as_bytes())
    }

    #[test]
    fn file_of_cache_nixos_org_parses() {
        let text = "StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 40\n";
        let info = parse(text).unwrap();
        assert_eq!(info.store_dir, StoreDir::default());
        assert!(info.want_mass_query);
        assert_eq!(info.priority, Some(40));
        assert_eq!(info.to_text(), text);
    }

    #[test]
    fn missing_and_unknown_fields_are_accepted() {
        let least = parse("WantMassQuery: 0").unwrap();
        assert_eq!(least.to_text(), "StoreDir: /nix/store\n");
        let more = "no colon\nOther: x\n\n: y\n Priority: 1\nWantMassQuery: 0";
        assert_eq!(parse(more).unwrap(), least, "the name is not trimmed");
        let bytes = b"WantMassQuery: 0\nOther: \xff";
        assert_eq!(CacheInfo::parse(bytes).unwrap(), least);
        assert!(!parse("WantMassQuery: true").unwrap().want_mass_query);
    }

    #[test]
    fn text_without_a_known_field_is_refused() {
        for text in [
            "",
            "{\"StoreDir\": \"/nix/store\"}",
            "<html>",
            " StoreDir: /a",
            "Hello: 1",
        ] {
            assert_eq!(parse(text), Err(CacheInfoError::NoField), "{text}");
        }
    }

    #[test]
    fn values_are_trimmed_and_last_field_counts() {
        let info = parse("StoreDir:/a\r\nStoreDir: \t/b \r\nPriority:1\nPriority: 2").unwrap();
        assert_eq!(info.store_dir.as_str(), "/b");
        assert_eq!(info.priority, Some(2));
    }

    #[test]
    fn priority_parses_like_a_number_in_c() {
        let priority = |text: &str| parse(&format!("Priority: {text}")).map(|info| info.priority);
        assert_eq!(priority("+7 or so"), Ok(Some(7)));
        assert_eq!(priority("-3"), Ok(Some(-3)));
        assert_eq!(priority("007"), Ok(Some(7)));
        for text in ["", "x", "-", "+-1", "2147483648", "99999999999999999999"] {
            assert_eq!(priority(text), Err(CacheInfoError::Priority(text.into())));
        }
    }

    #[test]
    fn invalid_directory_and_long_file_are_errors() {
        assert!(matches!(
            parse("StoreDir: nix"),
            Err(CacheInfoError::StoreDir(_))
        ));
        assert!(matches!(
            parse("StoreDir:"),
            Err(CacheInfoError::StoreDir(_))
        ));
        assert_eq!(
            CacheInfo::parse(b"StoreDir: /a\xff"),
            Err(CacheInfoError::NotUtf8)
        );
        let long = "x".repeat(CACHE_INFO_LEN_MAX + 1);
        assert_eq!(parse(&long), Err(CacheInfoError::TooLong(long.len())));
    }

    proptest! {
        #[test]
        fn parse_reverses_print(
            dir in "(/[a-z.]{1,5}){1,3}",
            want_mass_query: bool,
            priority: Option<i32>,
        ) {
            if let Ok(store_dir) = StoreDir::new(&dir) {
                let info = CacheInfo { store_dir, want_mass_query, priority };
                prop_assert_eq!(CacheInfo::parse(info.to_text().as_bytes()).unwrap(), info);
            }
        }
    }
}
