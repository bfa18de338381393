//! Signatures of requests, for servers that want more than a user name and a password.

use std::fmt::Debug;
use std::pin::Pin;

use floe_transfer::Error;

use super::request_body::RequestBody;

/// Signs the requests to a cache.
pub(crate) trait Sign: Debug + Send + Sync {
    /// Adds the headers of a signature to a request that is complete otherwise. Leaves requests to
    /// other servers as they are.
    fn sign<'a>(&'a self, request: &'a mut reqwest::Request, body: &RequestBody) -> Signing<'a>;
}

/// A signature that is being made: it may need new credentials.
pub(crate) type Signing<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;
