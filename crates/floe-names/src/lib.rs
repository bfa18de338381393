//! Names of packages, and the sources that know their store paths without evaluating Nix
//! expressions: a Hydra or a file.
//!
//! A name is only a way to a store path. Sources are trusted as far as TLS protects their host; the
//! contents of the path are verified by signatures as always.

mod error;
mod file_source;
mod hydra;
mod memory;
mod name_spec;
mod package;
mod resolver;
mod source_uri;

pub use error::NameError;
pub use file_source::FileSource;
pub use hydra::{HydraUri, machine_system};
pub use memory::{NameMemory, Remembered};
pub use name_spec::NameSpec;
pub use package::{Candidate, Fetch};
pub use resolver::{Origin, ResolveOptions, ResolvedName, Resolver};
pub use source_uri::{NameSource, NameSourceUri};
