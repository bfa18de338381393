//! Small objects that are stored compressed, with a `Content-Encoding`.

use std::io::Write as _;

use floe_format::Compression;
use floe_transfer::codec;
use reqwest::header::HeaderValue;

use crate::uri_parameter::UriParameter;

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
    /// Sets the compression that a parameter of a store URI names.
    pub(crate) fn visit(&mut self, parameter: &mut UriParameter<'_>) -> Result<(), String> {
        parameter.parsed("narinfo-compression", &mut self.narinfo, parse_encoding)?;
        parameter.parsed("ls-compression", &mut self.listing, parse_encoding)?;
        parameter.parsed("log-compression", &mut self.log, parse_encoding)
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

fn parse_encoding(name: &str, value: &str) -> Result<Option<Compression>, String> {
    match value {
        "" | "none" => Ok(None),
        // The others are not content encodings that HTTP clients know.
        "br" | "gzip" | "zstd" => {
            let compression = Compression::parse(value).map_err(|error| error.to_string())?;
            Ok(Some(compression))
        }
        _ => Err(format!("{name} takes br, gzip, zstd or none: {value:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri_parameter;

    #[test]
    fn only_the_named_objects_are_compressed() {
        let mut encodings = ContentEncodings::default();
        let mut set = |name, value| uri_parameter::set(name, value, |it| encodings.visit(it));
        assert_eq!(set("narinfo-compression", "gzip"), Ok(true));
        assert_eq!(set("ls-compression", "none"), Ok(true));
        assert_eq!(set("compression", "gzip"), Ok(false));
        assert!(set("log-compression", "xz").is_err());
        let text = b"x".repeat(1000);
        let (encoded, header) = encodings.encode("a.narinfo", text.clone());
        assert!(encoded.len() < 100 && header.unwrap() == "gzip");
        for name in ["nix-cache-info", "a.ls", "nar/a.nar"] {
            assert_eq!(encodings.encode(name, text.clone()), (text.clone(), None));
        }
    }
}
