//! The arguments of `floe ls`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::QueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// A path, or a file or directory in a path
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH[/FILE]")]
    pub(crate) path: String,
    /// List directories in the directory, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Show kinds, sizes and the targets of symlinks
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Show the directory itself instead of what is in it
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) directory: bool,
    /// Print the listing as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}
