//! The options of `floe link-names`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Options of `floe link-names`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkNamesArgs {
    /// The directory of the links, such as /usr/local/bin, which sshd searches for programs
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}
