//! A request whose body is received, and how far it has come.

use std::time::Instant;

use crate::finish::access_log::LoggedRequest;
use crate::http::request::ResponseMode;
use crate::http::request_body::BodyReader;
use crate::http::response::AfterResponse;
use crate::http::route_kind::RouteKind;
use crate::receive::{Upload, UploadRequest};

/// A request whose body is received.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(super) body: BodyReader,
    pub(crate) request: UploadRequest,
    /// `None` until a worker has begun it.
    pub(crate) upload: Option<Box<dyn Upload>>,
    /// Whether the client waits for `100 Continue`.
    pub(super) must_continue: bool,
    pub(crate) route: RouteKind,
    pub(crate) mode: ResponseMode,
    /// When the network thread has read the head.
    pub(crate) received: Instant,
    /// The parts for the access log, if there is one.
    pub(crate) logged: Option<LoggedRequest<'static>>,
    /// The step after the response, if the whole body was read.
    pub(crate) after_response: AfterResponse,
}

/// The result of reading a piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyProgress {
    Complete,
    /// More has to come, or has come already.
    Incomplete,
    /// The client has closed the connection.
    Closed,
}
