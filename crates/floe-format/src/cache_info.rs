//! The file `nix-cache-info`, in which a binary cache describes itself.

use crate::store_path::{StoreDir, StorePathError};

/// Why bytes are not the description of a binary cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheInfoError {
    /// It is longer than [`CACHE_INFO_LEN_MAX`].
    #[error(
        "cannot parse nix-cache-info of {0} bytes: longer than CACHE_INFO_LEN_MAX, \
         {CACHE_INFO_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// A known field is not UTF-8.
    #[error("cannot parse nix-cache-info: a value is not UTF-8")]
    NotUtf8,
    /// The store directory is not valid.
    #[error("cannot parse nix-cache-info: {0}")]
    StoreDir(#[from] StorePathError),
    /// The value does not begin with a 32-bit number.
    #[error("cannot parse nix-cache-info: priority {0:?} is not a number")]
    Priority(String),
}

/// What a binary cache says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// The directory that all its paths stand in.
    pub store_dir: StoreDir,
    /// Whether it likes to be asked for many paths at once.
    pub want_mass_query: bool,
    /// The lower, the sooner it is asked.
    pub priority: Option<i32>,
}

impl CacheInfo {
    /// Parses the file as leniently as Nix: lines without a colon and unknown fields are skipped,
    /// the last of several equal fields counts, a priority may have text behind its digits.
    ///
    /// An absent `StoreDir` means `/nix/store`; Nix then looks at none. A directory that is not
    /// normalized is normalized, whereas Nix finds it unequal to its own.
    pub fn parse(text: &[u8]) -> Result<CacheInfo, CacheInfoError> {
        if text.len() > CACHE_INFO_LEN_MAX {
            return Err(CacheInfoError::TooLong(text.len()));
        }
        let mut info = CacheInfo {
            store_dir: StoreDir::default(),
            want_mass_query: false,
            priority: None,
        };
        for line in text.split(|&byte| byte == b'\n') {
            let mut parts = line.splitn(2, |&byte| byte == b':');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                continue;
            };
            match name {
                b"StoreDir" => info.store_dir = StoreDir::new(trimmed(value)?)?,
                b"WantMassQuery" => info.want_mass_query = trimmed(value)? == "1",
                b"Priority" => info.priority = Some(leading_number(trimmed(value)?)?),
                _ => {}
            }
        }
        Ok(info)
    }

    /// The file's text, without the fields that only state a default.
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

/// The longest file that is parsed. Real ones have about 60 bytes.
pub const CACHE_INFO_LEN_MAX: usize = 64 * 1024;

fn trimmed(value: &[u8]) -> Result<&str, CacheInfoError> {
    let value = std::str::from_utf8(value).map_err(|_| CacheInfoError::NotUtf8)?;
    Ok(value.trim_matches([' ', '\n', '\r', '\t']))
}

/// The number that a text begins with: white space, a sign, digits, anything.
fn leading_number(text: &str) -> Result<i32, CacheInfoError> {
    // The space characters of C: char::is_ascii_whitespace lacks the vertical tab.
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
    fn the_file_of_the_official_cache_parses() {
        let text = "StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 40\n";
        let info = parse(text).unwrap();
        assert_eq!(info.store_dir, StoreDir::default());
        assert!(info.want_mass_query);
        assert_eq!(info.priority, Some(40));
        assert_eq!(info.to_text(), text);
    }

    #[test]
    fn what_is_missing_or_unknown_does_no_harm() {
        let empty = parse("").unwrap();
        assert_eq!(empty.to_text(), "StoreDir: /nix/store\n");
        assert_eq!(parse("no colon\nOther: x\n\n: y").unwrap(), empty);
        assert_eq!(
            parse(" Priority: 1").unwrap(),
            empty,
            "the name is not trimmed"
        );
        assert_eq!(CacheInfo::parse(b"Other: \xff").unwrap(), empty);
        assert!(!parse("WantMassQuery: true").unwrap().want_mass_query);
    }

    #[test]
    fn spaces_are_trimmed_and_the_last_field_counts() {
        let info = parse("StoreDir:/a\r\nStoreDir: \t/b \r\nPriority:1\nPriority: 2").unwrap();
        assert_eq!(info.store_dir.as_str(), "/b");
        assert_eq!(info.priority, Some(2));
    }

    #[test]
    fn priorities_are_read_like_a_c_number() {
        let priority = |text: &str| parse(&format!("Priority: {text}")).map(|info| info.priority);
        assert_eq!(priority("+7 or so"), Ok(Some(7)));
        assert_eq!(priority("-3"), Ok(Some(-3)));
        assert_eq!(priority("007"), Ok(Some(7)));
        for text in ["", "x", "-", "+-1", "2147483648", "99999999999999999999"] {
            assert_eq!(priority(text), Err(CacheInfoError::Priority(text.into())));
        }
    }

    #[test]
    fn bad_directories_and_endless_files_are_refused() {
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
        fn parsing_undoes_printing(
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
