//! A journaled disk: an ext4 image, mounted through a loop device.
//!
//! The disks of short-lived machines often have no journal, and then say little about the disks of
//! users; see `floe_bench::file_system`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A mounted image, unmounted and removed when this is dropped.
pub(super) struct Disk {
    pub(super) mount_point: PathBuf,
    _directory: tempfile::TempDir,
}

impl Disk {
    /// Creates and mounts an image below `directory`. This needs root.
    pub(super) fn mount(directory: &Path) -> Result<Disk> {
        let directory = temporary_directory(directory)?;
        let image = directory.path().join("image");
        let mount_point = directory.path().join("mounted");
        fs::create_dir(&mount_point)?;
        fs::File::create(&image)?.set_len(IMAGE_LEN)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&mount_point))?;
        Ok(Disk {
            mount_point,
            _directory: directory,
        })
    }
}

/// A directory that is removed when it is dropped.
pub(super) fn temporary_directory(parent: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("floe-bench-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a directory in {}", parent.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", stderr.trim());
    Ok(())
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).status();
    }
}

/// A sparse file; the largest closure needs less than half of it.
const IMAGE_LEN: u64 = 4 << 30;
