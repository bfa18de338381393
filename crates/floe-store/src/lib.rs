//! The local Nix store on disk. Blocking; no network, no async runtime. The only code of floe
//! that writes under a store.
//!
//! A safe addition, beside any number of Nix processes and other floes:
//!
//! 1. [`StoreWriter::add_temp_roots`] makes temporary roots for everything that is about to matter;
//! 2. [`StoreWriter::query_missing`] asks the database what is missing;
//! 3. [`StoreWriter::tree_writer`] unpacks each missing path beside its place;
//! 4. the caller compares the hash of what went through with what was promised;
//! 5. [`StoreWriter::register`] takes the path's lock, asks again, renames the tree into
//!    place and writes the row, references before referrers, many paths in one transaction.
//!
//! Not guaranteed: durability. A crash of the system may lose paths whose rows survived, as
//! with Nix in its default settings; `floe verify` finds them.

mod add_to_store;
mod crash_recovery;
mod db;
mod error;
mod free_space;
mod gc_roots;
mod layout;
mod live;
mod locks;
mod options;
mod profile;
mod reader;
mod recovered_trees;
mod register;
mod temp_roots;
pub mod tree;
mod verify;
mod writer;

pub use db::{BuildTrace, Realisation};
pub use error::{StoreError, is_out_of_space};
pub use free_space::FileSystem;
pub use gc_roots::{IndirectGcRoot, canon_path};
pub use layout::StoreLayout;
pub use live::{HashPartIndex, IndexCursor, IndexDelta, LiveStore};
pub use locks::LockWait;
pub use options::WriteOptions;
pub use profile::Profile;
pub use reader::StoreReader;
pub use register::{RegisterOutcome, StagedPath};
pub use temp_roots::TempRoots;
pub use verify::{Verification, VerifyObserver, VerifyProblem};
pub use writer::StoreWriter;
