//! `floe nix`: commands of `nix` that no other command of floe has, also under its name.

pub(crate) mod args;
mod config_show;
pub(crate) mod page;
mod path_info;
mod store_info;

use std::io::Write as _;

use anyhow::bail;
use floe_transfer::PathSpec;

use crate::store_choice::LocalStore;
use args::{DumpPathArgs, NixCommand};

pub(crate) fn run(command: &NixCommand) -> anyhow::Result<()> {
    match command {
        NixCommand::PathInfo(args) => path_info::run(args),
        NixCommand::StoreInfo(args) => store_info::run(args),
        NixCommand::StoreDumpPath(args) => dump_path(args),
        NixCommand::ConfigShow(args) => config_show::run(args),
    }
}

/// Writes the NAR of a path of a local store.
fn dump_path(args: &DumpPathArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let texts = [args.path.clone()];
    let followed = store.settings.follow_links(&texts, &[&*store.config])?;
    let dir = &store.layout.store_dir;
    let PathSpec::Path(path) = PathSpec::parse(&followed[0], dir)? else {
        bail!("cannot use {}: it is not a whole store path", args.path);
    };
    let reader = store.open()?;
    if !reader.is_valid(&path)? {
        bail!("path '{}' is not valid", dir.full_path(&path));
    }
    let mut output = std::io::stdout().lock();
    reader.dump::<anyhow::Error>(&path, &mut |chunk| Ok(output.write_all(chunk)?))?;
    Ok(output.flush()?)
}

/// The name of the program.
pub(super) const NAME: &str = "nix";
