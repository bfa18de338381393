//! The options of nix-store.

use std::path::PathBuf;

use anyhow::bail;
use clap::{ArgAction, ArgGroup, Args, ColorChoice, ValueHint};
use floe_config::ByteSize;

use super::query_args::QueryArgs;
use crate::args::{LocalStoreArgs, OptionArgs, parse_freed};

/// Options of `floe nix-store`, which are those of Nix's command.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("operation").required(true))]
pub(crate) struct NixStoreArgs {
    /// Serve the store over standard input and output, to a client that uses ssh://
    #[arg(long, group = "operation")]
    pub(crate) serve: bool,
    /// With --serve, let the client add paths
    #[arg(long)]
    pub(crate) write: bool,
    /// Fetch paths, or outputs of derivations, unless they are valid
    #[arg(long, short = 'r', visible_alias = "realize", group = "operation")]
    pub(crate) realise: bool,
    /// With --realise, make a link to each path, which is a root
    #[arg(long, value_name = "LINK", value_hint = ValueHint::AnyPath)]
    pub(crate) add_root: Option<PathBuf>,
    /// Has no effect: all links are indirect roots
    #[arg(long, requires = "add_root")]
    pub(crate) indirect: bool,
    /// Print no paths
    #[arg(long)]
    pub(crate) no_output: bool,
    /// With --realise, tell on stderr what would be fetched, and fetch nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --realise, skip paths that no substituter has, and print none
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// Do not warn of paths without a root
    #[arg(long)]
    pub(crate) no_gc_warning: bool,
    /// Print facts of paths
    #[arg(long, short = 'q', group = "operation")]
    pub(crate) query: bool,
    #[command(flatten)]
    pub(crate) queries: QueryArgs,
    /// Delete paths that no root keeps
    #[arg(long, group = "operation")]
    pub(crate) gc: bool,
    /// With --gc, print the roots instead
    #[arg(long)]
    pub(crate) print_roots: bool,
    /// With --gc, print the paths that stay instead
    #[arg(long, conflicts_with = "print_roots")]
    pub(crate) print_live: bool,
    /// With --gc, print the paths that no root keeps instead
    #[arg(long, conflicts_with_all = ["print_roots", "print_live"])]
    pub(crate) print_dead: bool,
    /// With --gc, end after this number of bytes is free
    #[arg(long, value_name = "BYTES", value_parser = parse_freed, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["print_roots", "print_live", "print_dead"])]
    pub(crate) max_freed: Option<ByteSize>,
    /// Delete these paths if nothing keeps them
    #[arg(long, group = "operation")]
    pub(crate) delete: bool,
    /// With --delete, delete paths although roots keep them
    #[arg(long)]
    pub(crate) ignore_liveness: bool,
    /// Write a file or directory as a NAR to standard output
    #[arg(long, group = "operation")]
    pub(crate) dump: bool,
    /// Unpack a NAR from standard input to a path that does not exist
    #[arg(long, group = "operation")]
    pub(crate) restore: bool,
    /// Add files or directories to the store, and print their paths
    #[arg(long, group = "operation")]
    pub(crate) add: bool,
    /// Add files, as --add does, under the paths of fixed-output derivations; the first argument is
    /// the hash algorithm
    #[arg(long, group = "operation")]
    pub(crate) add_fixed: bool,
    /// Print the path of the output of a fixed-output derivation, from algorithm, hash and name
    #[arg(long, group = "operation")]
    pub(crate) print_fixed_path: bool,
    /// With --add-fixed and --print-fixed-path, the hash is that of a NAR
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Write paths with their facts to standard output, for --import
    #[arg(long, group = "operation")]
    pub(crate) export: bool,
    /// Add the paths that --export has written, from standard input
    #[arg(long, group = "operation")]
    pub(crate) import: bool,
    /// Print the rows of paths, or of all of them, for --load-db
    #[arg(long, group = "operation")]
    pub(crate) dump_db: bool,
    /// Register paths, whose files are in the store, by the rows of --dump-db on standard input
    #[arg(long, group = "operation")]
    pub(crate) load_db: bool,
    /// Register paths, whose files are in the store, by rows without hashes on standard input
    #[arg(long, group = "operation")]
    pub(crate) register_validity: bool,
    /// With --register-validity, also register valid paths
    #[arg(long)]
    pub(crate) reregister: bool,
    /// With --register-validity, the rows have hashes
    #[arg(long)]
    pub(crate) hash_given: bool,
    /// Find paths that are missing on disk
    #[arg(long, group = "operation")]
    pub(crate) verify: bool,
    /// With --verify, also compare the contents of paths with their hashes
    #[arg(long)]
    pub(crate) check_contents: bool,
    /// With --verify, fetch damaged paths again
    #[arg(long)]
    pub(crate) repair: bool,
    /// Compare the contents of paths with their hashes
    #[arg(long, group = "operation")]
    pub(crate) verify_path: bool,
    /// Fetch paths again
    #[arg(long, group = "operation")]
    pub(crate) repair_path: bool,
    /// Check that paths are valid
    #[arg(long, group = "operation")]
    pub(crate) check_validity: bool,
    /// With --check-validity, print the paths that are not valid
    #[arg(long)]
    pub(crate) print_invalid: bool,
    /// Replace equal files by hard links
    #[arg(long, visible_alias = "optimize", group = "operation")]
    pub(crate) optimise: bool,
    /// Print the build logs of paths
    #[arg(long, short = 'l', group = "operation")]
    pub(crate) read_log: bool,
    /// Also read paths from standard input
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Store paths, or links to them
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// Print only warnings and errors
    #[arg(long, conflicts_with = "verbose", help_heading = "Output")]
    quiet: bool,
    /// Print a line for each path; given twice, also for each query and transfer
    #[arg(long, short, action = ArgAction::Count, help_heading = "Output")]
    verbose: u8,
    /// Use colors on stderr [default: auto]
    #[arg(long, value_name = "WHEN", help_heading = "Output")]
    color: Option<ColorChoice>,
}

impl NixStoreArgs {
    /// Checks that each option belongs to the chosen operation. clap does not report an option
    /// without its operation if another operation excludes that one.
    ///
    /// Errors: the option and its operation.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let fact = self.queries.first_used();
        let options: [Owned; 17] = [
            (self.write, "--write", self.serve, "--serve"),
            self.of_realise(self.add_root.is_some(), "--add-root"),
            self.of_realise(self.no_output, "--no-output"),
            self.of_realise(self.dry_run, "--dry-run"),
            self.of_realise(self.ignore_unknown, "--ignore-unknown"),
            (fact.is_some(), fact.unwrap_or_default(), self.query, QUERY),
            (self.print_roots, "--print-roots", self.gc, GC),
            (self.print_live, "--print-live", self.gc, GC),
            (self.print_dead, "--print-dead", self.gc, GC),
            (self.max_freed.is_some(), "--max-freed", self.gc, GC),
            (
                self.ignore_liveness,
                "--ignore-liveness",
                self.delete,
                DELETE,
            ),
            (self.check_contents, "--check-contents", self.verify, VERIFY),
            (self.repair, "--repair", self.verify, VERIFY),
            (
                self.print_invalid,
                "--print-invalid",
                self.check_validity,
                VALIDITY,
            ),
            (
                self.recursive,
                "--recursive",
                self.add_fixed || self.print_fixed_path,
                FIXED,
            ),
            (
                self.reregister,
                "--reregister",
                self.register_validity,
                REGISTER,
            ),
            (
                self.hash_given,
                "--hash-given",
                self.register_validity,
                REGISTER,
            ),
        ];
        let misplaced = options
            .iter()
            .find(|(is_set, _, has_operation, _)| *is_set && !has_operation);
        match misplaced {
            Some((_, option, _, operation)) => {
                bail!("cannot use {option} here: it belongs to {operation}")
            }
            None => Ok(()),
        }
    }

    fn of_realise(&self, is_set: bool, option: &'static str) -> Owned {
        (is_set, option, self.realise, "--realise")
    }
}

/// Whether an option is set, the option, whether its operation is chosen, and the operation.
type Owned = (bool, &'static str, bool, &'static str);

// The operations that own options.
const QUERY: &str = "--query";
const GC: &str = "--gc";
const DELETE: &str = "--delete";
const VERIFY: &str = "--verify";
const VALIDITY: &str = "--check-validity";
const FIXED: &str = "--add-fixed and --print-fixed-path";
const REGISTER: &str = "--register-validity";
