//! The compression methods that a narinfo may name.

use std::fmt;

/// Why a text names no compression method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown compression method {0:?}")]
pub struct CompressionError(pub String);

/// How a NAR file in a binary cache is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// The NAR itself.
    None,
    /// XZ, what cache.nixos.org used for most of its life.
    Xz,
    /// Zstandard.
    Zstd,
    /// Bzip2, what a narinfo means that says nothing.
    Bzip2,
    /// Gzip.
    Gzip,
    /// Brotli, called `br`.
    Brotli,
    /// The container that preceded XZ.
    Lzma,
    /// LZ4 frames.
    Lz4,
    /// A method that Nix has a name for and no binary cache is known to use. Such a narinfo
    /// parses, so that it can be shown and copied, but its NAR cannot be read.
    Unsupported(&'static str),
}

impl Compression {
    /// The method with that name. The empty name means bzip2, as an absent one does.
    ///
    /// `brotli` is understood beside Nix's `br`, because caches written by other tools say so.
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

    /// The name that Nix gives it, such as `br`.
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

    /// What Nix appends to `.nar` in the file names of caches it writes. It knows an extension
    /// for some methods only; the others, gzip among them, get none.
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

const UNSUPPORTED: [&str; 5] = ["compress", "grzip", "lrzip", "lzip", "lzop"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_parses_back_from_its_name() {
        for compression in SUPPORTED
            .into_iter()
            .chain(UNSUPPORTED.map(Compression::Unsupported))
        {
            assert_eq!(Compression::parse(compression.name()), Ok(compression));
            assert_eq!(compression.to_string(), compression.name());
        }
    }

    #[test]
    fn the_empty_name_means_bzip2_and_brotli_is_an_alias() {
        assert_eq!(Compression::parse(""), Ok(Compression::Bzip2));
        assert_eq!(Compression::parse("brotli"), Ok(Compression::Brotli));
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        for name in ["XZ", "zst", "none ", "unknown"] {
            assert_eq!(Compression::parse(name), Err(CompressionError(name.into())));
        }
    }

    #[test]
    fn extensions_are_those_that_nix_writes() {
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
