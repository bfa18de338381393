//! `floe nix-store`: the operations of nix-store, also under its name.

mod adding;
pub(crate) mod args;
mod checks;
mod contents;
mod gc;
mod log;
pub(crate) mod page;
mod paths;
mod query;
mod query_args;
mod realise;
mod registration;
mod serve;

use anyhow::bail;
use clap::Parser as _;

use super::{Cli, Command};
use args::NixStoreArgs;

/// The function of an operation.
type Operation = fn(&NixStoreArgs) -> anyhow::Result<()>;

pub(crate) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    args.check()?;
    let operations: [(bool, Operation); 21] = [
        (args.serve, serve::run),
        (args.realise, realise::run),
        (args.query, query::run),
        (args.gc, gc::collect),
        (args.delete, gc::delete),
        (args.dump, contents::dump),
        (args.restore, contents::restore),
        (args.add, adding::add),
        (args.add_fixed, adding::add_fixed),
        (args.print_fixed_path, adding::print_fixed_path),
        (args.export, contents::export),
        (args.import, contents::import),
        (args.dump_db, registration::dump),
        (args.load_db, registration::load),
        (args.register_validity, registration::register),
        (args.verify, checks::verify),
        (args.verify_path, checks::verify_paths),
        (args.repair_path, checks::repair_paths),
        (args.check_validity, checks::check_validity),
        (args.optimise, optimise),
        (args.read_log, log::run),
    ];
    match operations.into_iter().find(|(is_chosen, _)| *is_chosen) {
        Some((_, run)) => run(args),
        None => bail!("cannot do anything: no operation is named; try --help"),
    }
}

/// Does what `floe optimise` does.
fn optimise(args: &NixStoreArgs) -> anyhow::Result<()> {
    let mut line: Vec<String> = ["floe", "optimise"].map(Into::into).into();
    push_store(args, &mut line);
    match Cli::try_parse_from(line)?.command {
        Command::Optimise(optimise) => super::optimise::run(&optimise),
        _ => bail!("floe optimise is another command"),
    }
}

/// Appends the options that choose the store, and the settings.
fn push_store(args: &NixStoreArgs, line: &mut Vec<String>) {
    if let Some(root) = &args.local.root {
        line.extend(["--root".into(), root.display().to_string()]);
    }
    if let Some(store) = &args.local.store {
        line.extend(["--store".into(), store.clone()]);
    }
    for (name, value) in args.options.pairs() {
        line.extend(["--option", name, value].map(Into::into));
    }
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-store";
