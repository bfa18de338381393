//! The command line and its commands. Each command has a folder with its arguments and its manual
//! page; this file is the only one that lists them.

pub(crate) mod add;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod cat;
pub(crate) mod config;
pub(crate) mod copy;
mod copy_sigs;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod diff;
mod doctor;
pub(crate) mod du;
pub(crate) mod dump;
pub(crate) mod gc;
pub(crate) mod hash;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod key;
pub(crate) mod link_names;
mod list;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod manual;
mod nix;
mod nix_collect_garbage;
pub(crate) mod nix_copy_closure;
mod nix_daemon;
mod nix_env;
pub(crate) mod nix_names;
pub(crate) mod nix_options;
pub(crate) mod nix_serve;
mod nix_store;
pub(crate) mod optimise;
mod pages;
pub(crate) mod pin;
pub(crate) mod profile;
pub(crate) mod push;
pub(crate) mod rebuild_db;
pub(crate) mod restore;
pub(crate) mod roots;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod tree;
pub(crate) mod uninstall;
pub(crate) mod verify;
pub(crate) mod why;
pub(crate) mod why_depends;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::args::{self, LogArgs, LogFormat, OutputArgs};
use crate::page::Page;

/// Copies Nix closures between stores and binary caches, without needing Nix
#[derive(Debug, Parser)]
#[command(name = "floe", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install closures of store paths from binary caches
    Install(install::args::InstallArgs),
    /// Copy closures between stores and binary caches
    Copy(copy::args::CopyArgs),
    /// Push closures of the local store to a binary cache
    Push(Box<push::args::PushArgs>),
    /// Add files and directories to a store or binary cache
    Add(add::args::AddArgs),
    /// Run a program of a store path, after installing the path if necessary
    Run(Box<run::args::RunArgs>),
    /// Run a shell or a command with the programs of store paths in PATH
    Shell(Box<run::args::ShellArgs>),
    /// Find packages by words in their names
    Search(search::args::SearchArgs),
    /// Print the paths and NAR hashes of names, for --lock and --locked
    Lock(lock::args::LockArgs),
    /// Give a path in a binary cache a signed name
    Pin(pin::args::PinArgs),
    /// Delete the names of paths in a binary cache
    Unpin(pin::args::UnpinArgs),
    /// Show the names of paths in a binary cache
    Pins(pin::args::PinsArgs),
    /// List the paths that links and profiles keep, with their sizes
    List(list::args::ListArgs),
    /// Remove a link or a profile's entry, so that a collection can free what only it keeps
    Uninstall(uninstall::args::UninstallArgs),
    /// List the GC roots, and what each keeps
    Roots(roots::args::RootsArgs),
    /// List, switch and delete the generations of a profile
    #[command(subcommand)]
    Profile(profile::args::ProfileCommand),
    /// Delete the paths that no root keeps
    Gc(gc::args::GcArgs),
    /// Delete given paths that nothing keeps
    Delete(delete::args::DeleteArgs),
    /// Replace equal files of a store by hard links, which saves space
    #[command(visible_alias = "optimize")]
    Optimise(optimise::args::OptimiseArgs),
    /// Check a store: contents against hashes, and the database against the disk
    Verify(verify::args::VerifyArgs),
    /// Make the database of a store new from the paths on disk
    RebuildDb(rebuild_db::args::RebuildDbArgs),
    /// Show the metadata of paths in a store or binary cache
    #[command(disable_help_flag = true)]
    Info(info::args::InfoArgs),
    /// Show how large closures are, and which references make them large
    Du(du::args::DuArgs),
    /// Show the closures of paths as trees
    Tree(tree::args::TreeArgs),
    /// Show why an install of paths would succeed or fail
    Why(why::args::WhyArgs),
    /// Show the references that lead from one path to another
    WhyDepends(why_depends::args::WhyDependsArgs),
    /// Show how two closures differ
    #[command(alias = "diff-closures")]
    Diff(diff::args::DiffArgs),
    /// List the files in a path
    Ls(ls::args::LsArgs),
    /// Print files in paths
    Cat(cat::args::CatArgs),
    /// Write the NAR of a path to stdout
    #[command(alias = "dump-path")]
    Dump(dump::args::DumpArgs),
    /// Unpack a NAR from stdin outside of a store
    Restore(restore::args::RestoreArgs),
    /// Print the logs of the builds that made paths
    #[command(alias = "read-log")]
    Log(log::args::LogCommandArgs),
    /// Add signatures to paths of a binary cache or a store
    Sign(sign::args::SignArgs),
    /// Add the signatures that caches have of paths to the paths of a store or cache
    CopySigs(copy_sigs::args::CopySigsArgs),
    /// Look after a whole binary cache
    #[command(subcommand)]
    Cache(cache::args::CacheCommand),
    /// Print the hashes of files and directories, or other forms of hashes
    Hash(hash::args::HashArgs),
    /// Check the configuration, the caches, the store and the machine
    Doctor(doctor::args::DoctorArgs),
    /// Show the settings of nix.conf that floe uses, and where their values come from
    Config(config::args::ConfigArgs),
    /// Serve a live store as a binary cache over HTTP
    #[command(args_conflicts_with_subcommands = true)]
    Serve(Box<serve::args::ServeArgs>),
    /// Copy closures to or from a machine with Nix, with the options of nix-copy-closure
    #[command(version)]
    NixCopyClosure(nix_copy_closure::args::NixCopyClosureArgs),
    /// Delete dead paths, with the options of nix-collect-garbage
    #[command(version)]
    NixCollectGarbage(nix_collect_garbage::args::NixCollectGarbageArgs),
    /// Switch profiles, with the options of nix-env
    #[command(version)]
    NixEnv(nix_env::args::NixEnvArgs),
    /// Serve the store of this machine to clients of the Nix daemon, with the options of nix-daemon
    #[command(version)]
    NixDaemon(nix_daemon::args::NixDaemonArgs),
    /// Serve the store of this machine to clients that use ssh://, with the options of nix-store
    #[command(version)]
    NixStore(nix_store::args::NixStoreArgs),
    /// Query stores with commands of nix
    #[command(subcommand)]
    Nix(nix::args::NixCommand),
    /// Create links to floe under the names of Nix's programs
    LinkNames(link_names::args::LinkNamesArgs),
    /// Serve a live store with the options of nix-serve and nix-serve-ng
    #[command(display_name = "nix-serve", disable_help_flag = true)]
    NixServe {
        #[arg(
            value_name = "OPTION",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        args: Vec<OsString>,
    },
    /// Make and convert keys that sign binary caches
    #[command(subcommand)]
    Key(key::args::KeyCommand),
    /// Time programs and compare them
    #[command(subcommand)]
    Bench(bench::args::BenchCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell that will run the script
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands into a directory
    Man {
        /// Write floe.1, floe-install.1 and so on into this directory, such as
        /// ~/.local/share/man/man1
        dir: Option<PathBuf>,
    },
    /// Show floe at work: copy it into a cache, install it from there, verify and run it
    Demo {
        /// Keep all files in this directory, which must not exist yet
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Install(args) => install::run(args),
            Command::Copy(args) => copy::run(args),
            Command::Push(args) => push::run(&args),
            Command::Add(args) => add::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Shell(args) => run::shell(&args),
            Command::Search(args) => search::run(&args),
            Command::Lock(args) => lock::run(&args),
            Command::Pin(args) => pin::run(&args),
            Command::Unpin(args) => pin::unpin(&args),
            Command::Pins(args) => pin::pins(&args),
            Command::List(args) => list::run(&args),
            Command::Uninstall(args) => uninstall::run(&args),
            Command::Roots(args) => roots::run(&args),
            Command::Profile(command) => profile::run(&command),
            Command::Gc(args) => gc::run(&args),
            Command::Delete(args) => delete::run(&args),
            Command::Optimise(args) => optimise::run(&args),
            Command::Verify(args) => verify::run(args),
            Command::RebuildDb(args) => rebuild_db::run(&args),
            Command::Info(args) => info::run(args),
            Command::Du(args) => du::run(&args),
            Command::Tree(args) => tree::run(&args),
            Command::Why(args) => why::run(&args),
            Command::WhyDepends(args) => why_depends::run(&args),
            Command::Diff(args) => diff::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Dump(args) => dump::run(&args),
            Command::Restore(args) => restore::run(&args),
            Command::Log(args) => log::run(&args),
            Command::Sign(args) => sign::run(&args),
            Command::CopySigs(args) => copy_sigs::run(&args),
            Command::Cache(command) => cache::run(&command),
            Command::Hash(args) => hash::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Config(args) => config::run(&args),
            Command::Serve(mut args) => {
                args.log.log_format = args.log.log_format.or(self.log.log_format);
                serve::run(&args)
            }
            Command::NixCopyClosure(args) => nix_copy_closure::run(&args),
            Command::NixCollectGarbage(args) => nix_collect_garbage::run(&args),
            Command::NixEnv(args) => nix_env::run(&args),
            Command::NixDaemon(args) => nix_daemon::run(&args),
            Command::NixStore(args) => nix_store::run(&args),
            Command::Nix(command) => nix::run(&command),
            Command::LinkNames(args) => link_names::run(&args),
            Command::NixServe { args } => nix_serve::run(&args),
            Command::Key(command) => key::run(command),
            Command::Bench(bench::args::BenchCommand::Copy(args)) => bench::run(&args),
            Command::Completions { shell } => manual::completions(shell),
            Command::Man { dir } => manual::man(dir.as_deref()),
            Command::Demo { keep } => demo::run(keep.as_deref()),
        }
    }
}

/// Returns the command line with the examples of all commands.
pub(crate) fn command_line() -> clap::Command {
    pages::with_examples(Cli::command())
}

/// A command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) cli: Cli,
    pub(crate) output: OutputArgs,
    pub(crate) log_format: LogFormat,
}

/// Parses a command line.
///
/// Errors: those of clap, which are also the texts of `--help` and `--version`.
pub(crate) fn parse<T: Into<OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<CommandLine, clap::Error> {
    let mut command = command_line();
    let matches = command.try_get_matches_from_mut(line)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok(CommandLine {
        cli,
        output: OutputArgs::of_line(&matches),
        log_format: args::log_format(&matches),
    })
}

/// Returns random bytes of the system, for keys and tokens.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow!("cannot generate a key: the system provides no random bytes"))?;
    Ok(bytes)
}

/// The manual pages of all commands, in the order of `floe --help`.
pub(crate) const PAGES: &[&[Page]] = &[
    install::page::PAGES,
    copy::page::PAGES,
    push::page::PAGES,
    add::page::PAGES,
    run::page::PAGES,
    search::page::PAGES,
    lock::page::PAGES,
    pin::page::PAGES,
    list::page::PAGES,
    uninstall::page::PAGES,
    roots::page::PAGES,
    profile::page::PAGES,
    gc::page::PAGES,
    delete::page::PAGES,
    optimise::page::PAGES,
    verify::page::PAGES,
    rebuild_db::page::PAGES,
    info::page::PAGES,
    du::page::PAGES,
    tree::page::PAGES,
    why::page::PAGES,
    why_depends::page::PAGES,
    diff::page::PAGES,
    ls::page::PAGES,
    cat::page::PAGES,
    dump::page::PAGES,
    restore::page::PAGES,
    log::page::PAGES,
    sign::page::PAGES,
    copy_sigs::page::PAGES,
    cache::page::PAGES,
    hash::page::PAGES,
    doctor::page::PAGES,
    config::page::PAGES,
    serve::page::PAGES,
    nix_copy_closure::page::PAGES,
    nix_collect_garbage::page::PAGES,
    nix_env::page::PAGES,
    nix_daemon::page::PAGES,
    nix_store::page::PAGES,
    nix::page::PAGES,
    link_names::page::PAGES,
    nix_serve::page::PAGES,
    key::page::PAGES,
    bench::page::PAGES,
    manual::own_pages::PAGES,
    demo::page::PAGES,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::Verbosity;

    #[test]
    fn innermost_output_options_count() {
        for (line, verbosity, format) in [
            ("floe gc", Verbosity::Normal, LogFormat::Text),
            ("floe -q gc", Verbosity::Quiet, LogFormat::Text),
            ("floe -q gc -v", Verbosity::Paths, LogFormat::Text),
            (
                "floe -vv profile list",
                Verbosity::Requests,
                LogFormat::Text,
            ),
            ("floe profile list -q", Verbosity::Quiet, LogFormat::Text),
            (
                "floe --log-format json gc",
                Verbosity::Normal,
                LogFormat::Json,
            ),
            (
                "floe info --log-format json x",
                Verbosity::Normal,
                LogFormat::Json,
            ),
            (
                "floe --log-format json info --log-format text x",
                Verbosity::Normal,
                LogFormat::Text,
            ),
            (
                "floe nix-serve --log-format json",
                Verbosity::Normal,
                LogFormat::Text,
            ),
        ] {
            let parsed = parse(line.split(' ')).unwrap();
            assert_eq!(parsed.output.verbosity(), verbosity, "{line}");
            assert_eq!(parsed.log_format, format, "{line}");
        }
    }
}
