//! The formats of the access log.

use clap::ValueEnum;

/// The formats of nix-serve-ng. Its help names `normal` and its parser accepts `default`, so floe
/// knows both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogFormat {
    /// No lines at all
    Quiet,
    /// Apache's common log format
    #[default]
    Default,
    /// The same as default
    Normal,
    /// Apache's format with the client address from a proxy's header
    RealIp,
    /// Method, target, status, bytes and time taken
    Verbose,
    /// The same as verbose
    Debug,
}
