//! The errors of a server that cannot start.

mod tls_error;

use std::io;
use std::path::PathBuf;

use floe_store::StoreError;

pub use tls_error::TlsError;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {}", listen_failure(address, source))]
    Listen {
        /// The address as it was given.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or directory of the server's own cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// A verb with its object, such as `read the cache`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of the logins cannot be used.
    #[error("cannot use the login file {}: {reason}", path.display())]
    LoginFile {
        /// The file.
        path: PathBuf,
        /// The cause, with the number of the line.
        reason: String,
    },
    /// The system refuses something that every server needs.
    #[error("cannot {action}: {source}")]
    System {
        /// A verb with its object, such as `start a thread`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A network thread has panicked, which is a fault of floe.
    #[error("cannot serve any longer: a network thread has panicked; please report it")]
    ThreadPanic,
    /// Two settings contradict each other. The text says which.
    #[error("{0}")]
    Config(&'static str),
}

/// Returns the cause and the remedy of a failure to listen.
fn listen_failure(address: &str, source: &io::Error) -> String {
    let text = source.to_string();
    let number = source.raw_os_error();
    let number = number.map_or(String::new(), |code| format!(" (os error {code})"));
    let cause = text.strip_suffix(&number).unwrap_or(&text);
    match (source.kind(), address.starts_with("unix:")) {
        (io::ErrorKind::AddrInUse, false) => {
            "another process uses this port; try another port".into()
        }
        (io::ErrorKind::AddrInUse, true) => {
            "a server or another file is in its place; try another path".into()
        }
        (io::ErrorKind::PermissionDenied, false) => format!(
            "{cause}; try a port above 1023, or run floe as root or with CAP_NET_BIND_SERVICE"
        ),
        (io::ErrorKind::PermissionDenied, true) => {
            format!("{cause}; try a directory that this user may write")
        }
        _ => cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn message(address: &str, errno: Errno) -> String {
        let (address, source) = (address.into(), errno.into());
        ServeError::Listen { address, source }.to_string()
    }

    #[test]
    fn failure_to_listen_names_a_remedy_without_number() {
        let in_use = message("*:5000", Errno::ADDRINUSE);
        assert!(in_use.contains("try another port"), "{in_use}");
        let low = message("*:80", Errno::ACCESS);
        assert!(
            low.contains("Permission denied; try a port above 1023"),
            "{low}"
        );
        let socket = message("unix:/s", Errno::ADDRINUSE);
        assert!(socket.contains("try another path"), "{socket}");
        let closed = message("unix:/s", Errno::ACCESS);
        assert!(closed.contains("try a directory"), "{closed}");
        let other = message("host:1", Errno::ADDRNOTAVAIL);
        assert!(
            other.ends_with("Cannot assign requested address"),
            "{other}"
        );
        for message in [in_use, low, socket, closed, other] {
            assert!(!message.contains("os error"), "{message}");
        }
    }
}
