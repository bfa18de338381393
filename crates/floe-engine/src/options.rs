//! What a caller chooses, as plain values. Nothing here is read from files or the environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{PublicKey, StorePath, TrustedKeys};

use crate::cancel::Cancel;
use crate::error::Error;
use crate::events::NetworkEvents;
use crate::proxies::Proxies;

/// Choices of one move.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Keys whose signature makes a path welcome.
    pub trusted_keys: TrustedKeys,
    /// Whether a path into a local store needs a signature or a content address.
    pub check_signatures: bool,
    /// How many paths are unpacked or packed at once; what suits the machine where it is not said.
    pub jobs: Option<NonZeroUsize>,
    /// Whether equal files of a local store become one, by links in `.links`
    /// (`auto-optimise-store`).
    pub optimise: bool,
    /// Other stores of this machine, from which paths are taken that they have.
    pub reuse: Reuse,
    /// Resolve and plan only.
    pub dry_run: bool,
    /// Whether a move is refused that the target's file system has no room for.
    pub check_space: bool,
    /// Raised from outside to end the move soon.
    pub cancel: Cancel,
}

impl Default for CopyOptions {
    /// Everything is checked, nobody is trusted yet, and nothing is linked or taken from elsewhere.
    fn default() -> CopyOptions {
        CopyOptions {
            trusted_keys: TrustedKeys::default(),
            check_signatures: true,
            jobs: None,
            optimise: false,
            reuse: Reuse::default(),
            dry_run: false,
            check_space: true,
            cancel: Cancel::default(),
        }
    }
}

/// Other stores on this machine, and how files come from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Directories whose entries are store paths, in the order in which they are looked at.
    pub directories: Vec<PathBuf>,
    /// What files become.
    pub by: ReuseBy,
}

impl Reuse {
    /// Returns where a path lies in the other stores.
    pub(crate) fn local_copies(&self, path: &StorePath) -> Vec<PathBuf> {
        let copies = self.directories.iter().map(|dir| dir.join(path.as_str()));
        copies
            .filter(|place| place.symlink_metadata().is_ok())
            .collect()
    }
}

/// What the files of a path become that is taken from another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseBy {
    /// Clones that share blocks with the originals, or copies where the file system has no clones.
    #[default]
    Reflink,
    /// The originals themselves, where they are as a store has them, else clones or copies.
    HardLink,
    /// Copies.
    Copy,
}

/// How caches are asked over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Certificates to trust for TLS instead of the system's, in PEM (`ssl-cert-file`).
    pub certificates: Option<PathBuf>,
    /// Files with user names and passwords for hosts (`netrc-file`); the first that names a host
    /// counts, and one that is not there, or cannot be used, is passed over.
    pub netrc: Vec<PathBuf>,
    /// Requests in flight at once to a cache over HTTP/1.1, which are as many connections
    /// (`http-connections`); 0 is 1.
    pub connections: usize,
    /// How long a host may take to accept a connection (`connect-timeout`).
    pub connect_timeout: Option<Duration>,
    /// How long nothing may arrive before a request is given up (`stalled-download-timeout`).
    pub stall_timeout: Duration,
    /// How often a request is made in all before it has failed (`download-attempts`).
    pub attempts: u32,
    /// Whether HTTP/2 is offered to servers behind TLS (`http2`).
    pub http2: bool,
    /// What is appended to the name that servers are told (`user-agent-suffix`).
    pub user_agent_suffix: String,
    /// Through whom caches are asked.
    pub proxies: Proxies,
    /// Where answers are remembered from one move to the next, if anywhere.
    pub narinfo_disk_cache: Option<NarInfoDiskCacheOptions>,
    /// Who hears of requests that are made again.
    pub events: NetworkEvents,
}

/// Where answers of caches are remembered, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfoDiskCacheOptions {
    /// The SQLite file; it and its directory are made where they are not there.
    pub file: PathBuf,
    /// How long a narinfo counts (`narinfo-cache-positive-ttl`).
    pub positive_ttl: Duration,
    /// How long it counts that a cache lacks a path (`narinfo-cache-negative-ttl`).
    pub negative_ttl: Duration,
    /// How long it counts what a cache says of itself (`narinfo-cache-meta-ttl`).
    pub meta_ttl: Duration,
}

impl NarInfoDiskCacheOptions {
    /// Nix's own times.
    pub fn new(file: PathBuf) -> NarInfoDiskCacheOptions {
        NarInfoDiskCacheOptions {
            file,
            positive_ttl: Duration::from_secs(30 * 24 * 3600),
            negative_ttl: Duration::from_secs(3600),
            meta_ttl: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

impl Default for NetworkOptions {
    /// Nix's own defaults.
    fn default() -> NetworkOptions {
        NetworkOptions {
            certificates: None,
            netrc: Vec::new(),
            connections: 25,
            connect_timeout: Some(Duration::from_secs(15)),
            stall_timeout: Duration::from_secs(300),
            attempts: 5,
            http2: true,
            user_agent_suffix: String::new(),
            proxies: Proxies::default(),
            narinfo_disk_cache: None,
            events: NetworkEvents::default(),
        }
    }
}

/// The keys in `texts`; if there is no text, the one that Nix trusts without configuration. A text
/// may hold several, separated by white space, or none.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn trusted_keys<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<TrustedKeys, Error> {
    let mut texts = texts.into_iter().peekable();
    let default = texts.peek().is_none().then_some(CACHE_NIXOS_ORG_KEY);
    parse_public_keys(default.into_iter().chain(texts))
}

/// Parses public keys. A text may hold several, separated by white space.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn parse_public_keys<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<TrustedKeys, Error> {
    let words = texts.into_iter().flat_map(str::split_ascii_whitespace);
    let parse = |word: &str| {
        PublicKey::parse(word).map_err(|_| {
            let name = word.split(':').next().unwrap_or_default().into();
            Error::InvalidPublicKey { name }
        })
    };
    words.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use floe_format::SecretKey;

    use super::*;

    #[test]
    fn own_keys_replace_default_and_extra_keys_add() {
        let own = SecretKey::from_seed("own-1", [7; 32]).unwrap().public();
        let own = own.to_string();
        let names = |keys: TrustedKeys| keys.names().map(String::from).collect::<Vec<_>>();
        assert_eq!(names(trusted_keys([]).unwrap()), ["cache.nixos.org-1"]);
        assert_eq!(names(trusted_keys([&*own]).unwrap()), ["own-1"]);
        let mut both = trusted_keys([]).unwrap();
        both.extend(parse_public_keys([&*own]).unwrap());
        assert_eq!(names(both), ["cache.nixos.org-1", "own-1"]);
        // Somebody who says "none" trusts nobody.
        assert!(trusted_keys([" "]).unwrap().is_empty());
    }

    #[test]
    fn public_key_error_hides_secret_key() {
        let secret = SecretKey::from_seed("own-1", [7; 32]).unwrap().to_text();
        let error = trusted_keys([&*secret]).unwrap_err().to_string();
        assert!(error.contains("\"own-1\""), "{error}");
        let (_, key) = secret.split_once(':').unwrap();
        assert!(!error.contains(key), "{error}");
    }
}
