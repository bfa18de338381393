//! A file that disappears unless it becomes an object of a cache.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use floe_transfer::Error;

/// An open file with a name that no other process uses. Dropping it removes the file.
#[derive(Debug)]
pub struct TemporaryFile {
    file: File,
    path: PathBuf,
}

impl TemporaryFile {
    /// Creates a file in a directory. Every user may read it, whatever the umask, because a server
    /// has to, as with Nix.
    pub(crate) fn create(directory: &Path) -> Result<TemporaryFile, Error> {
        let path = directory.join(unique_name());
        let create = || {
            let file = File::create_new(&path)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok(TemporaryFile { file, path }),
            Err(source) => Err(Error::File {
                action: "create",
                path,
                source,
            }),
        }
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file. It is not temporary any more.
    pub(crate) fn rename(mut self, to: PathBuf) -> Result<(), Error> {
        let renamed = fs::rename(&self.path, &to);
        if renamed.is_ok() {
            self.path = PathBuf::new();
        }
        renamed.map_err(|source| Error::File {
            action: "write",
            path: to,
            source,
        })
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// Returns a name that no other process uses. The process number alone is not unique across
/// containers, nor across reboots.
fn unique_name() -> String {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let number = SERIAL.fetch_add(1, Ordering::Relaxed);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since_epoch.map_or(0, |now| now.subsec_nanos());
    format!(".floe-{}-{nanos}-{number}.tmp", std::process::id())
}
