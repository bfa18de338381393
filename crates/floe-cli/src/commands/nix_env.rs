//! `floe nix-env`: the operations of nix-env with profiles, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_store::{Generation, GenerationSpec, Generations, Profile, StoreError, StoreWriter};
use floe_transfer::{Cancel, PathSpec};

use super::profile::{self, parse_specs};
use crate::default_profile::DefaultProfile;
use crate::display::eprint_line;
use crate::exit::UsageError;
use crate::hosting;
use crate::options;
use crate::store_choice::LocalStore;
use args::NixEnvArgs;

pub(crate) fn run(args: &NixEnvArgs) -> anyhow::Result<()> {
    let store = LocalStore::find(&args.store)?;
    let (at, default) = match &args.profile {
        Some(path) => (Profile::at(path)?, None),
        None => {
            let default = DefaultProfile::find(&store.layout, &store.settings)?;
            (default.profile.clone(), Some(default))
        }
    };
    // A profile without generations is as good as any other for nix-env.
    let generations = match at.generations() {
        Err(StoreError::NoProfile { .. }) => Generations::default(),
        generations => generations?,
    };
    if args.list_generations {
        return profile::print_lines(&generations.all, generations.current);
    }
    if let Some(path) = &args.set {
        return set(args, &store, (&at, default.as_ref()), path);
    }
    if args.rollback || args.switch_generation.is_some() {
        return switch(args, &store, (&at, &generations));
    }
    delete(args, &at, &generations)
}

/// Deletes generations. nix-env ignores numbers that do not exist.
fn delete(args: &NixEnvArgs, at: &Profile, generations: &Generations) -> anyhow::Result<()> {
    let mut spec = parse_specs(&args.delete_generations)?;
    if let GenerationSpec::Numbers(numbers) = &mut spec {
        let all = &generations.all;
        numbers.retain(|number| all.iter().any(|it| it.number == *number));
    }
    if generations.all.is_empty() {
        return Ok(());
    }
    let (deleted, verb) = if args.dry_run {
        (at.find_deletable(&[spec])?, "would remove")
    } else {
        let lock_wait = options::lock_wait(Default::default());
        (at.delete(&[spec], &lock_wait)?, "removing")
    };
    for generation in deleted {
        eprint_line(format_args!("{verb} profile version {}", generation.number));
    }
    Ok(())
}

/// Makes a path the newest generation. Fetches it first if substituters have it.
fn set(
    args: &NixEnvArgs,
    store: &LocalStore,
    (at, default): (&Profile, Option<&DefaultProfile>),
    text: &str,
) -> anyhow::Result<()> {
    let layout = &store.layout;
    let arguments = [text.to_owned()];
    let followed = store.settings.follow_links(&arguments, &[&*store.config])?;
    let spec = PathSpec::parse(&followed[0], &layout.store_dir)?;
    let PathSpec::Path(path) = spec else {
        bail!("cannot set {text}: it is not a whole store path");
    };
    let profile = Profile::check(layout, at.path())?;
    if let Some(default) = default {
        default.check(layout)?;
    }
    if args.dry_run {
        return Ok(());
    }
    let config = store
        .settings
        .store(args.store.local.choice(), StoreAccess::Write)?;
    if config.facts().daemon_socket.is_some() {
        bail!(UsageError(
            "cannot set a profile through a daemon: floe makes profiles only in a store that this \
             user may write; try floe install --out-link"
                .into()
        ));
    }
    let options = store.settings.write_options(&Cancel::default())?;
    let writer = StoreWriter::open_with(layout.clone(), &options)?;
    // No collection deletes the path between the look at it and the new generation.
    writer.add_temp_roots([&path].into_iter())?;
    writer.wait_for_gc()?;
    hosting::ensure_valid(&config, &store.settings, &path)?;
    writer.set_profile(&profile, &path)?;
    default.map_or(Ok(()), DefaultProfile::make_link)
}

fn switch(
    args: &NixEnvArgs,
    store: &LocalStore,
    (at, generations): (&Profile, &Generations),
) -> anyhow::Result<()> {
    let to = args.switch_generation;
    if args.dry_run
        && let Some(target) = generations.target(to)
    {
        report_switch(generations.current, target.number);
        return Ok(());
    }
    let lock_wait = options::lock_wait(Default::default());
    let accept = |_: &Generation| Ok::<(), anyhow::Error>(());
    let (before, now) = at.switch(&store.layout, to, &lock_wait, accept)?;
    report_switch(before, now);
    Ok(())
}

fn report_switch(before: Option<u64>, now: u64) {
    eprint_line(format_args!(
        "switching profile from version {} to {now}",
        before.unwrap_or_default()
    ));
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-env";
