//! Small objects that are stored compressed, with a `Content-Encoding`.

use std::io::Write as _;

use floe_format::Compression;
use floe_transfer::codec;
use reqwest::header::HeaderValue;

/// The compressions of small objects on a server; the parameters are those of Nix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentEncodings {
    /// `narinfo-compression`
    pub narinfo: Option<Compression>,
    /// `ls-compression`
    pub listing: Option<Compression>,
    /// `log-compression`
    pub log: Option<Compression>,
}

impl ContentEncodings {
    /// Sets the compression that a parameter names. Returns `false` if it names none.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let setting = match name {
            "narinfo-compression" => &mut self.narinfo,
            "ls-compression" => &mut self.listing,
            "log-compression" => &mut self.log,
            _ => return Ok(false),
        };
        *setting = match value {
            "" | "none" => None,
            // The others are not content encodings that HTTP clients know.
            "br" | "gzip" | "zstd" => {
                Some(Compression::parse(value).map_err(|error| error.to_string())?)
            }
            _ => return Err(format!("{name} takes br, gzip, zstd or none: {value:?}")),
        };
        Ok(true)
    }

    /// Compresses the contents of an object. Returns them with their `Content-Encoding`.
    pub(super) fn encode(&self, name: &str, contents: Vec<u8>) -> (Vec<u8>, Option<HeaderValue>) {
        let compression = match name {
            _ if name.ends_with(".narinfo") => &self.narinfo,
            _ if name.ends_with(".ls") => &self.listing,
            _ if name.starts_with("log/") => &self.log,
            _ => &None,
        };
        let Some(compression) = compression else {
            return (contents, None);
        };
        let mut encoded = Vec::new();
        let done = codec::encoder(*compression, None, &mut encoded).and_then(|encoder| {
            let Some(mut encoder) = encoder else {
                return Ok(false);
            };
            encoder.write_all(&contents)?;
            encoder.finish()?;
            Ok(true)
        });
        match (done, HeaderValue::from_str(compression.name())) {
            (Ok(true), Ok(value)) => (encoded, Some(value)),
            // Memory does not fail; a client reads the plain object as well.
            _ => (contents, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_objects_are_compressed() {
        let mut encodings = ContentEncodings::default();
        assert_eq!(encodings.set("narinfo-compression", "gzip"), Ok(true));
        assert_eq!(encodings.set("ls-compression", "none"), Ok(true));
        assert_eq!(encodings.set("compression", "gzip"), Ok(false));
        assert!(encodings.set("log-compression", "xz").is_err());
        let text = b"x".repeat(1000);
        let (encoded, header) = encodings.encode("a.narinfo", text.clone());
        assert!(encoded.len() < 100 && header.unwrap() == "gzip");
        for name in ["nix-cache-info", "a.ls", "nar/a.nar"] {
            assert_eq!(encodings.encode(name, text.clone()), (text.clone(), None));
        }
    }
}
