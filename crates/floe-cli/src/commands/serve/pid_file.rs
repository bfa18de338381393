//! The PID file of a server.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context as _, bail};
use floe_store::WrittenFile;
use rustix::process::{Pid, test_kill_process};

use super::messages;
use crate::display::warn;

/// A PID file, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// The open file. The user of the server may have no right to remove it, but can empty it.
    file: File,
}

impl PidFile {
    /// Writes the file, and replaces that of a process that has ended.
    ///
    /// Errors: the process of an existing file runs, or the file cannot be written.
    pub(crate) fn write(path: &Path) -> anyhow::Result<PidFile> {
        let attempt = || messages::pid_file(path);
        // The working directory may change before the file is removed.
        let path = &std::path::absolute(path).with_context(attempt)?;
        match fs::read_to_string(path) {
            Ok(text) => {
                if let Some(other) = running(&text) {
                    bail!(messages::pid_file_in_use(path, other));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(attempt),
        }
        let created = WrittenFile::create_or_truncate(path).with_context(attempt)?;
        let written = created.complete(|new| {
            writeln!(new, "{}", process::id())?;
            // The close of the first descriptor reports all errors of the contents.
            new.as_file().try_clone()
        });
        if written.is_err() {
            // The first error is the one to report.
            let _: io::Result<()> = fs::remove_file(path);
        }
        let file = written.with_context(attempt)?;
        let path = path.clone();
        Ok(PidFile { path, file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let removed = fs::remove_file(&self.path).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => self.file.set_len(0),
            _ => Err(error),
        });
        if let Err(error) = removed {
            warn(messages::pid_file_left(&self.path, error));
        }
    }
}

/// Returns the process in a PID file, if another process with this number runs.
fn running(text: &str) -> Option<u32> {
    let number: u32 = text.trim().parse().ok()?;
    let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
    let is_there = match test_kill_process(pid) {
        Ok(()) => true,
        // The process runs as another user.
        Err(error) => error == rustix::io::Errno::PERM,
    };
    (is_there && number != process::id()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_holds_the_number_and_is_removed_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        // The kernel never uses this number.
        fs::write(&path, "2147483647\n").unwrap();
        let file = PidFile::write(&path).unwrap();
        let number = process::id().to_string();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), number);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn file_of_a_running_process_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        fs::write(&path, "1\n").unwrap();
        let message = PidFile::write(&path).unwrap_err().to_string();
        assert!(message.contains("process 1 "), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }
}
