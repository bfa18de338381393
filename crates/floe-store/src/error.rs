//! The errors of this crate, with the affected path as data.

mod advice;
mod database_reader;
mod io_context;
mod realisation_refusal;
mod system;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use floe_format::StorePath;
use floe_format::content_address::ContentAddressError;
use floe_format::derivation::DerivationError;
use floe_format::nar::DEPTH_MAX;
use floe_format::nar::read::NarError;
use rusqlite::ErrorCode;
use rustix::io::Errno;

pub(crate) use advice::{SCHEMA_NUMBER, VACUUM};
use advice::{
    advice, advice_on_database, advice_on_full_collection, advice_on_obstacle, advice_on_schema,
    describe_absent, describe_no_generation, describe_non_profile, join_paths,
};
pub use database_reader::DatabaseReader;
use database_reader::describe_users;
pub(crate) use io_context::IoContext;
pub use realisation_refusal::RealisationRefusal;
use system::is_errno;
pub use system::is_out_of_space;
pub(crate) use system::{is_not_found, is_system_wide};

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Io {
        /// The attempted action, such as `create`.
        action: &'static str,
        /// The file or directory of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// SQLite refused.
    #[error(
        "cannot {action} the Nix database {path}: {source}{}",
        advice_on_database(action, source)
    )]
    Database {
        /// The attempted action, such as `register paths in`.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A collection has no space for the changes to the database. It cannot delete anything first.
    #[error(
        "cannot {action} the Nix database {path}: the disk is full{}",
        advice_on_full_collection(readers.as_deref())
    )]
    NoSpaceToCollect {
        /// The attempted action, such as `delete paths from`.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// The processes whose reading keeps the log of the database large, as far as this user
        /// sees them; `None` if it is not kept.
        readers: Option<Vec<DatabaseReader>>,
    },
    /// A directory locks a database without a write-ahead log.
    #[error(
        "cannot {action} the Nix database {path}: another process has locked it with the \
         directory {directory}, or a killed process left it; try stopping all programs that use \
         the store, after which floe removes the directory"
    )]
    LockDirectory {
        /// The attempted action, such as `register paths in`.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// There is no store at that place.
    #[error(
        "cannot open the Nix store at {path}: there is no store, because {database} does not \
         exist; try --root with the directory that holds nix/store, or floe install, which creates \
         a store"
    )]
    NoStore {
        /// The store directory that was asked for.
        path: PathBuf,
        /// The database that would have to be there.
        database: PathBuf,
    },
    /// A NAR that was to be unpacked outside of the store is damaged.
    #[error("cannot unpack {place}: {source}")]
    RestoredNar {
        /// The place of the tree.
        place: PathBuf,
        /// The error in the NAR.
        source: NarError,
    },
    /// There are no paths from which a database could be made.
    #[error("cannot rebuild the database of {0}: no store paths are there; try another --root")]
    NoTrees(PathBuf),
    /// The store must not be open elsewhere.
    #[error(
        "cannot rebuild the database of {store}: {}",
        describe_users(processes)
    )]
    StoreInUse {
        /// The store directory.
        store: PathBuf,
        /// The programs, as far as this user sees them.
        processes: Vec<DatabaseReader>,
    },
    /// The database has no tables.
    #[error(
        "cannot use the database {database}: it has no tables, because it was emptied or its \
         creation was interrupted; try floe rebuild-db, which registers the paths that are on disk"
    )]
    NoTables {
        /// The database.
        database: PathBuf,
    },
    /// The database has tables, but not those of Nix.
    #[error("cannot use the database {0}: it belongs to another program; try floe rebuild-db")]
    ForeignDatabase(PathBuf),
    /// The database has a schema that this crate does not know.
    #[error(
        "cannot open the Nix store at {path}: it has schema {found}, and floe supports only \
         schema 10; {}",
        advice_on_schema(found)
    )]
    Schema {
        /// The schema file.
        path: PathBuf,
        /// Its contents.
        found: String,
    },
    /// Nix refuses a store below this symbolic link, so floe does not make one.
    #[error(
        "cannot use the store: {0} is a symbolic link, which Nix does not allow for a store \
         directory or its parents; try the path that it points to, or set allow-symlinked-store"
    )]
    SymlinkedStore(PathBuf),
    /// A root inside the store would protect paths for ever, because no user could remove it.
    #[error("cannot create a root at {0}: it is in the store; try a place outside the store")]
    RootInStore(PathBuf),
    /// This user cannot create a link at the place of a root.
    #[error("cannot create a link at {path}: {directory}: {source}")]
    CannotCreateRoot {
        /// The place of the root.
        path: PathBuf,
        /// The directory, or the file in its place, that prevents the link.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file that is not a root exists at the place of a root.
    #[error(
        "cannot replace {0}: it is not a link into the store; try another place, or move it away"
    )]
    NotARoot(PathBuf),
    /// An existing root cannot be registered, for a reason.
    #[error("cannot register the root {0}: {1}")]
    UnusableRoot(PathBuf, &'static str),
    /// The link of a root got another target after it was found.
    #[error("cannot remove the root {0}: another process has changed it; try again")]
    RootChanged(PathBuf),
    /// A root leads to a path that is on disk and has no row, so rows may be lost.
    #[error(
        "cannot delete unused paths: the root {root} leads to {path}, which is on disk and not in \
         the database ({count} such roots), so rows of the database may be lost; try floe install \
         of these paths, a backup of the database, or --ignore-unregistered-roots"
    )]
    UnregisteredRoot {
        /// The place of the first such root.
        root: String,
        /// Its path.
        path: StorePath,
        /// The number of such roots.
        count: usize,
    },
    /// A root may keep a path, and its file system fails.
    #[error(
        "cannot read the root {root}, which {link} names: {source}; try again when its file \
         system responds, or remove {link}"
    )]
    FailedRoot {
        /// The link in the directories of roots.
        link: PathBuf,
        /// The place to which it leads.
        root: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A symbolic link on the way to a directory belongs to a user who could redirect it.
    #[error(
        "cannot open the directory {path}: {} on the way is a symbolic link of another user (uid \
         {owner}), who could redirect it; try the path that it leads to, or run as that user",
        link.display()
    )]
    ForeignLink {
        /// The directory.
        path: PathBuf,
        /// The name of the link.
        link: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// A file that is not a profile exists at the place of a profile.
    #[error("cannot replace {path}: {}", describe_non_profile(target))]
    NotAProfile {
        /// The place of the profile.
        path: PathBuf,
        /// The target, if the file is a symbolic link.
        target: Option<PathBuf>,
    },
    /// There is no profile at a place.
    #[error("cannot read the profile {path}: {}", describe_absent(path, target))]
    NoProfile {
        /// The place.
        path: PathBuf,
        /// The target of a link without generations.
        target: Option<PathBuf>,
    },
    /// A profile has no such generation.
    #[error("cannot switch or change {profile}: {}", describe_no_generation(*wanted, *current))]
    NoGeneration {
        /// The profile.
        profile: PathBuf,
        /// The wanted number; `None` means the one before the current one.
        wanted: Option<u64>,
        /// The current number.
        current: Option<u64>,
    },
    /// The highest generation has the last number.
    #[error("cannot make a generation after {0}: its number is the highest possible; remove it")]
    LastGeneration(PathBuf),
    /// The current generation of a profile cannot be deleted.
    #[error(
        "cannot delete generation {number} of {profile}: it is the current one; switch to another \
         one first (floe profile switch N)"
    )]
    CurrentGeneration {
        /// The profile.
        profile: PathBuf,
        /// The number.
        number: u64,
    },
    /// Only the Nix daemon may write the store with this state directory.
    #[error(
        "cannot write to the store at {0}: it belongs to the Nix daemon; \
         try floe as root (sudo floe …), or a store of your own with --root DIR"
    )]
    DaemonOwned(PathBuf),
    /// Another process has held a lock for too long.
    #[error("cannot lock {path}: another process has held the lock for {seconds} seconds")]
    LockTimeout {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// The user interrupted the operation.
    #[error("interrupted")]
    Interrupted,
    /// The garbage collector did not acknowledge a temporary root.
    #[error("cannot send a root to the running garbage collector at {path}: {reason}")]
    CollectorRefused {
        /// The socket of the collector.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The bytes are not a NAR.
    #[error("cannot unpack {path}: {source}")]
    Nar {
        /// The store path that was being unpacked.
        path: StorePath,
        /// The error of the NAR reader.
        source: NarError,
    },
    /// A tree in the store does not have the stated contents.
    #[error("cannot register {path}: its NAR has the hash {actual}, not {expected}")]
    OtherContents {
        /// The path.
        path: StorePath,
        /// The stated hash and size.
        expected: String,
        /// Those of the tree.
        actual: String,
    },
    /// A file in a store is neither a regular file nor a directory nor a symbolic link.
    #[error("cannot read {0}: it is not a file, directory or symbolic link")]
    UnsupportedFile(PathBuf),
    /// The tree of this directory is nested more deeply than any NAR may be.
    #[error("cannot read {0}: it is more than {DEPTH_MAX} directories deep, the limit of NARs")]
    TooDeep(PathBuf),
    /// A file changed while it was being read.
    #[error("cannot read {0}: another process changed it during the read")]
    FileChanged(PathBuf),
    /// A database that this user cannot lock was written to, again and again, while being read.
    #[error("cannot read the Nix database {0}: another process is changing it; try again")]
    DatabaseChanged(PathBuf),
    /// A row of the database does not parse.
    #[error(
        "cannot read the row of {store_path} in the Nix database {path}: {reason}; try floe verify \
         --repair"
    )]
    InvalidRow {
        /// The database file.
        path: PathBuf,
        /// The path whose row it is.
        store_path: String,
        /// The reason.
        reason: String,
    },
    /// A realisation was refused.
    #[error(transparent)]
    Realisation(#[from] Box<RealisationRefusal>),
    /// A derivation that was to be registered is broken.
    #[error("cannot register the derivation {path}: {source}")]
    Derivation {
        /// The `.drv` path.
        path: StorePath,
        /// The error in the derivation.
        source: DerivationError,
    },
    /// The place of a path or its lock is blocked by a file that floe can neither use nor remove.
    #[error(
        "cannot move {store_path} into place: cannot {action} {path}: {source}{}",
        advice_on_obstacle(store_path, path, source)
    )]
    PathObstructed {
        /// The path that was to be added.
        store_path: StorePath,
        /// The attempted action, such as `remove`.
        action: &'static str,
        /// The file or directory of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A path was to be registered before its references.
    #[error(
        "cannot register {path}: its references {} are not valid",
        join_paths(missing)
    )]
    MissingReferences {
        /// The path.
        path: StorePath,
        /// The references that are not valid.
        missing: BTreeSet<StorePath>,
    },
    /// A content address does not yield a store path.
    #[error("cannot add {path} to the store: {source}")]
    ContentAddress {
        /// The tree that was to be added.
        path: PathBuf,
        /// Why not.
        source: ContentAddressError,
    },
}

impl StoreError {
    /// Whether the cause is a full disk, a full inode table or an exceeded quota.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => is_out_of_space(source),
            StoreError::NoSpaceToCollect { .. } => true,
            _ => self.sqlite_code() == Some(ErrorCode::DiskFull),
        }
    }

    /// Whether a file or directory on a path does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        matches!(self, StoreError::Io { source, .. }
            if matches!(source.kind(), NotFound | NotADirectory))
    }

    /// Whether this user may not write the store, which it may still be able to read.
    pub fn may_not_write(&self) -> bool {
        match self {
            StoreError::DaemonOwned(_) => true,
            StoreError::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ),
            _ => false,
        }
    }

    /// Whether the file system supports no locks, or fails to lock.
    pub fn has_no_locks(&self) -> bool {
        use rustix::io::Errno;
        let is_unsupported = |source: &io::Error| {
            let errors = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::IO];
            Errno::from_io_error(source).is_some_and(|error| errors.contains(&error))
        };
        matches!(self, StoreError::Io { action: "lock", source, .. } if is_unsupported(source))
    }

    /// Whether another process has locked the database, so that the query may succeed later.
    pub fn is_busy(&self) -> bool {
        let is_busy = matches!(
            self,
            StoreError::DatabaseChanged(_) | StoreError::LockDirectory { .. }
        );
        let codes = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked];
        is_busy || self.sqlite_code().is_some_and(|it| codes.contains(&it))
    }

    fn sqlite_code(&self) -> Option<ErrorCode> {
        match self {
            StoreError::Database { source, .. } => source.sqlite_error_code(),
            _ => None,
        }
    }

    /// Whether the error may vanish when this process releases some locks, because descriptors or
    /// inodes ran out.
    pub(crate) fn is_resource_exhaustion(&self) -> bool {
        matches!(self, StoreError::Io { source, .. }
            if is_errno(source, &[Errno::MFILE]) || is_out_of_space(source))
    }

    /// Whether the error concerns one file only, so that other files may succeed.
    pub(crate) fn is_file_specific(&self) -> bool {
        matches!(self, StoreError::Io { source, .. } if !is_system_wide(source))
    }

    /// Turns the error of a collection on a full disk into one that does not advise to collect.
    pub(crate) fn into_no_space_to_collect(
        self,
        readers: Option<Vec<DatabaseReader>>,
    ) -> StoreError {
        match self {
            StoreError::Database {
                action,
                path,
                source,
            } if source.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                StoreError::NoSpaceToCollect {
                    action,
                    path,
                    readers,
                }
            }
            error => error,
        }
    }

    /// Turns the error into one that concerns only `store_path`.
    ///
    /// Errors: returns the error unchanged if every other path would meet it as well.
    pub(crate) fn into_path_obstructed(self, path: &StorePath) -> Result<StoreError, StoreError> {
        let store_path = path.clone();
        match self {
            StoreError::Io {
                action,
                path,
                source,
            } if !is_system_wide(&source) => Ok(StoreError::PathObstructed {
                store_path,
                action,
                path,
                source,
            }),
            error => Err(error),
        }
    }
}
