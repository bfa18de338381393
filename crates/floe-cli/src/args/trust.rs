//! The keys that a command trusts.

use clap::Args;

/// Which paths of a cache are trusted.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Trusted signatures")]
pub(crate) struct TrustArgs {
    /// Trust these keys instead of the configured ones, separated by spaces
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) trusted_public_keys: Option<String>,
    /// Trust this key instead of the configured ones; may be repeated
    #[arg(long, value_name = "NAME:KEY")]
    pub(crate) trusted_public_key: Vec<String>,
    /// Trust these keys in addition, separated by spaces
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) extra_trusted_public_keys: Vec<String>,
    /// Accept paths without a trusted signature
    #[arg(long)]
    pub(crate) no_check_sigs: bool,
}
