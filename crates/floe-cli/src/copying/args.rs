//! The arguments of a copy, and the options that they mean.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use floe_copy::{CopyRequest, reuse_directory};
use floe_transfer::{CopyOptions, Reuse, ReuseBy};

use crate::args::{LogArgs, OptionArgs, OutputArgs, TrustArgs, parse_count};
use crate::options::Settings;

/// How a copy is done and shown.
#[derive(Debug, Default, Args)]
pub(crate) struct TransferArgs {
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
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
    /// Make LINK a link to the path and a GC root; the second of several paths gets LINK-1, and so
    /// on
    #[arg(value_hint = ValueHint::AnyPath, long, short, value_name = "LINK")]
    pub(crate) out_link: Option<PathBuf>,
    /// Make the path the newest generation of this profile [default: that of nix-env, to which
    /// ~/.nix-profile leads]
    #[arg(value_hint = ValueHint::AnyPath, long, value_name = "LINK", num_args = 0..=1)]
    pub(crate) profile: Option<Option<PathBuf>>,
    /// Write a timeline of every path to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print where the time went at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Unpack at most this many paths at once [default: chosen for the processor]
    #[arg(long, short, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Show what would be copied, and copy nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Start even if the target's file system lacks space for everything
    #[arg(long)]
    pub(crate) no_check_space: bool,
    /// Compare the files of binary caches with the FileHash of their narinfos, too
    #[arg(long)]
    pub(crate) check_file_hash: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl TransferArgs {
    /// Returns the options of the arguments and the settings, and the others of the request.
    pub(super) fn options(
        &self,
        settings: &Settings,
        request: &CopyRequest,
    ) -> anyhow::Result<CopyOptions> {
        let target = &*request.target;
        // The setting does not concern a binary cache, but the flag is an error there.
        let optimise_by_config =
            *settings.config.auto_optimise_store.get() && target.layout().is_some();
        Ok(CopyOptions {
            trusted_keys: settings.trusted_keys(&self.trust)?,
            check_signatures: settings.check_signatures(&self.trust, target),
            jobs: self.jobs,
            reuse: self.reuse(settings)?,
            optimise: self.optimise || optimise_by_config,
            dry_run: self.dry_run,
            closure_limit: settings.closure_limit(),
            check_space: !self.no_check_space,
            check_file_hash: self.check_file_hash,
            ..request.options.clone()
        })
    }

    /// Returns the stores of `--reuse`. A directory of store paths without a database counts as
    /// one.
    fn reuse(&self, settings: &Settings) -> anyhow::Result<Reuse> {
        let directories = self.reuse.iter();
        let directories = directories.map(|text| {
            let store = settings.source(text)?;
            Ok(reuse_directory(&*store, text, &settings.context)?)
        });
        Ok(Reuse {
            directories: directories.collect::<anyhow::Result<_>>()?,
            by: self.reuse_by.unwrap_or_default(),
        })
    }
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
