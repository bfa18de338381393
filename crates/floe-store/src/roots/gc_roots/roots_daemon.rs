//! The paths that running processes use, from Nix's roots daemon (gc.cc, `requestRuntimeRoots`).
//!
//! A collector that is not root cannot read all of `/proc`. The daemon can, and sends full paths,
//! each with a zero byte after it.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use floe_format::StoreDir;

use super::root_place::{Candidate, RootPlace};
use crate::disk::StoreLayout;
use crate::error::{IoContext as _, StoreError};

/// Asks the roots daemon of a store.
///
/// Errors: there is no daemon, or its reply is not complete.
pub(super) fn roots(layout: &StoreLayout) -> Result<Vec<Candidate>, StoreError> {
    let socket = layout.state_dir.join("gc-roots-socket/socket");
    let reply = confirmed_reply(&socket).io_context("ask the roots daemon at", &socket)?;
    let parsed = parse(&reply, &layout.store_dir, &socket);
    parsed.io_context("read the reply of the roots daemon at", &socket)
}

/// Asks twice. A daemon that dies closes its connections in the same way as after a complete
/// reply, so the first reply counts only if the daemon can be asked once more.
fn confirmed_reply(socket: &Path) -> io::Result<Vec<u8>> {
    let mut both = reply(socket)?;
    both.extend(reply(socket)?);
    Ok(both)
}

fn reply(socket: &Path) -> io::Result<Vec<u8>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut reply = Vec::new();
    stream.take(REPLY_LEN_MAX).read_to_end(&mut reply)?;
    let is_cut = reply.len() as u64 == REPLY_LEN_MAX || !reply.ends_with(b"\0");
    if reply.is_empty() || !is_cut {
        Ok(reply)
    } else {
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "its reply is not complete",
        ))
    }
}

fn parse(reply: &[u8], dir: &StoreDir, socket: &Path) -> io::Result<Vec<Candidate>> {
    let place = RootPlace::Process(socket.to_path_buf());
    let paths = reply
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    let candidates = paths.map(|path| {
        let text = String::from_utf8_lossy(path);
        let path = dir.parse(&text);
        let path = path.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let place = place.clone();
        Ok(Candidate { place, path })
    });
    candidates.collect()
}

/// The daemon reads `/proc`, which takes less than a second even with thousands of processes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Enough for a million paths.
const REPLY_LEN_MAX: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Serves one reply for each element, then ends.
    fn confirmed(replies: &[&[u8]]) -> io::Result<Vec<u8>> {
        let scratch = floe_testkit::scratch();
        let socket = scratch.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (last, others) = replies.split_last().unwrap();
                for reply in others {
                    listener.accept().unwrap().0.write_all(reply).unwrap();
                }
                let (mut stream, _) = listener.accept().unwrap();
                drop(listener);
                stream.write_all(last).unwrap();
            });
            confirmed_reply(&socket)
        })
    }

    #[test]
    fn reply_of_a_daemon_that_ended_is_an_error() {
        for reply in [&b""[..], b"/nix/store/a\0", b"/nix/store/a"] {
            assert!(confirmed(&[reply]).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn roots_of_both_replies_are_kept() {
        let both = confirmed(&[b"/nix/store/a\0", b"/nix/store/b\0"]);
        assert_eq!(both.unwrap(), b"/nix/store/a\0/nix/store/b\0");
    }
}
