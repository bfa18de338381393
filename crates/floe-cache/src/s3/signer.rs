//! Signs requests to a bucket, each attempt anew: its time and its credentials are valid.

use floe_hash::Sha256;
use floe_transfer::Error;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::connector::{Cause, Connector};
use super::credentials::Credentials;
use super::message::{explain, is_error};
use crate::error::CacheError;
use crate::request::{Dialect, Explanation, RequestBody, Signing};

/// Signs the requests to one bucket (AWS Signature Version 4).
#[derive(Debug)]
pub(super) struct S3Signer {
    pub(super) credentials: Credentials,
    pub(super) region: String,
    /// The URL of the bucket: no other server, and no other bucket of the server, gets a signature.
    pub(super) bucket: Url,
    /// Fetches credentials.
    pub(super) connector: Connector,
}

impl S3Signer {
    async fn sign_request(
        &self,
        request: &mut reqwest::Request,
        (signs_body, body): (bool, Option<[u8; 32]>),
    ) -> Result<(), Error> {
        let credential = self.credentials.get(&self.region, &self.connector);
        let Some(credential) = credential.await? else {
            return Ok(());
        };
        let mut signed = http::Request::new(HttpRequestBody::empty());
        *signed.method_mut() = request.method().clone();
        *signed.uri_mut() = request.url().as_str().parse().map_err(|_| INVALID_URL)?;
        // A proxy may change all headers but these on their way, and object_store signs all that
        // it sees.
        let headers = std::mem::take(request.headers_mut());
        let (own, others) = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .partition::<HeaderMap, _>(|(name, _)| name.as_str().starts_with(SIGNED_PREFIX));
        *signed.headers_mut() = own;
        let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
        let authorizer = authorizer.with_sign_payload(signs_body);
        let result = authorizer.try_authorize(&mut signed, body.as_ref().map(|it| &it[..]));
        let mut headers = std::mem::take(signed.headers_mut());
        headers.extend(others);
        *request.headers_mut() = headers;
        result.map_err(|error| {
            let Cause { reason, .. } = error.into();
            CacheError::credentials(reason).into()
        })
    }
}

impl Dialect for S3Signer {
    fn sign<'a>(&'a self, request: &'a mut reqwest::Request, body: &RequestBody) -> Signing<'a> {
        // TLS protects the body, as in the SDKs of AWS.
        let is_plain = request.url().scheme() == "http";
        let digest = match body {
            RequestBody::Whole(bytes) if is_plain => {
                let mut hasher = Sha256::new();
                hasher.update(bytes);
                Some(hasher.finish())
            }
            _ => None,
        };
        let is_empty = !matches!(body, RequestBody::Whole(_));
        Box::pin(async move {
            if !is_below(request.url(), &self.bucket) {
                return Ok(());
            }
            self.sign_request(request, (is_plain || is_empty, digest))
                .await
        })
    }

    /// The server verifies the signature of the name in this form.
    fn name(&self, name: &str) -> String {
        encode_name(name)
    }

    fn explain(&self, body: &[u8]) -> Option<Explanation> {
        let mut explained = explain(body)?;
        if explained.is_denial && self.credentials.are_anonymous() {
            explained.advice = NO_CREDENTIALS;
        }
        Some(explained)
    }

    /// S3 begins the reply to the end of a multipart upload before it knows the result.
    fn late_error(&self, body: &[u8]) -> Option<String> {
        // The reply to the deletion of many objects has the errors of some of them.
        if !is_error(body) {
            return None;
        }
        Some(explain(body)?.message)
    }
}

/// Whether a URL names a bucket or something in it.
fn is_below(url: &Url, bucket: &Url) -> bool {
    let path = bucket.path().trim_end_matches('/');
    let rest = url.path().strip_prefix(path);
    let is_within = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    url.origin() == bucket.origin() && is_within
}

/// The beginning of the names of the headers that S3 demands to be signed, beside `host`.
const SIGNED_PREFIX: &str = "x-amz-";

const NO_CREDENTIALS: &str = "; no credentials were found: set AWS_ACCESS_KEY_ID and \
                              AWS_SECRET_ACCESS_KEY, or name a profile with profile= in the URL";

const INVALID_URL: Error = Error::Internal("a URL of a bucket is not a URI");

/// Encodes the name of an object in the form that is signed.
pub(super) fn encode_name(name: &str) -> String {
    utf8_percent_encode(name, &RESERVED).to_string()
}

/// The characters that a signed name does not contain as they are: all but the unreserved ones and
/// the slash.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_the_bucket_are_signed() {
        let in_path = "https://s3.example.org/team";
        let in_host = "https://team.s3.example.org";
        for (url, bucket, expected) in [
            ("https://s3.example.org/team", in_path, true),
            ("https://s3.example.org/team?list-type=2", in_path, true),
            ("https://s3.example.org/team/nar/a", in_path, true),
            ("https://s3.example.org/team2/nar/a", in_path, false),
            ("https://s3.example.org/other/nar/a", in_path, false),
            ("https://s3.example.org/team/../other/a", in_path, false),
            ("https://s3.example.org/team/%2e%2e/other/a", in_path, false),
            ("http://s3.example.org/team/nar/a", in_path, false),
            ("https://s3.example.org:8443/team/nar/a", in_path, false),
            ("https://team.s3.example.org/nar/a", in_host, true),
            ("https://other.s3.example.org/nar/a", in_host, false),
        ] {
            let [url, bucket] = [url, bucket].map(|text| Url::parse(text).unwrap());
            assert_eq!(is_below(&url, &bucket), expected, "{url}");
        }
    }
}
