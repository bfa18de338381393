//! The parameters of an `s3://` URI that only such stores have.

use crate::uri_parameter::UriParameter;

/// Where a bucket is, and how objects are written; the parameters are those of Nix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The host, or the URL, of another service than Amazon's (`endpoint`).
    pub endpoint: Option<String>,
    /// `region`
    pub region: Option<String>,
    /// The profile with the credentials (`profile`).
    pub profile: Option<String>,
    /// `http`, or `https` by default (`scheme`).
    pub scheme: Option<String>,
    /// How a URL names the bucket (`addressing-style`).
    pub addressing: Addressing,
    /// The storage class of new objects (`storage-class`).
    pub storage_class: Option<String>,
    /// The length of the parts of a large object, in bytes (`multipart-chunk-size`); floe takes the
    /// nearest one from 5 to 8 MiB.
    pub chunk_len: Option<u64>,
}

/// How a URL names the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In the host at Amazon, except for names with a dot, which no certificate covers; in the path
    /// at any other service.
    #[default]
    Auto,
    /// In the path.
    Path,
    /// In the host.
    Virtual,
}

impl S3Options {
    /// Sets the option that a parameter of a store URI names.
    pub(super) fn visit(&mut self, parameter: &mut UriParameter<'_>) -> Result<(), String> {
        parameter.text("endpoint", &mut self.endpoint)?;
        parameter.text("region", &mut self.region)?;
        parameter.text("profile", &mut self.profile)?;
        parameter.parsed("scheme", &mut self.scheme, |_, value| match value {
            "http" | "https" => Ok(Some(value.to_owned())),
            _ => Err(format!("scheme takes http or https: {value:?}")),
        })?;
        parameter.parsed("addressing-style", &mut self.addressing, parse_addressing)?;
        parameter.text("storage-class", &mut self.storage_class)?;
        parameter.parsed("multipart-chunk-size", &mut self.chunk_len, parse_len)?;
        parameter.parsed("buffer-size", &mut self.chunk_len, parse_len)?;
        // Only the size of an object decides: a small one is one request in any case, and a large
        // one is never whole in memory.
        parameter.bool("multipart-upload", &mut false)?;
        parameter.parsed("multipart-threshold", &mut None, parse_len)
    }

    /// Whether the bucket is one of Amazon's, perhaps behind an endpoint of its own.
    pub(super) fn is_amazon(&self) -> bool {
        self.endpoint.as_deref().is_none_or(|endpoint| {
            let host = endpoint
                .split_once("://")
                .map_or(endpoint, |(_, host)| host);
            let host = host.split(['/', ':']).next().unwrap_or_default();
            [".amazonaws.com", ".amazonaws.com.cn"]
                .iter()
                .any(|it| host.ends_with(it))
        })
    }

    /// Returns the URL of a bucket, without a slash at its end.
    ///
    /// Errors: the text says what is wrong.
    pub(super) fn bucket_url(&self, bucket: &str, region: &str) -> Result<String, String> {
        let (scheme, host, is_amazon) = match &self.endpoint {
            None => {
                let suffix = if region.starts_with("cn-") {
                    "amazonaws.com.cn"
                } else {
                    "amazonaws.com"
                };
                ("https", format!("s3.{region}.{suffix}"), true)
            }
            Some(endpoint) => match endpoint.split_once("://") {
                Some((scheme @ ("http" | "https"), host)) => (scheme, host.to_owned(), false),
                Some((scheme, _)) => {
                    return Err(format!("endpoint takes a host or an HTTP URL: {scheme}://"));
                }
                None => ("https", endpoint.clone(), false),
            },
        };
        let scheme = self.scheme.as_deref().unwrap_or(scheme);
        let host = host.trim_end_matches('/');
        let is_in_host = match self.addressing {
            Addressing::Path => false,
            Addressing::Virtual => true,
            Addressing::Auto => is_amazon && !bucket.contains('.'),
        };
        Ok(if is_in_host {
            format!("{scheme}://{bucket}.{host}")
        } else {
            format!("{scheme}://{host}/{bucket}")
        })
    }
}

fn parse_addressing(_: &str, value: &str) -> Result<Addressing, String> {
    match value {
        "auto" => Ok(Addressing::Auto),
        "path" => Ok(Addressing::Path),
        "virtual" => Ok(Addressing::Virtual),
        _ => Err(format!(
            "addressing-style takes auto, path or virtual: {value:?}"
        )),
    }
}

/// Parses a number of bytes.
fn parse_len(name: &str, value: &str) -> Result<Option<u64>, String> {
    let parsed = value.parse().map(Some);
    parsed.map_err(|_| format!("{name} takes a number of bytes: {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri_parameter;

    fn set(options: &mut S3Options, name: &str, value: &str) -> Result<bool, String> {
        uri_parameter::set(name, value, |parameter| options.visit(parameter))
    }

    fn url(parameters: &[(&str, &str)], bucket: &str, region: &str) -> String {
        let mut options = S3Options::default();
        for (name, value) in parameters {
            assert_eq!(set(&mut options, name, value), Ok(true), "{name}");
        }
        options.bucket_url(bucket, region).unwrap()
    }

    #[test]
    fn bucket_urls_follow_nix() {
        for (parameters, bucket, region, expected) in [
            (
                &[][..],
                "b",
                "us-east-1",
                "https://b.s3.us-east-1.amazonaws.com",
            ),
            (
                &[],
                "b.c",
                "eu-west-1",
                "https://s3.eu-west-1.amazonaws.com/b.c",
            ),
            (
                &[],
                "b",
                "cn-north-1",
                "https://b.s3.cn-north-1.amazonaws.com.cn",
            ),
            (
                &[("addressing-style", "path")],
                "b",
                "us-east-1",
                "https://s3.us-east-1.amazonaws.com/b",
            ),
            (
                &[("endpoint", "minio:9000")],
                "b",
                "r",
                "https://minio:9000/b",
            ),
            (
                &[("endpoint", "minio:9000"), ("scheme", "http")],
                "b",
                "r",
                "http://minio:9000/b",
            ),
            (
                &[("endpoint", "http://minio:9000/")],
                "b",
                "r",
                "http://minio:9000/b",
            ),
            (
                &[
                    ("endpoint", "https://x.org"),
                    ("addressing-style", "virtual"),
                ],
                "b",
                "r",
                "https://b.x.org",
            ),
        ] {
            assert_eq!(url(parameters, bucket, region), expected);
        }
    }

    #[test]
    fn only_buckets_of_amazon_have_credentials_of_the_instance() {
        for (endpoint, expected) in [
            (None, true),
            (Some("https://vpce-1.s3.us-east-1.vpce.amazonaws.com"), true),
            (Some("s3.cn-north-1.amazonaws.com.cn"), true),
            (Some("minio.example.org:9000"), false),
            (Some("http://127.0.0.1:9000"), false),
            (Some("https://amazonaws.com.example.org"), false),
        ] {
            let options = S3Options {
                endpoint: endpoint.map(str::to_owned),
                ..S3Options::default()
            };
            assert_eq!(options.is_amazon(), expected, "{endpoint:?}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let mut options = S3Options::default();
        for (name, value) in [
            ("scheme", "ftp"),
            ("addressing-style", "dns"),
            ("multipart-upload", "maybe"),
            ("multipart-chunk-size", "many"),
            ("buffer-size", "-1"),
        ] {
            let reason = set(&mut options, name, value).unwrap_err();
            assert!(reason.contains(name), "{reason}");
        }
        assert_eq!(set(&mut options, "colour", "red"), Ok(false));
        options.endpoint = Some("ftp://x".into());
        assert!(options.bucket_url("b", "r").is_err());
    }
}
