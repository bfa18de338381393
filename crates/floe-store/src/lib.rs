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
//! `write/sync_record`.

mod collect;
mod db;
mod disk;
mod error;
mod events;
mod locks;
mod open_store;
mod options;
mod progress;
mod query;
mod roots;
pub mod tree;
mod write;

pub use collect::{
    AlivePath, Collector, DeadFile, DeleteError, DeleteFailure, DeleteOptions, Garbage, GcResults,
    GcSettings, OptimiseResults,
};
pub use db::{DamagedRow, DatabaseSpace, PathTotals, Signing, Table};
pub use disk::{
    DirectoryEntry, FileSystem, StoreLayout, UnfinishedFile, WrittenFile, is_trusted_owner,
    list_directory, open_beneath, open_regular_file, read_regular_file, write_file,
};
pub use error::{DatabaseReader, RealisationRefusal, StoreError, is_out_of_space};
pub use events::{LostRecord, StoreEvent, StoreEvents};
pub use locks::{LockWait, open_lock_file};
pub use options::WriteOptions;
pub use progress::Progress;
pub use query::{
    BuildLog, ClosureSize, Damage, GraphPath, HashPartIndex, IndexCursor, IndexDelta, LiveStore,
    ProblemCause, ReferenceGraph, StoreHealth, StoreReader, Verification, VerifyProblem,
    find_logged_derivation, references_first,
};
pub use roots::{
    FoundProfiles, FoundRoots, Generation, GenerationSpec, Generations, HiddenRoots,
    IndirectGcRoot, Profile, ProgramRoot, Root, RootPlace, RuntimeRoots, StaleRegistration,
    TempRoots, Unreadable, canon_path,
};
pub use write::{
    ExistingTrees, OldRow, RegisterOutcome, StagedPath, StoreRebuild, StoreWriter, recorded_damage,
};
