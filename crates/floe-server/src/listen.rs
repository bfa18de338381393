//! From addresses to listening sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname,
    listen, socket_with,
};

use crate::config::Listen;
use crate::error::ServeError;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    pub(crate) address: Listen,
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
            Some(code) if code == rustix::io::Errno::AFNOSUPPORT.raw_os_error() => one(any4, true),
            _ => Err(error),
        }),
        "*4" => one(any4, true),
        "*6" => one(any6, true),
        // "Preferred", as nix-serve-ng has it: both, and no failure if one is missing.
        "!4" | "!6" => one(any6, false).or_else(|_| one(any4, true)),
        host => {
            let mut listeners: Vec<Listener> = Vec::new();
            for address in (host, port).to_socket_addrs()? {
                let is_known = |listener: &Listener| listener.address == named(address);
                if !listeners.iter().any(is_known) {
                    listeners.push(listen_on(address, true, backlog)?);
                }
            }
            match listeners.is_empty() {
                true => Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the name has no address",
                )),
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
    })
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
    // Whoever may enter the directory may connect: a proxy runs as another user.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    listen(&socket, backlog.into())?;
    Ok(Listener {
        socket,
        address: Listen::Unix(path.into()),
    })
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        // Whatever else is there is not ours: binding to it fails, and says why.
        _ => return Ok(()),
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
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

/// Removes the sockets that stand in directories.
pub(crate) fn clean_up(addresses: &[Listen]) {
    let paths = addresses.iter().filter_map(|address| match address {
        Listen::Unix(path) => Some(path),
        Listen::Tcp { .. } => None,
    });
    let paths: Vec<&PathBuf> = paths.collect();
    for path in paths {
        // It may be gone, or this user may not remove it after giving up rights.
        let _: io::Result<()> = std::fs::remove_file(path);
    }
}

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str) -> Listen {
        Listen::Tcp {
            host: host.into(),
            port: 0,
        }
    }

    #[test]
    fn port_zero_becomes_a_real_one() {
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
    fn a_port_in_use_is_an_error_that_names_it() {
        let first = open(&tcp("127.0.0.1"), 5).unwrap();
        let error = open(&first[0].address, 5).unwrap_err().to_string();
        assert!(error.contains(&first[0].address.to_string()), "{error}");
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let address = Listen::Unix(dir.path().join("socket"));
        drop(open(&address, 5).unwrap());
        let again = open(&address, 5).unwrap();
        assert!(open(&address, 5).is_err(), "somebody listens");
        clean_up(std::slice::from_ref(&address));
        drop(again);
        let Listen::Unix(path) = &address else {
            panic!("not a path");
        };
        std::fs::write(path, "somebody's file").unwrap();
        assert!(open(&address, 5).is_err());
        assert!(path.exists());
    }
}
