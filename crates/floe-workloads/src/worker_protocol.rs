//! The workload with the worker protocol: a client and a daemon exchange path infos and NARs.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use floe_format::{PathInfo, StoreDir};
use floe_wire::worker::{Reply, Request, ServerEvent, ServerInfo, ServerSession, Version};
use floe_wire::{ClientEvent, ClientSession, Protocol, frames};

use crate::Work;
use crate::inputs::{TreeShape, nar, path_info};

/// Sends requests of a client to a daemon, and its replies back.
pub(crate) fn exchange(_: &Path) -> Result<Work> {
    let infos: Vec<PathInfo> = (0..COUNT).map(path_info).collect::<Result<_>>()?;
    let nar = nar(&TREE);
    Ok(Box::new(move || {
        let exchange = Exchange { infos, nar };
        let (replies, added) = exchange.serve(&exchange.requests())?;
        ensure!(
            added == COUNT * exchange.nar.len(),
            "{added} bytes were added"
        );
        exchange.read(&replies)
    }))
}

struct Exchange {
    infos: Vec<PathInfo>,
    nar: Vec<u8>,
}

impl Exchange {
    fn client(&self, output: &mut Vec<u8>) -> ClientSession {
        ClientSession::new(Protocol::Worker, StoreDir::default(), output)
    }

    /// Returns the requests for each path: one for its metadata, one that adds it, and one for its
    /// NAR.
    fn requests_of(info: &PathInfo) -> [Request; 3] {
        [
            Request::QueryPathInfo(info.path.clone()),
            Request::AddToStoreNar {
                info: Box::new(info.clone()),
                repair: false,
                dont_check_sigs: false,
            },
            Request::NarFromPath(info.path.clone()),
        ]
    }

    /// Returns the bytes of the client.
    fn requests(&self) -> Vec<u8> {
        let (mut output, dir) = (Vec::new(), StoreDir::default());
        self.client(&mut output);
        for request in self.infos.iter().flat_map(Exchange::requests_of) {
            // The protocol has each of these requests.
            let _is_known = request.write(&mut output, &dir);
            if request.has_frames() {
                for chunk in self.nar.chunks(CHUNK_LEN) {
                    output.extend_from_slice(&frames::header(chunk.len()));
                    output.extend_from_slice(chunk);
                }
                output.extend_from_slice(&frames::END);
            }
        }
        output
    }

    /// Returns the bytes of the daemon, and the number of bytes of the added NARs.
    fn serve(&self, requests: &[u8]) -> Result<(Vec<u8>, usize)> {
        let version = Version {
            major: 1,
            minor: 37,
        };
        let mut server = ServerSession::new(StoreDir::default(), ServerInfo::default(), version);
        let (mut output, mut added, mut queried) = (Vec::new(), 0, 0);
        for piece in requests.chunks(CHUNK_LEN) {
            server.space()[..piece.len()].copy_from_slice(piece);
            server.fill(piece.len());
            while let Some(event) = server.next_event(&mut output)? {
                match event {
                    ServerEvent::Opened(_) => {}
                    ServerEvent::Data(data) => added += data.len(),
                    ServerEvent::DataEnd => server.reply(&Reply::Added, &mut output),
                    ServerEvent::Request(Request::QueryPathInfo(_)) => {
                        let info = Box::new(self.infos[queried].clone());
                        queried += 1;
                        server.reply(&Reply::PathInfo(Some(info)), &mut output);
                    }
                    ServerEvent::Request(Request::NarFromPath(_)) => {
                        server.reply(&Reply::Nar, &mut output);
                        output.extend_from_slice(&self.nar);
                    }
                    ServerEvent::Request(Request::AddToStoreNar { .. }) => {}
                    ServerEvent::Request(other) => bail!("the daemon reads {other:?}"),
                }
            }
        }
        Ok((output, added))
    }

    /// Reads the bytes of the daemon.
    fn read(&self, replies: &[u8]) -> Result<()> {
        let mut client = self.client(&mut Vec::new());
        for request in self.infos.iter().flat_map(Exchange::requests_of) {
            client.expect(request.reply_kind());
        }
        let (mut infos, mut len) = (self.infos.iter(), 0);
        for piece in replies.chunks(CHUNK_LEN) {
            client.space()[..piece.len()].copy_from_slice(piece);
            client.fill(piece.len());
            while let Some(event) = client.next_event()? {
                match event {
                    ClientEvent::Replied(Reply::PathInfo(info)) => {
                        ensure!(info.as_deref() == infos.next(), "a path info has changed");
                    }
                    ClientEvent::NarData(data) => len += data.len(),
                    ClientEvent::Failed(error) => bail!("{}", error.message),
                    _ => {}
                }
            }
        }
        ensure!(client.is_idle(), "a reply is missing");
        ensure!(len == COUNT * self.nar.len(), "{len} bytes of NARs arrive");
        Ok(())
    }
}

/// The number of paths.
const COUNT: usize = 500;

/// The tree of each path: small, so that its metadata counts as well.
const TREE: TreeShape = TreeShape {
    directories: 1,
    files_per_directory: 8,
    file_len_max: 1000,
};

/// The length of a piece on the connection, in bytes. The sessions have space for it.
const CHUNK_LEN: usize = 4096;
