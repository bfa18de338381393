//! HTTP/1: requests, routes, ranges and responses.

pub mod proxy_header;
pub mod range;
pub mod refusal;
pub mod request;
pub mod request_body;
pub(crate) mod response;
pub mod route;
pub mod route_kind;
