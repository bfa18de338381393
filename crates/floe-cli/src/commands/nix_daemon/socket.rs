//! The socket of the daemon.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use listenfd::ListenFd;

/// A listening socket. Its file is removed at the end, unless systemd has made it.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    file: Option<PathBuf>,
}

impl Socket {
    /// Takes the socket of systemd, or else listens at a place where every user can connect.
    ///
    /// Errors: another daemon listens there, or the system refuses.
    pub(super) fn open(path: &Path) -> anyhow::Result<Socket> {
        let passed = ListenFd::from_env().take_unix_listener(0);
        if let Some(listener) = passed.context("cannot take the socket of systemd")? {
            return Ok(Socket {
                listener,
                file: None,
            });
        }
        let cannot = || format!("cannot listen at {}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(cannot)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    bail!("{}: another daemon listens there; stop it first", cannot());
                }
                // A daemon that was killed has left it.
                fs::remove_file(path).with_context(cannot)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.with_context(cannot)?;
        fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(cannot)?;
        Ok(Socket {
            listener,
            file: Some(path.to_owned()),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nothing can be done about an error.
        let _: Option<io::Result<()>> = self.file.take().map(fs::remove_file);
    }
}
