//! The worker protocol: the messages between a client and the Nix daemon.
//!
//! 1. The client sends [`CLIENT_MAGIC`] and its version, the daemon [`SERVER_MAGIC`] and its own.
//!    Both continue with the lower version.
//! 2. The client sends two numbers without a meaning today. The daemon sends its name and whether
//!    it trusts the client ([`ServerInfo`]), and then a message that ends its start.
//! 3. The client sends requests. The daemon replies in their order. Before each reply it may send
//!    messages of its log; the last of them says whether the request failed.
//!
//! floe offers version 1.37, because version 1.38 adds only features, for whose names the client
//! would have to wait. The daemon reads requests in order, so the client sends many before it reads
//! the first reply, and needs no request that asks for many things at once.
//!
//! A floe on both sides has two more operations: [`Request::Compress`] and
//! [`Request::QueryClosureInfos`]. The client sees by the name of the daemon whether it has them.

pub(crate) mod derivation;
mod log_message;
pub(crate) mod path_info;
mod path_stream;
pub(crate) mod realisation;
mod reply;
mod request;
mod server;

pub(crate) use log_message::ERROR;
pub use log_message::{DaemonError, Field, LogMessage};
pub use path_stream::{PathStream, PathStreamEvent};
pub use reply::{BuildResult, MissingPaths, Reply, ReplyKind, SubstitutableInfo};
pub use request::{BuildMode, ClientOptions, GcAction, PathQuery, Request};
pub use server::{ServerEvent, ServerSession};

pub use crate::version::Version;

use crate::error::WireError;
use crate::input::{Input, TEXT_LEN_MAX};
use crate::output;

/// The facts that a daemon reports at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its own version, such as `2.34.8`, since version 1.33.
    pub nix_version: Option<String>,
    /// Whether it trusts the client, since version 1.35, if it knows that.
    pub trusts_client: Option<bool>,
}

impl ServerInfo {
    /// Whether the daemon is floe, and has its operations.
    pub fn is_floe(&self) -> bool {
        let name = self.nix_version.as_deref();
        name.is_some_and(|name| name.starts_with("floe "))
    }

    pub(crate) fn parse(input: &mut Input<'_>, version: Version) -> Result<ServerInfo, WireError> {
        let mut info = ServerInfo::default();
        if version.has_server_name() {
            let name = input.text("the version of the daemon", TEXT_LEN_MAX)?;
            info.nix_version = Some(name.to_owned());
        }
        if version.has_trust() {
            info.trusts_client = match input.number()? {
                0 => None,
                1 => Some(true),
                2 => Some(false),
                other => {
                    return Err(WireError::value(
                        "the trust",
                        other.to_string(),
                        "it is 0, 1 or 2",
                    ));
                }
            };
        }
        Ok(info)
    }

    fn write(&self, version: Version, output: &mut Vec<u8>) {
        if version.has_server_name() {
            output::text(output, self.nix_version.as_deref().unwrap_or_default());
        }
        if version.has_trust() {
            let trust = self
                .trusts_client
                .map_or(0, |is_trusted| if is_trusted { 1 } else { 2 });
            output::number(output, trust);
        }
    }
}

/// The most paths in a reply to [`Request::QueryClosureInfos`].
pub const CLOSURE_LEN_MAX: usize = 50_000;

/// The first number of a client: `nixc`.
pub const CLIENT_MAGIC: u64 = 0x6e69_7863;

/// The first number of a daemon: `dxio`.
pub const SERVER_MAGIC: u64 = 0x6478_696f;

#[cfg(test)]
mod tests;
