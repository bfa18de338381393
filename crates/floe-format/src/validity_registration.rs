//! Validity registrations: the rows of a store as text, which `nix-store --dump-db` prints and
//! `--load-db` and `--register-validity` read (`makeValidityRegistration`, `decodeValidPathInfo`).

use std::collections::BTreeSet;
use std::str::Split;

use crate::hash::{Hash, HashAlgorithm, HashError};
use crate::path_info::PathInfo;
use crate::store_path::{StoreDir, StorePath, StorePathError};

/// The facts that a registration tells of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidityRegistration {
    /// The store path.
    pub path: StorePath,
    /// Hash and size of the NAR, if the text has them.
    pub nar: Option<(Hash, u64)>,
    /// The derivation that built the path.
    pub deriver: Option<StorePath>,
    /// The paths that the contents refer to.
    pub references: BTreeSet<StorePath>,
}

/// Reason why a text is not a list of registrations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The text is longer than [`REGISTRATIONS_LEN_MAX`].
    #[error("it is longer than {REGISTRATIONS_LEN_MAX} bytes")]
    TooLong(usize),
    /// The text is not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The text ends in the middle of a registration or of a line.
    #[error("line {line} is the last one, and more must follow")]
    Truncated {
        /// The number of the last line, counted from 1.
        line: usize,
    },
    /// A line is not a store path.
    #[error("line {line} is not a store path: {source}")]
    Path {
        /// The number of the line, counted from 1.
        line: usize,
        /// The reason.
        source: StorePathError,
    },
    /// A line is not a SHA-256 hash.
    #[error("line {line} is not a SHA-256 hash: {source}")]
    Hash {
        /// The number of the line, counted from 1.
        line: usize,
        /// The reason.
        source: HashError,
    },
    /// A line is not a number.
    #[error("line {line} is not a number: {text:?}")]
    Number {
        /// The number of the line, counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// Whether a text has the hash and the size of each NAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NarHashes {
    /// As in the text of `--dump-db`.
    Given,
    /// As `--register-validity` expects it.
    Absent,
}

impl ValidityRegistration {
    /// Parses all registrations of a text.
    ///
    /// Difference from Nix: a text that ends in the middle of the first line of a registration is
    /// refused, whereas Nix ignores that line.
    pub fn parse_all(
        text: &[u8],
        hashes: NarHashes,
        dir: &StoreDir,
    ) -> Result<Vec<ValidityRegistration>, RegistrationError> {
        if text.len() > REGISTRATIONS_LEN_MAX {
            return Err(RegistrationError::TooLong(text.len()));
        }
        let text = std::str::from_utf8(text).map_err(|_| RegistrationError::NotUtf8)?;
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let mut reader = Reader {
            lines: text.strip_suffix('\n').unwrap_or(text).split('\n'),
            line: 0,
            dir,
        };
        let mut all = Vec::new();
        while let Some(path) = reader.lines.next() {
            reader.line += 1;
            all.push(reader.registration(path, hashes)?);
        }
        if !text.ends_with('\n') {
            return Err(RegistrationError::Truncated { line: reader.line });
        }
        Ok(all)
    }
}

/// The lines that are not read yet.
struct Reader<'a> {
    lines: Split<'a, char>,
    /// The number of the last line.
    line: usize,
    dir: &'a StoreDir,
}

impl<'a> Reader<'a> {
    fn registration(
        &mut self,
        path: &str,
        hashes: NarHashes,
    ) -> Result<ValidityRegistration, RegistrationError> {
        let path = self.path(path)?;
        let nar = match hashes {
            NarHashes::Absent => None,
            NarHashes::Given => {
                let text = self.next()?;
                let line = self.line;
                let hash = Hash::parse_any(text, Some(HashAlgorithm::Sha256));
                let hash = hash.map_err(|source| RegistrationError::Hash { line, source })?;
                Some((hash, self.number()?))
            }
        };
        let deriver = match self.next()? {
            "" => None,
            text => Some(self.path(text)?),
        };
        let mut references = BTreeSet::new();
        for _ in 0..self.number()? {
            let text = self.next()?;
            references.insert(self.path(text)?);
        }
        Ok(ValidityRegistration {
            path,
            nar,
            deriver,
            references,
        })
    }

    fn next(&mut self) -> Result<&'a str, RegistrationError> {
        let line = self.line;
        self.line += 1;
        let next = self.lines.next();
        next.ok_or(RegistrationError::Truncated { line })
    }

    fn path(&self, text: &str) -> Result<StorePath, RegistrationError> {
        let line = self.line;
        let parsed = self.dir.parse(text);
        parsed.map_err(|source| RegistrationError::Path { line, source })
    }

    fn number(&mut self) -> Result<u64, RegistrationError> {
        let text = self.next()?;
        text.parse().map_err(|_| RegistrationError::Number {
            line: self.line,
            text: text.to_owned(),
        })
    }
}

impl PathInfo {
    /// Returns the lines that `nix-store --dump-db` prints for the path.
    pub fn to_registration(&self, dir: &StoreDir) -> String {
        let deriver = self.deriver.as_ref().map(|path| dir.full_path(path));
        let mut text = format!(
            "{}\n{}\n{}\n{}\n{}\n",
            dir.full_path(&self.path),
            self.nar_hash.digest_base16(),
            self.nar_size,
            deriver.unwrap_or_default(),
            self.references.len(),
        );
        for reference in &self.references {
            text += &dir.full_path(reference);
            text.push('\n');
        }
        text
    }
}

/// The length of the longest text in bytes: 300,000 paths with ten references each.
pub const REGISTRATIONS_LEN_MAX: usize = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-a";
    const B: &str = "/nix/store/1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-b";

    fn parse(text: &str, hashes: NarHashes) -> Result<Vec<ValidityRegistration>, String> {
        let parsed = ValidityRegistration::parse_all(text.as_bytes(), hashes, &StoreDir::default());
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn printed_rows_parse_to_the_same_facts() {
        let dir = StoreDir::default();
        let path = |text: &str| dir.parse(text).unwrap();
        let info = |references: &[&str], deriver: Option<&str>| PathInfo {
            path: path(A),
            nar_hash: Hash::sha256([7; 32]),
            nar_size: 120,
            references: references.iter().map(|text| path(text)).collect(),
            deriver: deriver.map(path),
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        let infos = [
            info(&[], None),
            info(&[A, B], Some(B)),
            info(&[B], None),
            info(&[], Some(A)),
        ];
        let text: String = infos
            .iter()
            .map(|info| info.to_registration(&dir))
            .collect();
        let parsed = parse(&text, NarHashes::Given).unwrap();
        assert_eq!(parsed.len(), infos.len());
        for (parsed, info) in parsed.iter().zip(&infos) {
            assert_eq!(parsed.path, info.path);
            assert_eq!(parsed.nar, Some((info.nar_hash, info.nar_size)));
            assert_eq!(parsed.deriver, info.deriver);
            assert_eq!(parsed.references, info.references);
        }
        // A text is whole only between two registrations.
        let mut ends = vec![0];
        for info in &infos {
            ends.push(ends[ends.len() - 1] + info.to_registration(&dir).len());
        }
        for len in 0..=text.len() {
            let parsed = parse(&text[..len], NarHashes::Given);
            assert_eq!(parsed.is_ok(), ends.contains(&len), "{len} bytes");
        }
    }

    #[test]
    fn hashes_may_be_absent() {
        let parsed = parse(&format!("{A}\n{B}\n1\n{A}\n"), NarHashes::Absent).unwrap();
        assert_eq!(parsed[0].nar, None);
        assert_eq!(parsed[0].references.len(), 1);
        assert_eq!(parse("", NarHashes::Absent), Ok(Vec::new()));
    }

    #[test]
    fn line_of_a_fault_is_named() {
        let hash = Hash::sha256([7; 32]).digest_base16();
        for (text, expected) in [
            ("garbage\n".to_owned(), "line 1 is not a store path"),
            (format!("{A}\nzz\n120\n\n0\n"), "line 2 is not a SHA-256"),
            (format!("{A}\n{hash}\nxx\n\n0\n"), "line 3 is not a number"),
            (format!("{A}\n{hash}\n120\nB\n0\n"), "line 4 is not a store"),
            (
                format!("{A}\n{hash}\n120\n\n-1\n"),
                "line 5 is not a number",
            ),
            (
                format!("{A}\n{hash}\n120\n\n2\n{B}\n"),
                "line 6 is the last",
            ),
            (
                format!("{A}\n{hash}\n120\n\n0\n\n"),
                "line 6 is not a store",
            ),
            (format!("{A}\n{hash}\n120\n\n0"), "line 5 is the last"),
            (A.to_owned(), "line 1 is the last"),
        ] {
            let error = parse(&text, NarHashes::Given).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
