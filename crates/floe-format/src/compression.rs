//! The compression methods that a narinfo may name.

use std::fmt;

/// A name that is not a compression method of Nix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown compression method {0:?}")]
pub struct CompressionError(pub String);

/// A compression method of NAR files in a binary cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// No compression.
    None,
    /// XZ, which most NAR files of cache.nixos.org use.
    Xz,
    /// Zstandard.
    Zstd,
    /// Bzip2, the default of a narinfo without the field.
    Bzip2,
    /// Gzip.
    Gzip,
    /// Brotli; Nix calls it `br`.
    Brotli,
    /// The format that preceded XZ.
    Lzma,
    /// LZ4 frames.
    Lz4,
    /// Another method that Nix has a name for, but that no known binary cache uses.
    ///
    /// A narinfo with such a method parses and can be shown, but its NAR file cannot be read.
    Unsupported(&'static str),
}

impl Compression {
    /// Parses a name. The empty name means bzip2, as an absent field does.
    ///
    /// Besides Nix's `br`, the name `brotli` is valid, because other tools write it.
    pub fn parse(name: &str) -> Result<Compression, CompressionError> {
        match name {
            "" => Ok(Compression::Bzip2),
            "brotli" => Ok(Compression::Brotli),
            _ => SUPPORTED
                .into_iter()
                .chain(UNSUPPORTED.map(Compression::Unsupported))
                .find(|compression| compression.name() == name)
                .ok_or_else(|| CompressionError(name.into())),
        }
    }

    /// Returns Nix's name, such as `br`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Gzip => "gzip",
            Compression::Brotli => "br",
            Compression::Lzma => "lzma",
            Compression::Lz4 => "lz4",
            Compression::Unsupported(name) => name,
        }
    }

    /// Returns the method whose files begin with these bytes: [`Compression::None`] for a NAR.
    /// Brotli and LZMA files have no such signature.
    pub fn from_signature(head: &[u8]) -> Option<Compression> {
        let found = SIGNATURES.iter().find(|(_, bytes)| head.starts_with(bytes));
        found.map(|(compression, _)| *compression)
    }

    /// Returns the extension that Nix appends to `.nar` when it writes a binary cache.
    ///
    /// Some methods, such as gzip, have none.
    pub fn file_extension(self) -> &'static str {
        match self {
            Compression::Xz => ".xz",
            Compression::Zstd => ".zst",
            Compression::Bzip2 => ".bz2",
            Compression::Brotli => ".br",
            Compression::Lz4 => ".lz4",
            Compression::Unsupported("lzip") => ".lzip",
            _ => "",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

const SUPPORTED: [Compression; 8] = [
    Compression::None,
    Compression::Xz,
    Compression::Zstd,
    Compression::Bzip2,
    Compression::Gzip,
    Compression::Brotli,
    Compression::Lzma,
    Compression::Lz4,
];

/// The first bytes of files, from the specifications of the formats. A NAR begins with the length
/// of its magic string.
const SIGNATURES: [(Compression, &[u8]); 7] = [
    (Compression::None, b"\x0d\0\0\0\0\0\0\0nix-"),
    (Compression::Xz, b"\xfd7zXZ\0"),
    (Compression::Zstd, b"\x28\xb5\x2f\xfd"),
    (Compression::Bzip2, b"BZh"),
    (Compression::Gzip, b"\x1f\x8b"),
    (Compression::Lz4, b"\x04\x22\x4d\x18"),
    (Compression::Unsupported("lzip"), b"LZIP"),
];

const UNSUPPORTED: [&str; 5] = ["compress", "grzip", "lrzip", "lzip", "lzop"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_parses_from_its_name() {
        for compression in SUPPORTED
            .into_iter()
            .chain(UNSUPPORTED.map(Compression::Unsupported))
        {
            assert_eq!(Compression::parse(compression.name()), Ok(compression));
            assert_eq!(compression.to_string(), compression.name());
        }
    }

    #[test]
    fn empty_name_is_bzip2_and_brotli_is_an_alias() {
        assert_eq!(Compression::parse(""), Ok(Compression::Bzip2));
        assert_eq!(Compression::parse("brotli"), Ok(Compression::Brotli));
    }

    #[test]
    fn unknown_name_is_error_with_name() {
        for name in ["XZ", "zst", "none ", "unknown"] {
            assert_eq!(Compression::parse(name), Err(CompressionError(name.into())));
        }
    }

    #[test]
    fn signatures_do_not_overlap() {
        for (compression, bytes) in SIGNATURES {
            assert_eq!(Compression::from_signature(bytes), Some(compression));
            let longer = [bytes, b"more"].concat();
            assert_eq!(Compression::from_signature(&longer), Some(compression));
            assert_eq!(Compression::from_signature(&bytes[1..]), None);
        }
        assert_eq!(Compression::from_signature(b""), None);
        assert_eq!(Compression::from_signature(b"<html>"), None);
    }

    #[test]
    fn file_extensions_are_those_of_nix() {
        let extension = |name| Compression::parse(name).unwrap().file_extension();
        assert_eq!(extension("none"), "");
        assert_eq!(extension("gzip"), "");
        assert_eq!(extension("xz"), ".xz");
        assert_eq!(extension("zstd"), ".zst");
        assert_eq!(extension("bzip2"), ".bz2");
        assert_eq!(extension("br"), ".br");
        assert_eq!(extension("lz4"), ".lz4");
        assert_eq!(extension("lzip"), ".lzip");
    }
}
