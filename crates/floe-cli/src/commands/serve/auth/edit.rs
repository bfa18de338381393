//! Replaces the login file in one step, so that a server never reads a part of it.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use floe_server::auth::LoginFile;
use floe_store::WrittenFile;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempPath;

use super::is_new;
use super::messages;

/// Changes the contents of a login file, or of a new one.
///
/// Errors: those of the change, after which the file is as it was; the file cannot be read or
/// written.
pub(super) fn edit(
    path: &Path,
    change: impl FnOnce(&mut LoginFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A link stays, and the file that it names is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let attempt = || messages::login_file(path);
    let dir = directory(path);
    let dir_handle = File::open(&dir).with_context(attempt)?;
    lock(&dir_handle, path)?;
    let mut file = if is_new(path)? {
        LoginFile::new()
    } else {
        LoginFile::read(path)?
    };
    let old = fs::metadata(path).ok();
    change(&mut file)?;
    let written = write(&file, &dir, old.as_ref()).with_context(attempt)?;
    written.persist(path).with_context(attempt)?;
    dir_handle.sync_all().with_context(attempt)
}

/// Writes the new file beside the old one, with the same owner.
fn write(file: &LoginFile, dir: &Path, old: Option<&Metadata>) -> io::Result<TempPath> {
    // Only its owner may read the new file from its first moment.
    let (new, path) = WrittenFile::create_temporary(dir, ".floe-logins-", "")?;
    new.complete(|new| {
        new.write_all(file.to_string().as_bytes())?;
        if let Some(old) = old {
            let made = new.as_file().metadata()?;
            // Otherwise the user of the server could not read the file that root has changed.
            if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                fchown(&*new, Some(old.uid()), Some(old.gid()))?;
            }
            // A file of LoadCredential= is not one that floe changes, so the mode of the group
            // goes.
            new.set_mode(old.mode() & 0o600)?;
        }
        new.as_file().sync_all()
    })?;
    Ok(path)
}

/// Locks the directory, because the file itself is replaced. The lock ends with the handle.
fn lock(dir: &File, path: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Err(Errno::WOULDBLOCK) => {
                return Err(anyhow!(messages::login_file_locked(path, LOCK_WAIT)));
            }
            Err(error) => {
                let error = io::Error::from(error);
                return Err(error).with_context(|| messages::login_file(path));
            }
        }
    }
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// How long a command waits for another one that changes the file, which takes milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(10);

const LOCK_POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use floe_server::auth::{Login, SecretHash};

    use super::*;

    fn add(path: &Path, name: &str) -> anyhow::Result<()> {
        edit(path, |file| {
            file.insert(Login::new(name, SecretHash::of_token(name)).unwrap());
            Ok(())
        })
    }

    fn names(path: &Path) -> Vec<String> {
        let file = LoginFile::read(path).unwrap();
        file.logins().map(|login| login.name().to_owned()).collect()
    }

    #[test]
    fn new_file_is_closed_to_other_users() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("logins"), dir.path().join("link"));
        add(&path, "a").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink("logins", &link).unwrap();
        add(&link, "b").unwrap();
        assert!(link.is_symlink());
        assert_eq!(names(&path), ["a", "b"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn failed_change_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        add(&path, "a").unwrap();
        edit(&path, |file| {
            file.remove("a");
            Err(anyhow!("no"))
        })
        .unwrap_err();
        assert_eq!(names(&path), ["a"]);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        add(&path, "b").unwrap_err();
    }

    #[test]
    fn writers_at_the_same_time_lose_no_login() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let path = &path;
                scope.spawn(move || add(path, name).unwrap());
            }
        });
        let mut names = names(&path);
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
