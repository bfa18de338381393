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
    let reply = reply(&socket).io_context("ask the roots daemon at", &socket)?;
    let parsed = parse(&reply, &layout.store_dir, &socket);
    parsed.io_context("read the reply of the roots daemon at", &socket)
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
