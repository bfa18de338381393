//! Signs requests to a bucket, each attempt anew: its time and its credentials are valid.

use std::sync::{Arc, OnceLock};

use floe_hash::Sha256;
use floe_transfer::Error;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use reqwest::Url;

use super::connector::{Cause, Connector};
use super::credentials::Credentials;
use crate::error::CacheError;
use crate::http::{HttpCacheShared, RequestBody, Sign, Signing};

/// Signs the requests to one bucket (AWS Signature Version 4).
#[derive(Debug)]
pub(super) struct S3Signer {
    pub(super) credentials: Credentials,
    pub(super) region: String,
    /// The URL of the bucket: no other server gets a signature.
    pub(super) bucket: Url,
    /// Fetches credentials. It is set when the storage exists.
    connector: OnceLock<Connector>,
}

impl S3Signer {
    pub(super) fn new(credentials: Credentials, region: String, bucket: Url) -> S3Signer {
        S3Signer {
            credentials,
            region,
            bucket,
            connector: OnceLock::new(),
        }
    }

    /// Sets the client for credentials.
    pub(super) fn set_connector(&self, shared: &Arc<HttpCacheShared>) {
        // Set once, when the storage is made.
        let _: Result<(), _> = self.connector.set(Connector::unsigned(shared));
    }

    async fn sign_request(
        &self,
        request: &mut reqwest::Request,
        (signs_body, body): (bool, Option<[u8; 32]>),
    ) -> Result<(), Error> {
        let connector = self.connector.get().ok_or(NO_CONNECTOR)?;
        let Some(credential) = self.credentials.get(&self.region, connector).await? else {
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
            CacheError::Credentials { reason }.into()
        })
    }
}

impl Sign for S3Signer {
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
}

const NO_CONNECTOR: Error = Error::Internal("a signer has no client");

const INVALID_URL: Error = Error::Internal("a URL of a bucket is not a URI");
