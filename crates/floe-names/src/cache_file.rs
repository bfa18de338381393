//! Files that only save work: a user without a place for them has none.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_store::WrittenFile;
use rustix::fs::Mode;

/// Replaces a file in one step. Returns `None` if that is impossible.
pub(crate) fn replace(file: &Path, parts: &[&[u8]]) -> Option<()> {
    let directory = file.parent()?;
    fs::create_dir_all(directory).ok()?;
    let name = file.file_name()?.to_str()?;
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let created = WrittenFile::create(&temporary, Mode::from_raw_mode(0o600));
    let written = created.and_then(|created| {
        created.complete(|file| parts.iter().try_for_each(|part| file.write_all(part)))
    });
    let replaced = written.and_then(|()| fs::rename(&temporary, file));
    if replaced.is_err() {
        // A process of the same number, which was killed, may have left it.
        fs::remove_file(&temporary).ok()?;
    }
    replaced.ok()
}

/// Returns a time in seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Returns the time now in seconds since 1970.
pub(crate) fn now() -> u64 {
    seconds(SystemTime::now())
}
