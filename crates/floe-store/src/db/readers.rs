//! The processes that read a database, for messages.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::side_file;
use crate::disk::list_directory;
use crate::error::DatabaseReader;

/// Returns the other processes that read the database now. If the system does not tell which of
/// them hold a lock, returns all that have the database open.
pub(super) fn find_readers(file: &Path) -> Vec<DatabaseReader> {
    let users = find_users(file);
    let index = fs::metadata(side_file(file, "-shm"));
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = index.map_or(Vec::new(), |index| read_lock_holders(&locks, index.ino()));
    let is_reading = |user: &&DatabaseReader| holders.contains(&user.process);
    let readers: Vec<DatabaseReader> = users.iter().filter(is_reading).cloned().collect();
    if readers.is_empty() { users } else { readers }
}

/// Returns the other processes that have a file open, as far as this user sees them.
pub(crate) fn find_users(file: &Path) -> Vec<DatabaseReader> {
    let identity = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let Some(database) = identity(file) else {
        return Vec::new();
    };
    let processes = list_directory(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    let users = processes.filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut descriptors = list_directory(&entry.path().join("fd")).ok()?.flatten();
        let has_open = descriptors.any(|it| identity(it.path()) == Some(database));
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        (has_open && process != std::process::id()).then(|| DatabaseReader {
            process,
            name: name.trim_end().to_owned(),
        })
    });
    users.collect()
}

/// Returns the processes that hold a read lock of the log, from the text of `/proc/locks`. A line
/// is such as `1: POSIX  ADVISORY  READ 1234 00:2c:567 124 124`, with the numbers of the process
/// and the inode, and the first and the last locked byte.
fn read_lock_holders(locks: &str, index_inode: u64) -> Vec<u32> {
    let holder = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "POSIX", _, _, process, file, first, last] = *fields else {
            return None;
        };
        let inode: u64 = file.rsplit(':').next()?.parse().ok()?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let is_read_lock = first <= READ_LOCKS.1 && last >= READ_LOCKS.0;
        (inode == index_inode && is_read_lock).then(|| process.parse().ok())?
    };
    locks.lines().filter_map(holder).collect()
}

/// The first and the last byte of the index that SQLite locks while it reads (wal.c,
/// `WAL_READ_LOCK`; os_unix.c, `UNIX_SHM_BASE`). An open connection that does not read locks only
/// the byte after them.
const READ_LOCKS: (u64, u64) = (123, 127);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_locks_of_the_index_count() {
        let locks = "1: POSIX  ADVISORY  READ 10 00:2c:567 124 124\n\
            2: POSIX  ADVISORY  READ 11 00:2c:567 128 128\n\
            3: POSIX  ADVISORY  READ 12 00:2c:568 124 124\n\
            4: FLOCK  ADVISORY  WRITE 13 00:2c:567 0 EOF\n\
            4: -> POSIX  ADVISORY  WRITE 14 00:2c:567 124 124\n\
            5: POSIX  ADVISORY  WRITE 15 00:2c:567 120 123\n";
        assert_eq!(read_lock_holders(locks, 567), [10, 15]);
    }
}
