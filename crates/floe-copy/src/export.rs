//! Exports: paths as one stream, in the format of `nix-store --export`. An export has no
//! signatures.

mod error;
mod read;
mod source;
mod target;

pub use error::ExportError;
pub use source::ReadExport;
pub use target::Export;
