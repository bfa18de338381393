//! The serve protocol: the messages between a client and `nix-store --serve`.
//!
//! The source of the format is Nix's `serve-protocol.cc`, `serve-protocol-connection.cc` and
//! `opServe` in `nix-store.cc`. As a client, floe speaks versions 2.5 to 2.7, whose messages are
//! the same, as far as floe sends them; as the other side ([`ServerSession`]), 2.2 to 2.7. The
//! other side executes commands in order, so the client sends many before it reads a reply.

mod command;
pub mod export;
mod server;

use floe_format::{Hash, PathInfo, StoreDir, StorePath};

use crate::error::{WireError, beginning};
use crate::input::{Input, TEXT_LEN_MAX};
use crate::output;
use crate::version::Version;
use crate::worker::path_info::{
    read_content_address, read_info as read_added_info, read_optional_path, read_paths,
    read_signatures, write_info, write_paths,
};
use crate::worker::{Reply, ReplyKind, Request};

pub use command::Command;
pub use export::ImportedPath;
pub use server::{ServerEvent, ServerSession};

/// The first number of a client.
pub const CLIENT_MAGIC: u64 = 0x390c_9deb;

/// The first number of the other side.
pub const SERVER_MAGIC: u64 = 0x5452_eecb;

/// Appends the first bytes of a client.
pub(crate) fn write_greeting(output: &mut Vec<u8>) {
    output::number(output, CLIENT_MAGIC);
    output::number(output, OFFERED.to_number());
}

/// Reads the first bytes of the other side.
pub(crate) fn read_greeting(input: &mut Input<'_>) -> Result<(), WireError> {
    let magic = input.number()?;
    if magic != SERVER_MAGIC {
        let beginning = beginning(&magic.to_le_bytes());
        return Err(WireError::Magic { beginning });
    }
    let found = Version::from_number(input.number()?);
    if found.major == OFFERED.major && found >= MINIMUM {
        Ok(())
    } else {
        Err(WireError::Version {
            found,
            needed: MINIMUM,
        })
    }
}

/// Appends a request. The NAR of [`Request::AddToStoreNar`] follows without frames.
///
/// Returns `false` for a request that the protocol does not have.
#[must_use]
pub fn write_request(request: &Request, output: &mut Vec<u8>, dir: &StoreDir) -> bool {
    match request {
        Request::QueryValidPaths {
            paths,
            substitute,
            lock,
        } => {
            output::number(output, 1);
            output::boolean(output, *lock);
            output::boolean(output, *substitute);
            write_paths(output, dir, paths);
        }
        Request::QueryPathInfo(path) => {
            output::number(output, 2);
            write_paths(output, dir, &[path.clone()].into());
        }
        Request::NarFromPath(path) => {
            output::number(output, 3);
            output::text(output, dir.full_path(path));
        }
        Request::QueryClosure(paths) => {
            output::number(output, 7);
            // Without the outputs of derivations.
            output::boolean(output, false);
            write_paths(output, dir, paths);
        }
        Request::AddToStoreNar { info, .. } => {
            output::number(output, 9);
            output::text(output, dir.full_path(&info.path));
            write_info(output, info, dir);
        }
        _ => return false,
    }
    true
}

/// Reads a reply, without its NAR.
pub(crate) fn read_reply(
    input: &mut Input<'_>,
    kind: &ReplyKind,
    dir: &StoreDir,
) -> Result<Reply, WireError> {
    match kind {
        ReplyKind::PathInfo(path) => read_path_infos(input, path, dir),
        ReplyKind::Added(_) => match input.number()? {
            1 => Ok(Reply::Added),
            other => {
                let reason = "it is always 1";
                Err(WireError::value(
                    "the end of a path",
                    other.to_string(),
                    reason,
                ))
            }
        },
        other => Reply::parse(input, other, (dir, Version::OFFERED)),
    }
}

/// Reads the metadata of the paths that are valid. An empty path ends the list, which has at most
/// the requested path.
fn read_path_infos(
    input: &mut Input<'_>,
    path: &StorePath,
    dir: &StoreDir,
) -> Result<Reply, WireError> {
    let mut found = None;
    while let Some(next) = read_optional_path(input, dir)? {
        if next != *path || found.is_some() {
            let reason = "it was not requested";
            return Err(WireError::value("a store path", next.as_str(), reason));
        }
        found = Some(Box::new(read_info(input, next, dir)?));
    }
    Ok(Reply::PathInfo(found))
}

fn read_info(
    input: &mut Input<'_>,
    path: StorePath,
    dir: &StoreDir,
) -> Result<PathInfo, WireError> {
    let deriver = read_optional_path(input, dir)?;
    let references = read_paths(input, dir)?;
    // The size of a download, of which Nix knows nothing here.
    input.number()?;
    let nar_size = input.number()?;
    let hash = input.text(NAR_HASH, TEXT_LEN_MAX)?;
    let nar_hash = Hash::parse_prefixed(hash);
    let nar_hash = nar_hash.map_err(|error| WireError::value(NAR_HASH, hash, error))?;
    let ca = read_content_address(input)?;
    Ok(PathInfo {
        path,
        nar_hash,
        nar_size,
        references,
        deriver,
        signatures: read_signatures(input)?,
        ca,
        registration_time: None,
        ultimate: false,
    })
}

/// The version that floe offers: that of Nix 2.8 and later.
const OFFERED: Version = Version { major: 2, minor: 7 };

/// The oldest version that floe speaks: that of Nix 2.2, the first that takes a NAR with its
/// metadata.
const MINIMUM: Version = Version { major: 2, minor: 5 };

const NAR_HASH: &str = "the NAR hash";

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends the metadata of a path as `nix-store --serve` does.
    fn write_reply(output: &mut Vec<u8>, info: &PathInfo, dir: &StoreDir) {
        output::text(output, dir.full_path(&info.path));
        output::text(output, "");
        write_paths(output, dir, &info.references);
        output::number(output, info.nar_size);
        output::number(output, info.nar_size);
        output::text(output, info.nar_hash.to_nix32());
        output::text(output, "");
        output::number(output, 0);
    }

    fn path(digit: char) -> StorePath {
        StorePath::parse(&format!("{}-x", digit.to_string().repeat(32))).unwrap()
    }

    fn info(path: StorePath) -> PathInfo {
        PathInfo {
            nar_hash: Hash::sha256([7; 32]),
            nar_size: 5,
            references: [path.clone()].into(),
            deriver: None,
            signatures: [].into(),
            ca: None,
            registration_time: None,
            ultimate: false,
            path,
        }
    }

    #[test]
    fn path_info_is_read_and_other_paths_are_refused() {
        let dir = StoreDir::default();
        let requested = ReplyKind::PathInfo(path('1'));
        for (sent, expected) in [
            (vec![], Some(None)),
            (vec![path('1')], Some(Some(path('1')))),
            (vec![path('2')], None),
            (vec![path('1'), path('1')], None),
        ] {
            let mut bytes = Vec::new();
            for path in sent {
                write_reply(&mut bytes, &info(path), &dir);
            }
            output::text(&mut bytes, "");
            let reply = read_reply(&mut Input::new(&bytes), &requested, &dir).ok();
            let expected = expected
                .map(|path: Option<StorePath>| Reply::PathInfo(path.map(|it| Box::new(info(it)))));
            assert_eq!(reply, expected);
        }
    }

    #[test]
    fn requests_without_a_command_are_not_written() {
        let mut output = Vec::new();
        let dir = StoreDir::default();
        for request in [Request::AddTempRoot(path('1')), Request::QueryAllValidPaths] {
            assert!(!write_request(&request, &mut output, &dir));
        }
        assert!(output.is_empty());
    }
}
