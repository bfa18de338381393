//! Small files of a user that floe replaces in one step.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_store::WrittenFile;
use rustix::fs::Mode;

/// Replaces a file that only saves work. Returns `None` if that is impossible.
pub(crate) fn replace(file: &Path, parts: &[&[u8]]) -> Option<()> {
    replace_with(file, parts, |_| Ok(())).ok()
}

/// Replaces a file that must survive a crash.
pub(crate) fn replace_synced(file: &Path, parts: &[&[u8]]) -> io::Result<()> {
    replace_with(file, parts, File::sync_all)?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    File::open(directory)?.sync_all()
}

fn replace_with(
    file: &Path,
    parts: &[&[u8]],
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let created = WrittenFile::create(&temporary, Mode::from_raw_mode(0o600));
    let written = created.and_then(|created| {
        created.complete(|file| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            sync(file.as_file())
        })
    });
    let replaced = written.and_then(|()| fs::rename(&temporary, file));
    if replaced.is_err() {
        // A process of the same number, which was killed, may have left it.
        let _: io::Result<()> = fs::remove_file(&temporary);
    }
    replaced
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
