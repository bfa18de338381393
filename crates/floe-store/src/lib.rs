//! The local Nix store on disk. Blocking; no network, no async runtime. The only code of floe
//! that writes under a store.
//!
//! A safe addition, beside any number of Nix processes and other floes:
//!
//! 1. [`StoreWriter::protect`] makes temporary roots for everything that is about to matter;
//! 2. [`StoreWriter::invalid`] asks the database what is missing;
//! 3. [`StoreWriter::tree_writer`] unpacks each missing path beside its place;
//! 4. the caller compares the hash of what went through with what was promised;
//! 5. [`StoreWriter::register`] takes the path's lock, asks again, renames the tree into
//!    place and writes the row, references before referrers, many paths in one transaction.
//!
//! Not guaranteed: durability. A crash of the system may lose paths whose rows survived, as
//! with Nix in its default settings; `floe verify` finds them.

mod database;
mod error;
pub mod hashing;
mod import;
mod layout;
mod leftovers;
mod live;
mod locks;
mod options;
mod profile;
mod reader;
mod register;
mod resume;
mod roots;
mod space;
mod temp_roots;
pub mod tree;
mod verify;
mod writer;

pub use database::{BuildTrace, Realisation};
pub use error::{StoreError, is_out_of_space};
pub use layout::Layout;
pub use live::{HashPartIndex, IndexMark, IndexNews, LiveStore};
pub use locks::Patience;
pub use options::WriteOptions;
pub use profile::Profile;
pub use reader::StoreReader;
pub use register::{Registered, StagedPath};
pub use roots::{RootLink, canonical};
pub use space::FileSystem;
pub use temp_roots::TempRoots;
pub use verify::{Fault, Verification, Watch};
pub use writer::StoreWriter;
