//! From addresses to listening sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    getsockname, listen, socket_with,
};

use crate::config::Listen;
use crate::error::ServeError;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The file of a Unix socket. Dropped before the socket: as long as that is open, no other file
    /// can have its number.
    _file: Option<SocketFile>,
    pub(crate) socket: OwnedFd,
    pub(crate) address: Listen,
}

/// A socket that stands in a directory, and is removed with this unless it was replaced.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.into(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone, or this user may not remove it after giving up rights.
        if let Ok(now) = std::fs::symlink_metadata(&self.path)
            && (now.dev(), now.ino()) == (self.device, self.inode)
        {
            let _: io::Result<()> = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens on an address, which may be several: a name can have more than one.
pub(crate) fn open(address: &Listen, backlog: u16) -> Result<Vec<Listener>, ServeError> {
    let opened = match address {
        Listen::Unix(path) => open_unix(path, backlog).map(|listener| vec![listener]),
        Listen::Tcp { host, port } => open_tcp(host, *port, backlog),
    };
    opened.map_err(|source| ServeError::Listen {
        address: address.to_string(),
        source,
    })
}

fn open_tcp(host: &str, port: u16, backlog: u16) -> io::Result<Vec<Listener>> {
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let one = |address, only6| listen_on(address, only6, backlog).map(|listener| vec![listener]);
    match host {
        // One socket for both families, unless the system has only the older.
        "*" | "" => one(any6, false).or_else(|error| match error.raw_os_error() {
            Some(code) if code == Errno::AFNOSUPPORT.raw_os_error() => one(any4, true),
            _ => Err(error),
        }),
        "*4" => one(any4, true),
        "*6" => one(any6, true),
        // "Preferred", as nix-serve-ng has it: both, and no failure if one is missing.
        "!4" | "!6" => one(any6, false).or_else(|_| one(any4, true)),
        host => {
            let mut listeners: Vec<Listener> = Vec::new();
            let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in (host, port).to_socket_addrs()? {
                let is_known = |listener: &Listener| listener.address == named(address);
                if listeners.iter().any(is_known) {
                    continue;
                }
                match listen_on(address, true, backlog) {
                    Ok(listener) => listeners.push(listener),
                    // A name may have addresses of a family that this system does not use.
                    Err(error) if is_elsewhere(&error) => why = error,
                    Err(error) => return Err(error),
                }
            }
            match listeners.is_empty() {
                true => Err(why),
                false => Ok(listeners),
            }
        }
    }
}

fn listen_on(address: SocketAddr, only6: bool, backlog: u16) -> io::Result<Listener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, only6)?;
    }
    bind(&socket, &address)?;
    listen(&socket, backlog.into())?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok(Listener {
        socket,
        address: named(bound),
        _file: None,
    })
}

fn is_elsewhere(error: &io::Error) -> bool {
    let codes = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

fn named(address: SocketAddr) -> Listen {
    Listen::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

fn open_unix(path: &Path, backlog: u16) -> io::Result<Listener> {
    remove_stale(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile::of(path)?;
    open_to_all(path)?;
    listen(&socket, backlog.into())?;
    Ok(Listener {
        socket,
        address: Listen::Unix(path.into()),
        _file: Some(file),
    })
}

/// Whoever may enter the directory may connect: a proxy runs as another user.
fn open_to_all(path: &Path) -> io::Result<()> {
    // By a descriptor, so that nobody who may write to the directory can have another file changed
    // by putting a symlink there.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("somebody has replaced the socket"));
    }
    let by_number = format!("/proc/self/fd/{}", socket.as_raw_fd());
    std::fs::set_permissions(by_number, std::fs::Permissions::from_mode(0o666))
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        // Whatever else is there is not ours: binding to it fails, and says why.
        _ => return Ok(()),
    }
    // Without waiting for one that listens but does not accept.
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// The address of a client, for the log.
pub(crate) fn peer_name(address: Option<SocketAddrAny>) -> String {
    match address.map(SocketAddr::try_from) {
        // What came by IPv4 to a socket of both families is written as IPv4.
        Some(Ok(address)) => address.ip().to_canonical().to_string(),
        _ => "-".into(),
    }
}

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn tcp(host: &str) -> Listen {
        Listen::Tcp {
            host: host.into(),
            port: 0,
        }
    }

    #[test]
    fn port_zero_is_replaced_by_the_bound_port() {
        for host in ["127.0.0.1", "localhost", "*", "*4", "!4"] {
            let listeners = open(&tcp(host), 5).unwrap();
            assert!(!listeners.is_empty());
            for listener in listeners {
                let Listen::Tcp { port, .. } = listener.address else {
                    panic!("not TCP");
                };
                assert_ne!(port, 0);
            }
        }
    }

    #[test]
    fn port_in_use_error_names_the_address() {
        let first = open(&tcp("127.0.0.1"), 5).unwrap();
        let error = open(&first[0].address, 5).unwrap_err().to_string();
        assert!(error.contains(&first[0].address.to_string()), "{error}");
    }

    #[test]
    fn socket_file_of_a_later_server_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let first = open(&Listen::Unix(path.clone()), 5).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = open(&Listen::Unix(path.clone()), 5).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_stale_socket_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let address = Listen::Unix(dir.path().join("socket"));
        let Listen::Unix(path) = &address else {
            panic!("not a path");
        };
        // As one that was killed leaves it.
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        assert!(path.exists());
        let again = open(&address, 5).unwrap();
        assert!(open(&address, 5).is_err(), "somebody listens");
        drop(again);
        assert!(!path.exists());
        std::fs::write(path, "somebody's file").unwrap();
        assert!(open(&address, 5).is_err());
        assert!(path.exists());
    }
}
