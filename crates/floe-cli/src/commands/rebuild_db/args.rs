//! The arguments of `floe rebuild-db`.

use std::num::NonZeroUsize;

use clap::Args;

use crate::args::{StoreQueryArgs, TrustArgs, parse_count};

#[derive(Debug, Args)]
pub(crate) struct RebuildDbArgs {
    /// Show what a new database would have, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also register paths without a trusted signature or a content address
    #[arg(long)]
    pub(crate) accept_unsigned: bool,
    /// Query this binary cache or store; may be repeated, and is tried in this order [default: the
    /// substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Hash at most this many paths at once [default: chosen for the processor]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}
