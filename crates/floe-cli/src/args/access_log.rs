//! The forms of the access log, by their names.

use clap::ValueEnum;

/// The names that nix-serve-ng has. Its help says `normal` where its parser wants `default`, so
/// both are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogFormat {
    /// No lines at all
    Quiet,
    /// Apache's common log format
    Default,
    /// The same as default
    Normal,
    /// Apache's format with the address that a proxy gives
    RealIp,
    /// Method, target, status, bytes and time taken
    Verbose,
    /// The same as verbose
    Debug,
}
