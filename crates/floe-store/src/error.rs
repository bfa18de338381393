//! What can go wrong in a store, with the path at fault as data.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use floe_format::content_address::ContentAddressError;
use floe_format::derivation::DerivationError;
use floe_format::nar::read::NarError;

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("{action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was attempted, such as `creating directory`.
        action: &'static str,
        /// The file or directory it was attempted on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused.
    #[error(
        "{action} in the Nix database {}: {source}{}",
        path.display(), advice_on_database(source)
    )]
    Database {
        /// What was attempted, such as `registering paths`.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// There is no store at that place.
    #[error(
        "there is no Nix store at {}: {} does not exist; give the directory that holds nix/store",
        path.display(), database.display()
    )]
    NoStore {
        /// The store directory that was asked for.
        path: PathBuf,
        /// The database that would have to be there.
        database: PathBuf,
    },
    /// The database has a schema that this crate does not know.
    #[error(
        "the Nix store at {} has schema {found}, floe knows schema 10 only; \
         open it once with a current Nix to upgrade it", path.display()
    )]
    Schema {
        /// The schema file.
        path: PathBuf,
        /// Its contents.
        found: String,
    },
    /// Nix refuses a store below a symbolic link, so floe does not make one.
    #[error(
        "{} is a symbolic link, which Nix does not allow for a store directory or its parents; \
         give the path that it points to, or set allow-symlinked-store", path.display()
    )]
    SymlinkedStore {
        /// The symbolic link.
        path: PathBuf,
    },
    /// A root inside the store would keep paths alive that nobody can give up.
    #[error("{} lies in the store, where no root can be; name a place outside", path.display())]
    RootInStore {
        /// The place of the root.
        path: PathBuf,
    },
    /// No link can be made where a root was to be.
    #[error("no link can be made at {}: {}: {source}", path.display(), directory.display())]
    CannotCreateRoot {
        /// The place of the root.
        path: PathBuf,
        /// The directory, or what is there instead, in which it cannot be made.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something where a root was to be made.
    #[error(
        "{} exists and is not a link into the store, so it stays as it is; \
         name another place, or move it away", path.display()
    )]
    NotARoot {
        /// The place of the root.
        path: PathBuf,
    },
    /// There is something where a profile was to be.
    #[error("{} is not a profile, so it stays as it is: {}", path.display(),
        describe_non_profile(target))]
    NotAProfile {
        /// The place of the profile.
        path: PathBuf,
        /// Where it leads, if it is a symbolic link.
        target: Option<PathBuf>,
    },
    /// Only the Nix daemon may write this store.
    #[error(
        "the store at {} belongs to the Nix daemon and this user may not write to it; \
         run floe as root (sudo floe …), or install into a store of your own with --root DIR",
        path.display()
    )]
    DaemonOwned {
        /// The state directory of the store.
        path: PathBuf,
    },
    /// Another process has held a lock for too long.
    #[error("{} has been locked by somebody else for {seconds} seconds; giving up", path.display())]
    LockTimeout {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// Whoever watched has ended it.
    #[error("interrupted")]
    Interrupted,
    /// The garbage collector did not acknowledge a temporary root.
    #[error("the running garbage collector at {} did not accept a root: {reason}", path.display())]
    CollectorRefused {
        /// Its socket.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The bytes are not a NAR.
    #[error("unpacking {path}: {source}")]
    Nar {
        /// The store path that was being unpacked.
        path: StorePath,
        /// What is wrong with the bytes.
        source: NarError,
    },
    /// A file in a store is neither a regular file nor a directory nor a symbolic link.
    #[error(
        "{} is not a file, directory or symbolic link; Nix stores hold nothing else",
        path.display()
    )]
    UnsupportedFile {
        /// The file.
        path: PathBuf,
    },
    /// A tree is nested more deeply than any NAR may be.
    #[error(
        "{} is nested more than {limit} directories deep, which is the limit of NARs",
        path.display()
    )]
    TooDeep {
        /// The directory that passed the limit.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// A file changed while it was being read.
    #[error("{} changed its size while it was being read", path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// A database that this user cannot lock was written to, again and again, while being read.
    #[error("the Nix database {} was being changed while it was read; ask again", path.display())]
    DatabaseChanged {
        /// The database file.
        path: PathBuf,
    },
    /// A row of the database does not parse.
    #[error("the Nix database {} has a broken row for {store_path}: {reason}", path.display())]
    InvalidRow {
        /// The database file.
        path: PathBuf,
        /// The path whose row it is.
        store_path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A derivation that was to be registered is broken.
    #[error("registering the derivation {path}: {source}")]
    Derivation {
        /// The `.drv` path.
        path: StorePath,
        /// What is wrong with it.
        source: DerivationError,
    },
    /// What lies in the place of a path, or of its lock, can be neither used nor taken away.
    #[error(
        "{store_path} cannot be put into its place: {action} {}: {source}{}",
        path.display(), advice_on_obstacle(store_path, path, source)
    )]
    PathObstructed {
        /// The path that was to be added.
        store_path: StorePath,
        /// What was attempted, such as `removing`.
        action: &'static str,
        /// The file or directory it was attempted on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A path was to be registered before what it refers to.
    #[error(
        "{path} cannot be registered: its references {} are not valid",
        join_paths(missing)
    )]
    MissingReferences {
        /// The path.
        path: StorePath,
        /// The references that are not valid.
        missing: BTreeSet<StorePath>,
    },
    /// No store path follows from a content address.
    #[error("adding {} to the store: {source}", path.display())]
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
            StoreError::Database { source, .. } => {
                source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            _ => false,
        }
    }

    /// Whether somebody else has the database, so that the same question may be answered later.
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match self {
            StoreError::DatabaseChanged { .. } => true,
            StoreError::Database { source, .. } => {
                matches!(
                    source.sqlite_error_code(),
                    Some(DatabaseBusy | DatabaseLocked)
                )
            }
            _ => false,
        }
    }
}

impl StoreError {
    /// Whether there may be enough when the locks are let go that this process has taken: of
    /// descriptors, or of inodes.
    pub(crate) fn is_resource_exhaustion(&self) -> bool {
        let emfile = rustix::io::Errno::MFILE.raw_os_error();
        let is_exhausted =
            |source: &io::Error| source.raw_os_error() == Some(emfile) || is_out_of_space(source);
        matches!(self, StoreError::Io { source, .. } if is_exhausted(source))
    }

    /// Whether the system refused one file, and may well grant another.
    pub(crate) fn is_file_specific(&self) -> bool {
        matches!(self, StoreError::Io { source, .. } if !is_system_wide(source))
    }

    /// The error as one that concerns nothing but `store_path`, since others may well get into
    /// their places.
    ///
    /// Errors: it comes back as it is where every other path would meet the same.
    pub(crate) fn into_path_obstructed(
        self,
        store_path: &StorePath,
    ) -> Result<StoreError, StoreError> {
        match self {
            StoreError::Io {
                action,
                path,
                source,
            } if !is_system_wide(&source) => Ok(StoreError::PathObstructed {
                store_path: store_path.clone(),
                action,
                path,
                source,
            }),
            error => Err(error),
        }
    }
}

/// Whether the disk, the file system or this process is at its end, and not one file in the way.
pub(crate) fn is_system_wide(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let system_wide = [
        Errno::IO,
        Errno::ROFS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    is_out_of_space(error) || system_wide.into_iter().any(is)
}

/// Whether an error of the system means that no more can be written.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Puts the action and the path onto errors of the system.
pub(crate) trait IoContext<T> {
    fn io_context(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, StoreError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn io_context(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io {
            action,
            path: path.as_ref().to_path_buf(),
            source: source.into(),
        })
    }
}

fn join_paths(paths: &BTreeSet<StorePath>) -> String {
    paths
        .iter()
        .map(StorePath::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// What is in a profile's place, and what to do about it.
fn describe_non_profile(target: &Option<PathBuf>) -> String {
    match target {
        Some(target) => {
            let target = target.display();
            format!("it is a link to {target}; if that is the profile you mean, name it instead")
        }
        None => "it is no symbolic link; name another place, or move it away".into(),
    }
}

/// The next step, where the system's words alone leave a user guessing.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => OUT_OF_SPACE,
        io::ErrorKind::QuotaExceeded => " (the quota of this user is used up)",
        io::ErrorKind::ReadOnlyFilesystem => " (choose a writable store with --root DIR)",
        io::ErrorKind::PermissionDenied => {
            " (run as the owner of the store, or use a store of your own with --root DIR)"
        }
        _ => "",
    }
}

/// The same for what is in a path's way.
fn advice_on_obstacle(store_path: &StorePath, path: &Path, error: &io::Error) -> &'static str {
    use io::ErrorKind;
    use rustix::io::Errno;
    let is_lock = path.file_name() == Some(format!("{store_path}.lock").as_ref());
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match error.kind() {
        // What Nix locks for root nobody else may open.
        ErrorKind::PermissionDenied if is_lock && is(Errno::ACCESS) => {
            " (somebody else may be adding it: run again; \
             remove it only while neither Nix nor floe is at work)"
        }
        ErrorKind::PermissionDenied => {
            " (it belongs to another user, or is immutable: remove it as that user or as root)"
        }
        // Something else than what may be there; a lock with contents is invalid data.
        ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::AlreadyExists
        | ErrorKind::ResourceBusy
        | ErrorKind::InvalidData => " (remove what is there and run again)",
        _ if is(Errno::LOOP) => " (remove what is there and run again)",
        _ => "",
    }
}

/// The same for SQLite.
fn advice_on_database(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => OUT_OF_SPACE,
        _ => "",
    }
}

/// The system has the same words for both, and people look at the first alone.
const OUT_OF_SPACE: &str =
    " (out of blocks or inodes: see `df -h` and `df -i`, make room and run again)";

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn obstruction_advice_depends_on_path_and_errno() {
        let store_path = StorePath::parse("00000000000000000000000000000000-a.lock").unwrap();
        let (place, lock) = (format!("/s/{store_path}"), format!("/s/{store_path}.lock"));
        let says = |path: &str, source: io::Error| {
            let error = StoreError::PathObstructed {
                store_path: store_path.clone(),
                action: "opening",
                path: path.into(),
                source,
            };
            error.to_string()
        };
        let said = says(&lock, Errno::ACCESS.into());
        assert!(said.contains("run again; remove it only while"), "{said}");
        for (path, errno) in [(&place, Errno::ACCESS), (&lock, Errno::PERM)] {
            let said = says(path, errno.into());
            assert!(said.contains("as that user or as root"), "{said}");
        }
        let remove = "(remove what is there and run again)";
        for errno in [Errno::ISDIR, Errno::NOTEMPTY, Errno::BUSY, Errno::LOOP] {
            assert!(says(&place, errno.into()).contains(remove), "{errno}");
        }
        assert!(says(&lock, io::ErrorKind::InvalidData.into()).contains(remove));
        for errno in [Errno::NOENT, Errno::NAMETOOLONG, Errno::NOLCK] {
            let said = says(&lock, errno.into());
            assert!(
                said.ends_with(&io::Error::from(errno).to_string()),
                "{said}"
            );
        }
    }
}
