//! `floe uninstall`: removes roots, so that a later collection frees what only they keep.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use floe_format::{StorePath, sum_of_sizes};
use floe_store::{
    GenerationSpec, IndirectGcRoot, Profile, Root, StoreLayout, StoreReader, Unreadable,
    is_trusted_owner,
};
use floe_transfer::{PathSpec, Size};
use serde_json::json;

use crate::display::{Verbosity, eprint_line, is_verbose, warn};
use crate::exit::UsageError;
use crate::links::StoreNames;
use crate::messages::{counted, escaped};
use crate::options;
use crate::path_names::{ambiguous, has_name};
use crate::root_links::{link_path, profile_generation, warn_of_skipped_rows, warn_of_unreadable};
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::UninstallArgs;

/// A root to remove.
enum Removal {
    Link(PathBuf),
    Generation(Profile, u64),
    /// The only generation of a profile, with the profile.
    Profile(Profile),
}

pub(crate) fn run(args: &UninstallArgs) -> anyhow::Result<()> {
    let local = LocalStore::find(&args.store)?;
    let store = local.open()?;
    let found = store.find_roots(local.config.facts().runtime_roots)?;
    warn_of_unreadable(found.unreadable.iter().filter(|it| {
        // The paths of processes change only the size that a collection would free.
        let is_process = matches!(
            it,
            Unreadable::Processes(_) | Unreadable::HiddenProcesses | Unreadable::NoProc
        );
        !is_process || is_verbose(Verbosity::Paths)
    }));
    let mut chosen: BTreeSet<&Root> = BTreeSet::new();
    for name in &args.names {
        chosen.extend(choose(&store, &found.roots, name)?);
    }
    let removals = chosen.iter().map(|root| Ok((*root, removal(root)?)));
    let removals = removals.collect::<anyhow::Result<Vec<_>>>()?;
    let mut removed = BTreeSet::new();
    let mut failure = Ok(());
    let mut ended_profiles = Vec::new();
    for (root, removal) in &removals {
        failure = if args.dry_run {
            Ok(())
        } else {
            remove(store.layout(), root, removal)
        };
        if failure.is_err() {
            break;
        }
        removed.insert(*root);
        if let Removal::Profile(profile) = removal {
            ended_profiles.push(profile.path().display());
        }
    }
    // Also if a later one failed.
    if failure.is_ok() || !removed.is_empty() {
        report(args, &store, &found.roots, &removed)?;
    }
    let verb = verb(args);
    for profile in ended_profiles {
        eprint_line(format_args!(
            "{verb} the profile {}: it has no other generation",
            escaped(&profile)
        ));
    }
    failure
}

/// Returns the roots that a name means.
fn choose<'a>(store: &StoreReader, roots: &'a [Root], name: &str) -> anyhow::Result<Vec<&'a Root>> {
    let links: Vec<&Root> = roots
        .iter()
        .filter(|it| link_path(&it.place).is_some())
        .collect();
    let link = Path::new(name);
    let identity = identity(link);
    let is_link = |root: &&&Root| {
        let place = link_path(&root.place);
        let generation = profile_generation(&root.place).filter(|it| it.is_current);
        let profile = generation.as_ref().map(|it| it.profile.path());
        let places = [place.map(PathBuf::as_path), profile];
        let mut identities = places.into_iter().flatten().map(self::identity);
        identity.is_some() && identities.any(|it| it == identity)
    };
    let named: Vec<&Root> = links.iter().filter(is_link).copied().collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let layout = store.layout();
    // The real place of a path stands for the path.
    let real = std::path::absolute(name).ok();
    let real = real.and_then(|place| StoreNames::from(layout).in_store(&place));
    let name = real.as_deref().unwrap_or(name);
    let of_path = |path: &StorePath| -> Vec<&Root> {
        links
            .iter()
            .filter(|it| it.path == *path)
            .copied()
            .collect()
    };
    if let Ok(path) = PathSpec::parse(name, &layout.store_dir) {
        let path = path.find_in_store(store)?;
        if of_path(&path).is_empty() {
            let path = layout.store_dir.full_path(&path);
            bail!(
                "cannot uninstall {path}: no link and no profile keeps it; floe roots --why {path} \
                 shows what else does"
            );
        }
        return own_links(name, of_path(&path));
    }
    if name.is_empty() {
        bail!(UsageError(
            "cannot uninstall \"\": the name is empty; try floe list, which shows the names".into()
        ));
    }
    if name.contains('/') {
        bail!(
            "cannot uninstall {name:?}: it is not a root of this store; floe list shows the links, \
             and a store path removes all links to it"
        );
    }
    let with_name: BTreeSet<&StorePath> = links
        .iter()
        .map(|root| &root.path)
        .filter(|path| has_name(path, name))
        .collect();
    match Vec::from_iter(with_name.iter().copied()).as_slice() {
        [] => bail!(
            "cannot uninstall {name}: no root or profile keeps a path of this name; floe list \
             shows all"
        ),
        [path] => own_links(name, of_path(path)),
        _ => bail!(ambiguous("uninstall", name, &with_name, layout)),
    }
}

/// Returns the links that root or this user owns. Links of other users, and those whose owner is
/// not known because their file system is not mounted, are removed only by their own names.
fn own_links<'a>(name: &str, roots: Vec<&'a Root>) -> anyhow::Result<Vec<&'a Root>> {
    let is_own = |root: &&Root| {
        let link = link_path(&root.place).and_then(|link| fs::symlink_metadata(link).ok());
        link.is_some_and(|found| is_trusted_owner(found.uid()))
    };
    let (own, foreign): (Vec<&Root>, Vec<&Root>) = roots.into_iter().partition(is_own);
    let links = foreign.iter().map(|root| root.place.to_string());
    let links = Vec::from_iter(links).join(", ");
    if own.is_empty() {
        bail!(
            "cannot uninstall {name}: only links of other users, or on file systems that are not \
             mounted, keep it; to remove one, name it: {links}"
        );
    }
    if !foreign.is_empty() {
        warn(format_args!(
            "skipping links of other users, or on file systems that are not mounted, which still \
             keep the path: {links}"
        ));
    }
    Ok(own)
}

/// Returns a name of a link that does not depend on links to its directory. The file system of the
/// directory may not be mounted.
fn identity(link: &Path) -> Option<PathBuf> {
    let link = std::path::absolute(link).ok()?;
    let directory = link.parent()?;
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
    Some(directory.join(link.file_name()?))
}

fn removal(root: &Root) -> anyhow::Result<Removal> {
    if let Some(generation) = profile_generation(&root.place) {
        let count = generation.profile.generations()?.all.len();
        return match (generation.is_current, count) {
            (false, _) => Ok(Removal::Generation(generation.profile, generation.number)),
            (true, 1) => Ok(Removal::Profile(generation.profile)),
            (true, _) => bail!(
                "cannot remove generation {} of {profile}: it is the current one; switch to \
                 another one first (floe profile rollback --profile {profile})",
                generation.number,
                profile = generation.profile.path().display()
            ),
        };
    }
    match link_path(&root.place) {
        Some(link) => Ok(Removal::Link(link.clone())),
        None => bail!(
            "cannot uninstall {}: it is not a link; end the process that uses the path",
            root.place
        ),
    }
}

fn remove(layout: &StoreLayout, root: &Root, removal: &Removal) -> anyhow::Result<()> {
    let lock_wait = options::lock_wait(Default::default());
    match removal {
        Removal::Link(link) => IndirectGcRoot::remove(layout, link, &root.path)?,
        Removal::Generation(profile, number) => {
            let spec = GenerationSpec::Numbers([*number].into());
            profile.delete(&[spec], &lock_wait)?;
        }
        Removal::Profile(profile) => profile.remove(layout, &root.path, &lock_wait)?,
    }
    Ok(())
}

fn verb(args: &UninstallArgs) -> &'static str {
    if args.dry_run {
        "would remove"
    } else {
        "removed"
    }
}

/// Prints the removed links, and what a collection would free.
fn report(
    args: &UninstallArgs,
    store: &StoreReader,
    roots: &[Root],
    removed: &BTreeSet<&Root>,
) -> anyhow::Result<()> {
    let targets: Vec<StorePath> = roots.iter().map(|root| root.path.clone()).collect();
    let graph = store.reference_graph(&targets)?;
    warn_of_skipped_rows(store);
    let kept = roots.iter().filter(|root| !removed.contains(root));
    let freed = graph.only_in(
        removed.iter().map(|root| &root.path),
        kept.map(|root| &root.path),
    );
    let (paths, bytes) = (
        freed.len(),
        sum_of_sizes(freed.iter().map(|it| it.nar_size())),
    );
    let dir = &store.layout().store_dir;
    if args.store.json {
        let removed = removed.iter();
        let removed = removed.map(
            |root| json!({ "root": root.place.to_string(), "path": dir.full_path(&root.path) }),
        );
        return print(json!({
            "removed": removed.collect::<Vec<_>>(),
            "unreferencedPaths": paths,
            "unreferencedNarBytes": bytes,
        }));
    }
    let verb = verb(args);
    for root in removed {
        let (place, path) = (escaped(&root.place), dir.full_path(&root.path));
        print(format_args!("{verb} {place} -> {path}"))?;
    }
    eprint_line(match paths {
        0 => "a collection would free no more than before: other roots keep all paths".to_owned(),
        paths => format!(
            "a collection would free {} ({}) that nothing else keeps",
            counted(paths, "path"),
            Size(bytes)
        ),
    });
    Ok(())
}
