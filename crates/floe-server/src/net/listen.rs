//! Opens listening sockets.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr, socket_acceptconn};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    getsockname, listen, socket_with,
};

use crate::config::Listen;
use crate::error::ServeError;
use crate::http::route::RouteSet;
use crate::metrics::counters::ListenerKind;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The file of a Unix socket. It is dropped before the socket: while the socket is open, no
    /// other file can have its inode number.
    _file: Option<SocketFile>,
    pub(crate) socket: OwnedFd,
    pub(crate) address: Listen,
    /// The routes that its connections serve.
    pub(crate) routes: RouteSet,
}

/// The file of a Unix socket. Dropping this removes the file, unless another server has replaced
/// it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.into(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Listener {
    /// Returns the kind by which connections are counted.
    pub(crate) fn kind(&self) -> ListenerKind {
        match (self.routes, &self.address) {
            (RouteSet::Monitoring, _) => ListenerKind::Monitoring,
            (RouteSet::Redirect, _) => ListenerKind::Redirect,
            (_, Listen::Tcp { .. }) => ListenerKind::Tcp,
            (_, Listen::Unix(_)) => ListenerKind::Unix,
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The removal may fail: the process may have given up the rights for it.
        if let Ok(now) = std::fs::symlink_metadata(&self.path)
            && (now.dev(), now.ino()) == (self.device, self.inode)
        {
            let _: io::Result<()> = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens on an address. A name can have several addresses, so there may be several sockets.
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

/// Takes over a socket that another process, such as systemd, listens on.
///
/// Errors: [`ServeError::Listen`], if it is no socket on which a server can listen.
pub(crate) fn adopt(socket: OwnedFd) -> Result<Listener, ServeError> {
    let adopted = || -> io::Result<Listen> {
        if !socket_acceptconn(&socket)? {
            return Err(io::Error::other("nothing listens on it"));
        }
        ioctl_fionbio(&socket, true)?;
        let bound = getsockname(&socket)?;
        match SocketAddrUnix::try_from(bound.clone()) {
            Ok(unix) => {
                let path = unix.path_bytes().unwrap_or_default();
                Ok(Listen::Unix(Path::new(OsStr::from_bytes(path)).into()))
            }
            Err(_) => Ok(listen_address(SocketAddr::try_from(bound)?)),
        }
    };
    match adopted() {
        Ok(address) => Ok(Listener {
            socket,
            address,
            routes: RouteSet::All,
            // Its owner removes the file.
            _file: None,
        }),
        Err(source) => Err(ServeError::Listen {
            address: "a socket of the service manager".into(),
            source,
        }),
    }
}

fn open_tcp(host: &str, port: u16, backlog: u16) -> io::Result<Vec<Listener>> {
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let one = |address, only6| listen_on(address, only6, backlog).map(|listener| vec![listener]);
    match host {
        // One socket accepts both families, unless the system has no IPv6.
        "*" | "" => one(any6, false).or_else(|error| match error.raw_os_error() {
            Some(code) if code == Errno::AFNOSUPPORT.raw_os_error() => one(any4, true),
            _ => Err(error),
        }),
        "*4" => one(any4, true),
        "*6" => one(any6, true),
        // As in nix-serve-ng: both families, and no error if one is missing.
        "!4" | "!6" => one(any6, false).or_else(|_| one(any4, true)),
        host => {
            let mut listeners: Vec<Listener> = Vec::new();
            let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in (host, port).to_socket_addrs()? {
                let is_known = |listener: &Listener| listener.address == listen_address(address);
                if listeners.iter().any(is_known) {
                    continue;
                }
                match listen_on(address, true, backlog) {
                    Ok(listener) => listeners.push(listener),
                    // A name may have an address of a family that this system does not use.
                    Err(error) if is_unavailable(&error) => failure = error,
                    Err(error) => return Err(error),
                }
            }
            if listeners.is_empty() {
                Err(failure)
            } else {
                Ok(listeners)
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
        address: listen_address(bound),
        routes: RouteSet::All,
        _file: None,
    })
}

fn is_unavailable(error: &io::Error) -> bool {
    let codes = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

fn listen_address(address: SocketAddr) -> Listen {
    let host = match address {
        // A link-local address means nothing without its zone.
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            format!("{}%{}", address.ip(), address.scope_id())
        }
        address => address.ip().to_string(),
    };
    Listen::Tcp {
        host,
        port: address.port(),
    }
}

fn open_unix(path: &Path, backlog: u16) -> io::Result<Listener> {
    remove_stale(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile::new(path)?;
    allow_all_users(path)?;
    listen(&socket, backlog.into())?;
    Ok(Listener {
        socket,
        address: Listen::Unix(path.into()),
        routes: RouteSet::All,
        _file: Some(file),
    })
}

/// Allows every user who may enter the directory to connect, since a proxy runs as another user.
fn allow_all_users(path: &Path) -> io::Result<()> {
    // This uses a descriptor. With a path, another user of the directory could put a symlink there
    // and have the mode of its target changed.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("another process has replaced the socket"));
    }
    let by_number = format!("/proc/self/fd/{}", socket.as_raw_fd());
    std::fs::set_permissions(by_number, std::fs::Permissions::from_mode(0o666))
}

/// Removes a socket on which no process listens any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        // Any other file is kept. To bind to its path fails, and tells the reason.
        _ => return Ok(()),
    }
    // The socket is non-blocking, since another server may listen but not accept.
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Returns the address of a client. A client on a Unix socket has none.
pub(crate) fn peer_address(address: Option<SocketAddrAny>) -> Option<IpAddr> {
    let address = SocketAddr::try_from(address?).ok()?;
    // On a socket for both families, an IPv4 client has an IPv6 address.
    Some(address.ip().to_canonical())
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
    fn link_local_address_keeps_its_zone() {
        let address = "[fe80::1%3]:80".parse().unwrap();
        assert_eq!(listen_address(address).to_string(), "[fe80::1%3]:80");
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
        // A server that was killed leaves such a file.
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        assert!(path.exists());
        let again = open(&address, 5).unwrap();
        assert!(open(&address, 5).is_err(), "a server listens");
        drop(again);
        assert!(!path.exists());
        std::fs::write(path, "another file").unwrap();
        assert!(open(&address, 5).is_err());
        assert!(path.exists());
    }
}
