//! The parts of messages that depend on the cause: fixes and descriptions.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use rusqlite::ErrorCode;
use rustix::io::Errno;

use super::{DatabaseReader, is_errno};

pub(super) fn join_paths(paths: &BTreeSet<StorePath>) -> String {
    let paths: Vec<&str> = paths.iter().map(StorePath::as_str).collect();
    paths.join(", ")
}

pub(super) fn describe_no_generation(wanted: Option<u64>, current: Option<u64>) -> String {
    match (wanted, current) {
        (Some(number), _) => {
            format!("it has no generation {number}; floe profile list shows the generations")
        }
        (None, Some(current)) => format!("no generation is older than the current one ({current})"),
        (None, None) => "it has no generations".into(),
    }
}

/// The schema of the newest Nix, the only one that floe supports.
pub(crate) const SCHEMA_NUMBER: u64 = 10;

/// Returns what to do with a store of another schema.
pub(super) fn advice_on_schema(found: &str) -> &'static str {
    match found.parse::<u64>() {
        Ok(number) if number > SCHEMA_NUMBER => "a newer Nix has made it; try a newer floe",
        Ok(_) => "try opening it once with a current Nix, which upgrades it",
        Err(_) => "the file is damaged; try floe rebuild-db, which writes a new one",
    }
}

/// Describes the place of a profile that has no generations, and the fix.
pub(super) fn describe_absent(path: &Path, target: &Option<PathBuf>) -> String {
    match target {
        Some(target) => format!(
            "it is a link to {} and has no generations; name a profile with --profile",
            target.display()
        ),
        None => format!(
            "there is none; name one with --profile, or make one by floe install PATH --profile {}",
            path.display()
        ),
    }
}

/// Describes the file at the place of a profile, and the fix.
pub(super) fn describe_non_profile(target: &Option<PathBuf>) -> String {
    match target {
        Some(target) => {
            let target = target.display();
            format!(
                "it is a link to {target} and not a profile; try {target} if that is the profile"
            )
        }
        None => "it is not a symbolic link; try another place, or move it away".into(),
    }
}

/// The fix for an error of the system whose own message does not suggest one.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => OUT_OF_SPACE,
        io::ErrorKind::QuotaExceeded => "; try making room in the quota of this user",
        io::ErrorKind::ReadOnlyFilesystem => "; try a writable store with --root DIR",
        io::ErrorKind::PermissionDenied => {
            "; try running as the owner of the store, or a store of your own with --root DIR"
        }
        _ => "",
    }
}

/// The fix for a file that blocks the place or the lock of a path.
pub(super) fn advice_on_obstacle(
    store_path: &StorePath,
    path: &Path,
    error: &io::Error,
) -> &'static str {
    use io::ErrorKind;
    let is_lock = path.file_name() == Some(format!("{store_path}.lock").as_ref());
    match error.kind() {
        // Nix creates lock files that only their owner may open, and root is often the owner.
        ErrorKind::PermissionDenied if is_lock && is_errno(error, &[Errno::ACCESS]) => {
            "; try again, because another process may be adding the path; \
             remove it only while neither Nix nor floe runs"
        }
        ErrorKind::PermissionDenied => {
            "; try removing it as its owner or as root, because it belongs to another user or is \
             immutable"
        }
        // The text about a mount has its own advice.
        ErrorKind::ResourceBusy if error.raw_os_error().is_none() => "",
        // A file of an unexpected kind. A lock file with contents is reported as invalid data.
        ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::AlreadyExists
        | ErrorKind::ResourceBusy
        | ErrorKind::InvalidData => REMOVE_OBSTACLE,
        _ if is_errno(error, &[Errno::LOOP]) => REMOVE_OBSTACLE,
        _ => "",
    }
}

/// The action in the error of a vacuum, which needs more space than others.
pub(crate) const VACUUM: &str = "vacuum";

/// The fix for an error of SQLite.
pub(super) fn advice_on_database(action: &str, error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) if action == VACUUM => {
            "; try again with as much free space as the database has, beside it and in the \
             directory TMPDIR (/var/tmp without this variable)"
        }
        Some(ErrorCode::DiskFull) => {
            "; try floe gc, or making room in another way (see `df -h` and `df -i`)"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "; try floe rebuild-db, which makes a new one from the paths on disk"
        }
        _ => "",
    }
}

/// The second half of the message of a collection on a full disk: what keeps the log, and the fix.
pub(super) fn advice_on_full_collection(readers: Option<&[DatabaseReader]>) -> String {
    let Some(readers) = readers else {
        return "; try deleting files outside the store (see `df -h` and `df -i`)".into();
    };
    let names: Vec<String> = readers.iter().map(ToString::to_string).collect();
    let (names, fix) = match names.len() {
        0 => ("another process".into(), "all programs that use the store"),
        1 => (names.join(", "), "it"),
        _ => (names.join(", "), "them"),
    };
    format!(
        ", and its log cannot shrink while it is being read by {names}; \
         try stopping {fix}, then floe gc again"
    )
}

/// The system uses the same message for missing blocks and missing inodes, and `df -h` shows only
/// the blocks.
const OUT_OF_SPACE: &str = "; try making room (see `df -h` and `df -i`)";

const REMOVE_OBSTACLE: &str = "; try removing it and running again";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;

    #[test]
    fn obstruction_advice_depends_on_path_and_errno() {
        let store_path = StorePath::parse("00000000000000000000000000000000-a.lock").unwrap();
        let (place, lock) = (format!("/s/{store_path}"), format!("/s/{store_path}.lock"));
        let says = |path: &str, source: io::Error| {
            let error = StoreError::PathObstructed {
                store_path: store_path.clone(),
                action: "open",
                path: path.into(),
                source,
            };
            error.to_string()
        };
        let said = says(&lock, Errno::ACCESS.into());
        assert!(
            said.contains("adding the path; remove it only while"),
            "{said}"
        );
        for (path, errno) in [(&place, Errno::ACCESS), (&lock, Errno::PERM)] {
            let said = says(path, errno.into());
            assert!(said.contains("as its owner or as root"), "{said}");
        }
        let remove = "; try removing it and running again";
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
