//! `nix-store --verify`, `--verify-path`, `--repair-path` and `--check-validity`.

use anyhow::bail;
use clap::Parser as _;
use floe_store::VerifyProblem;

use super::args::NixStoreArgs;
use super::paths::{Paths, not_valid};
use crate::commands::{Cli, Command};
use crate::display::eprint_error;
use crate::exit::AlreadyReported;
use crate::stdout::print;
use crate::store_choice::LocalStore;

/// Finds paths that are missing on disk, and with `--check-contents` also damaged ones.
pub(super) fn verify(args: &NixStoreArgs) -> anyhow::Result<()> {
    if !args.paths.is_empty() {
        bail!(
            "cannot verify {}: --verify takes no paths; use --verify-path",
            args.paths[0]
        );
    }
    if args.repair {
        return repair(args, Vec::new());
    }
    let store = LocalStore::of(&args.local, &args.options)?;
    let reader = store.open()?;
    if args.check_contents {
        return report(reader.verify(&[], None, &())?.problems);
    }
    let vanished = reader.vanished_paths()?;
    for path in &vanished {
        let path = store.layout.store_dir.full_path(path);
        eprint_error(format_args!(
            "path '{path}' disappeared, but it is still valid"
        ));
    }
    if vanished.is_empty() {
        Ok(())
    } else {
        Err(AlreadyReported(1).into())
    }
}

fn report(problems: Vec<VerifyProblem>) -> anyhow::Result<()> {
    problems.iter().for_each(eprint_error);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(AlreadyReported(1).into())
    }
}

/// Fetches paths again.
pub(super) fn repair_paths(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let paths = Paths::read(args, &store)?.into_paths()?;
    if paths.is_empty() {
        // Without a path, floe verify repairs the whole store.
        return Ok(());
    }
    let paths = paths
        .iter()
        .map(|path| store.layout.store_dir.full_path(path));
    repair(args, paths.collect())
}

/// Does what `floe verify --repair` does.
fn repair(args: &NixStoreArgs, paths: Vec<String>) -> anyhow::Result<()> {
    let mut line: Vec<String> = ["floe", "verify", "--repair"].map(Into::into).into();
    super::push_store(args, &mut line);
    line.push("--".into());
    line.extend(paths);
    match Cli::try_parse_from(line)?.command {
        Command::Verify(verify) => crate::commands::verify::run(verify),
        _ => bail!("floe verify is another command"),
    }
}

/// Compares the contents of paths with their hashes.
pub(super) fn verify_paths(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let reader = store.open()?;
    let paths = Paths::read(args, &store)?.into_paths()?;
    for path in &paths {
        if !reader.is_valid(path)? {
            return Err(not_valid(&store.layout.store_dir.full_path(path)));
        }
    }
    if paths.is_empty() {
        // Without a path, the reader verifies the whole store.
        return Ok(());
    }
    report(reader.verify(&paths, None, &())?.problems)
}

/// Fails at the first path that is not valid, or prints all of them.
pub(super) fn check_validity(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let reader = store.open()?;
    for path in Paths::read(args, &store)?.into_paths()? {
        if reader.is_valid(&path)? {
            continue;
        }
        let full = store.layout.store_dir.full_path(&path);
        if !args.print_invalid {
            return Err(not_valid(&full));
        }
        print(full)?;
    }
    Ok(())
}
