//! The programs and closures that the rows need beside floe.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use floe_bench::machine;

use crate::args::{GivenPeer, GivenServer};
use crate::corpus::Corpus;
use crate::serve::NIX_SERVE;
use crate::{nix, programs};

/// A peer with its version, or the reason why it is absent.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) version: Result<String, String>,
}

/// All peers, present and absent ones.
pub(super) fn all(root: &Path, given: &[GivenPeer]) -> Vec<Peer> {
    let newest = nix::newest(root);
    let mut peers = vec![program(
        "nix",
        newest.map(|bin| bin.join("nix")),
        "--version",
    )];
    peers.extend(TOOLS.iter().map(|(name, package, option)| {
        let found = programs::installed(name, package);
        program(name, found, option)
    }));
    let versitygw = programs::versitygw(root);
    peers.push(program("versitygw", versitygw, "--version"));
    peers.push(program("harmonia", programs::harmonia(), "--version"));
    peers.push(peer(NIX_SERVE, nix_serve(given)));
    for (name, names) in CLOSURES {
        let corpus = Corpus::find(root, names);
        peers.push(peer(name, corpus.map(|corpus| corpus.root)));
    }
    peers
}

/// Programs with their packages and the option that prints the version. The installed Nix is the
/// older one, if there is a newer one.
const TOOLS: [(&str, &str, &str); 12] = [
    ("nix-store", "nix-bin", "--version"),
    ("nginx", "nginx", "-v"),
    ("tar", "tar", "--version"),
    ("xz", "xz-utils", "--version"),
    ("zstd", "zstd", "--version"),
    ("wrk", "wrk", "-v"),
    ("curl", "curl", "--version"),
    ("openssl", "openssl", "version"),
    ("rclone", "rclone", "version"),
    ("sshd", "openssh-server", "-V"),
    ("c++", "g++", "--version"),
    ("mkfs.ext4", "e2fsprogs", "-V"),
];

const CLOSURES: [(&str, &[&str]); 3] = [
    ("closure of firefox", &["firefox", "firefox-esr"]),
    ("closure of kdenlive", &["kdenlive"]),
    ("closure of curl", &["curl"]),
];

/// The command that starts nix-serve.
fn nix_serve(given: &[GivenPeer]) -> Result<String> {
    let given = given.iter().find(|peer| peer.name == NIX_SERVE);
    match given.map(|peer| &peer.server) {
        Some(GivenServer::Command(command)) => Ok(command.clone()),
        _ => bail!("not given with --peer-command nix-serve='…'"),
    }
}

fn program(name: &'static str, path: Result<PathBuf>, option: &str) -> Peer {
    let version = path.map(|path| {
        let line = machine::first_line(Command::new(path).arg(option));
        line.unwrap_or_else(|| "version not known".into())
    });
    peer(name, version)
}

fn peer(name: &'static str, version: Result<String>) -> Peer {
    Peer {
        name,
        version: version.map_err(|error| format!("{error:#}")),
    }
}
