//! Names of packages, and the sources that know their store paths without evaluating Nix
//! expressions: the pins of a cache, a Hydra, a list of paths or a file.
//!
//! A name is only a way to a store path. Sources are trusted as far as TLS protects their host; the
//! contents of the path are verified by signatures as always.

mod access;
mod cache_file;
mod check;
mod error;
mod file_source;
mod hydra;
mod list;
mod lock;
mod memory;
mod name_spec;
mod package;
mod pins;
mod resolver;
mod search;
mod source_uri;

pub use access::Access;
pub use check::check_source;
pub use error::NameError;
pub use file_source::FileSource;
pub use hydra::{HydraUri, machine_system};
pub use list::{Entry, ListUri, parse_list};
pub use lock::{LockFile, LockedName};
pub use memory::{NameMemory, Remembered};
pub use name_spec::NameSpec;
pub use package::{Candidate, Origin, PinFacts};
pub use pins::{
    NewPin, PINS_INFO, PinError, PinPolicy, PinRefusal, Pinned, PinsUri, SeenPin, SeenPins,
    check_pin, expected_version, generation_object, parse_info, pin, pin_object, unpin,
};
pub use resolver::{ResolveOptions, ResolvedName, Resolver};
pub use search::{FoundPackage, FoundPackages, search};
pub use source_uri::{NameSource, NameSourceUri};
