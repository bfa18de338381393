//! The handlers: one module for each kind of request.

pub(crate) mod browse;
mod compressed_nar;
pub(crate) mod file;
pub(crate) mod landing_page;
pub(crate) mod listing;
pub(crate) mod log;
pub(crate) mod monitoring;
pub(crate) mod nar;
mod nar_fields;
pub(crate) mod narinfo;
pub(crate) mod nix_cache_info;
pub(crate) mod pin;
mod range_response;
pub(crate) mod realisation;
pub(crate) mod received;
pub(crate) mod redirect;
