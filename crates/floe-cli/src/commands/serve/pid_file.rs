//! The file that tells others the number of this process.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, test_kill_process};

use super::process::warn;

/// The file, for as long as this lives.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Open, so that it can be emptied by a user who may not remove it.
    file: File,
}

impl PidFile {
    /// Writes it. One that a dead process left behind is replaced.
    pub(crate) fn write(path: &Path) -> anyhow::Result<PidFile> {
        let attempt = || format!("writing the process number to {}", path.display());
        // The directory may be changed by the time that it is to be removed again.
        let path = std::path::absolute(path).with_context(attempt)?;
        match fs::read_to_string(&path) {
            Ok(text) => {
                if let Some(other) = running(&text) {
                    bail!("{}: process {other} is running already", attempt());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(attempt),
        }
        let mut file = File::create(&path).with_context(attempt)?;
        writeln!(file, "{}", process::id()).with_context(attempt)?;
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
            warn(&format!("removing {}: {error}", self.path.display()));
        }
    }
}

/// The process of that number, if there is one besides this one.
fn running(text: &str) -> Option<u32> {
    let number: u32 = text.trim().parse().ok()?;
    let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
    let is_there = match test_kill_process(pid) {
        Ok(()) => true,
        // It belongs to somebody else.
        Err(error) => error == rustix::io::Errno::PERM,
    };
    (is_there && number != process::id()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_number_and_is_gone_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        // No process has the number that the kernel never gives.
        fs::write(&path, "2147483647\n").unwrap();
        let file = PidFile::write(&path).unwrap();
        let number = process::id().to_string();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), number);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_runs_keeps_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        fs::write(&path, "1\n").unwrap();
        let message = PidFile::write(&path).unwrap_err().to_string();
        assert!(message.contains("process 1 "), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }
}
