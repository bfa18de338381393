//! The arguments for the files of a store.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use floe_transfer::ReuseBy;

/// How the files of a store are made.
#[derive(Debug, Default, Args)]
pub(crate) struct StoreFileArgs {
    /// Reuse paths of this store, or directory of store paths, after checking their hashes; may be
    /// repeated
    #[arg(long, value_name = "STORE")]
    pub(crate) reuse: Vec<String>,
    /// How to reuse their files [default: reflink]
    #[arg(long, value_name = "MODE", requires = "reuse", value_parser = reuse_modes())]
    pub(crate) reuse_by: Option<ReuseBy>,
    /// Replace equal files of the store by hard links, as nix-store --optimise does
    /// [default: auto-optimise-store of nix.conf]
    #[arg(long)]
    pub(crate) optimise: bool,
}

/// Returns the parser of `--reuse-by`.
fn reuse_modes() -> impl TypedValueParser<Value = ReuseBy> {
    let mode = |name, help| PossibleValue::new(name).help(help);
    PossibleValuesParser::new([
        mode(
            REFLINK,
            "As clones, if the file system supports them, else as copies",
        ),
        mode(
            HARD_LINK,
            "As hard links: a later write to a file in one of the stores changes both stores",
        ),
        mode(COPY, "As copies"),
    ])
    .map(|name| match &*name {
        HARD_LINK => ReuseBy::HardLink,
        COPY => ReuseBy::Copy,
        _ => ReuseBy::Reflink,
    })
}

const REFLINK: &str = "reflink";
const HARD_LINK: &str = "hardlink";
const COPY: &str = "copy";
