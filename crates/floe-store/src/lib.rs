//! The local Nix store on disk. It blocks, and uses no network and no async runtime. It is the only
//! code of floe that writes below a store.
//!
//! These steps add a path safely while any number of Nix and floe processes use the store:
//!
//! 1. [`StoreWriter::add_temp_roots`] makes temporary roots for all paths of the operation.
//! 2. [`StoreWriter::query_missing`] asks the database which of them are missing.
//! 3. [`StoreWriter::tree_writer`] unpacks each missing path beside its final place.
//! 4. The caller compares the hash of the NAR with the expected one.
//! 5. [`StoreWriter::register`] acquires the path locks, queries the database again, renames the
//!    trees into place and writes the rows in one transaction.
//!
//! After a crash of the system, the contents of registered paths may be lost, as with Nix in its
//! default settings. The next [`StoreWriter`] finds such paths, and a copy replaces them; see
//! `sync_record`.

mod add_to_store;
mod build_log;
mod collector;
mod crash_recovery;
mod db;
mod directory;
mod error;
mod events;
mod free_space;
mod gc_roots;
mod hashing;
mod layout;
mod list_directory;
mod live;
mod locks;
mod mount_table;
mod new_store;
mod open_beneath;
mod optimise;
mod options;
mod profile;
mod reader;
mod recovered_trees;
mod reference_graph;
mod register;
mod regular_file;
mod repair;
mod restart_check;
mod sync_record;
mod temp_roots;
pub mod tree;
mod verify;
mod writer;
mod written_file;

pub use build_log::{BuildLog, find_logged_derivation};
pub use collector::{
    AlivePath, Collector, DeadFile, DeleteError, DeleteFailure, DeleteOptions, Garbage, GcObserver,
    GcResults, GcSettings,
};
pub use db::{BuildTrace, DamagedRow, Realisation, Table};
pub use directory::is_trusted_owner;
pub use error::{DatabaseReader, StoreError, is_out_of_space};
pub use events::{LostRecord, StoreEvent, StoreEvents};
pub use free_space::FileSystem;
pub use gc_roots::{
    FoundRoots, HiddenRoots, IndirectGcRoot, Root, RootPlace, RuntimeRoots, StaleRegistration,
    Unreadable, canon_path,
};
pub use layout::StoreLayout;
pub use list_directory::{DirectoryEntry, list_directory};
pub use live::{HashPartIndex, IndexCursor, IndexDelta, LiveStore};
pub use locks::LockWait;
pub use open_beneath::open_beneath;
pub use optimise::{OptimiseObserver, OptimiseResults};
pub use options::WriteOptions;
pub use profile::{FoundProfiles, Generation, GenerationSpec, Generations, Profile};
pub use reader::StoreReader;
pub use reference_graph::{ClosureSize, ReferenceGraph};
pub use register::{RegisterOutcome, StagedPath};
pub use regular_file::{open_regular_file, read_regular_file};
pub use temp_roots::{ProgramRoot, TempRoots};
pub use verify::{Damage, ProblemCause, Verification, VerifyObserver, VerifyProblem};
pub use writer::StoreWriter;
pub use written_file::{UnfinishedFile, WrittenFile, write_file};
