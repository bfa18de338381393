//! `floe nix-collect-garbage`: `floe gc` with the options of Nix's command, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use clap::Parser as _;

use crate::commands::{Cli, Command};
use args::NixCollectGarbageArgs;

pub(crate) fn run(args: &NixCollectGarbageArgs) -> anyhow::Result<()> {
    match Cli::try_parse_from(line(args))?.command {
        Command::Gc(mut gc) => {
            gc.delete_old = args.delete_old;
            gc.max_freed = args.max_freed;
            super::gc::run(&gc)
        }
        _ => bail!("floe gc is another command"),
    }
}

/// Returns the command line of `floe gc`.
fn line(args: &NixCollectGarbageArgs) -> Vec<String> {
    let mut line: Vec<String> = ["floe", "gc"].map(Into::into).into();
    let mut push = |words: &[&str]| line.extend(words.iter().map(|&word| word.to_owned()));
    for (option, value) in [
        ("--delete-older-than", &args.delete_older_than),
        ("--store", &args.local.store),
    ] {
        if let Some(value) = value {
            push(&[option, value]);
        }
    }
    if let Some(root) = &args.local.root {
        push(&["--root", &root.display().to_string()]);
    }
    if args.dry_run {
        push(&["--dry-run"]);
    }
    for (name, value) in args.options.pairs() {
        push(&["--option", name, value]);
    }
    line
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-collect-garbage";
