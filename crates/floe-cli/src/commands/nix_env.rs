//! `floe nix-env`: the operations of nix-env with profiles, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_store::{Generation, Profile, StoreWriter};
use floe_transfer::{Cancel, PathSpec};

use super::profile::{self, parse_specs};
use crate::default_profile::DefaultProfile;
use crate::display::eprint_line;
use crate::hosting;
use crate::options;
use crate::store_choice::LocalStore;
use args::NixEnvArgs;

pub(crate) fn run(args: &NixEnvArgs) -> anyhow::Result<()> {
    let store = LocalStore::find(&args.store)?;
    let at = match &args.profile {
        Some(path) => Profile::at(path)?,
        None => DefaultProfile::find(&store.layout, &store.settings)?.profile,
    };
    if args.list_generations {
        return profile::print_generations(&at);
    }
    if let Some(path) = &args.set {
        return set(args, &store, (&at, path));
    }
    if args.rollback || args.switch_generation.is_some() {
        return switch(args, &store, &at);
    }
    let specs = [parse_specs(&args.delete_generations)?];
    let deleted = if args.dry_run {
        at.find_deletable(&specs)?
    } else {
        at.delete(&specs, &options::lock_wait(Default::default()))?
    };
    for generation in deleted {
        let verb = if args.dry_run {
            "would remove"
        } else {
            "removing"
        };
        eprint_line(format_args!("{verb} profile version {}", generation.number));
    }
    Ok(())
}

/// Makes a path the newest generation. Fetches it first if substituters have it.
fn set(args: &NixEnvArgs, store: &LocalStore, (at, text): (&Profile, &str)) -> anyhow::Result<()> {
    let layout = &store.layout;
    let arguments = [text.to_owned()];
    let followed = store.settings.follow_links(&arguments, &[&*store.config])?;
    let spec = PathSpec::parse(&followed[0], &layout.store_dir)?;
    let PathSpec::Path(path) = spec else {
        bail!("cannot set {text}: it is not a whole store path");
    };
    let profile = Profile::check(layout, at.path())?;
    if args.dry_run {
        return Ok(());
    }
    let config = store
        .settings
        .store(args.store.local.choice(), StoreAccess::Write)?;
    hosting::ensure_valid(&config, &store.settings, &path)?;
    let writer = StoreWriter::open_with(
        layout.clone(),
        &store.settings.write_options(&Cancel::default())?,
    )?;
    writer.set_profile(&profile, &path)?;
    Ok(())
}

fn switch(args: &NixEnvArgs, store: &LocalStore, at: &Profile) -> anyhow::Result<()> {
    if args.dry_run {
        bail!("cannot use --dry-run here: floe nix-env --list-generations shows the generations");
    }
    let lock_wait = options::lock_wait(Default::default());
    let accept = |_: &Generation| Ok::<(), anyhow::Error>(());
    let to = args.switch_generation;
    let (before, now) = at.switch(&store.layout, to, &lock_wait, accept)?;
    eprint_line(format_args!(
        "switching profile from version {} to {now}",
        before.unwrap_or_default()
    ));
    Ok(())
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-env";
