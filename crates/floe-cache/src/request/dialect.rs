//! The parts of a request in which kinds of servers differ: signatures, names, and the texts of
//! errors. A server without a dialect wants a user name and a password at most.

use std::fmt::Debug;
use std::pin::Pin;

use floe_transfer::Error;

use super::body::RequestBody;

/// The demands of a kind of server beyond plain HTTP.
pub(crate) trait Dialect: Debug + Send + Sync {
    /// Adds the headers of a signature to a request that is complete otherwise. Leaves requests to
    /// other servers as they are.
    fn sign<'a>(&'a self, request: &'a mut reqwest::Request, body: &RequestBody) -> Signing<'a>;

    /// Encodes the name of an object as the server expects it in a URL.
    fn name(&self, name: &str) -> String;

    /// Returns the cause of a refusal, if the body of the reply has it.
    fn explain(&self, body: &[u8]) -> Option<Explanation>;

    /// Returns the cause of an error that the server noticed only after the status of a success.
    fn late_error(&self, body: &[u8]) -> Option<String>;
}

/// A signature that is being made: it may need new credentials.
pub(crate) type Signing<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// The cause of a refusal in the words of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    pub(crate) message: String,
    /// The advice to the user, as the end of a sentence; empty if floe has none.
    pub(crate) advice: &'static str,
    /// Whether the server only denies access, as it also does for objects that do not exist.
    pub(crate) is_denial: bool,
}
