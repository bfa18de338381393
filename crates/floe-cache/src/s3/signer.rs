//! Signs requests to a bucket, each attempt anew: its time and its credentials are valid.

use floe_hash::Sha256;
use floe_transfer::Error;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

use super::connector::{Cause, Connector};
use super::credentials::Credentials;
use super::message::explain;
use crate::error::CacheError;
use crate::request::{Dialect, Explanation, RequestBody, Signing};

/// Signs the requests to one bucket (AWS Signature Version 4).
#[derive(Debug)]
pub(super) struct S3Signer {
    pub(super) credentials: Credentials,
    pub(super) region: String,
    /// The URL of the bucket: no other server gets a signature.
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
        *signed.headers_mut() = std::mem::take(request.headers_mut());
        let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
        let authorizer = authorizer.with_sign_payload(signs_body);
        let result = authorizer.try_authorize(&mut signed, body.as_ref().map(|it| &it[..]));
        *request.headers_mut() = std::mem::take(signed.headers_mut());
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
            if request.url().origin() != self.bucket.origin() {
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
        explain(body)
    }

    /// S3 begins the reply to the end of a multipart upload before it knows the result.
    fn late_error(&self, body: &[u8]) -> Option<String> {
        Some(explain(body)?.message)
    }
}

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
