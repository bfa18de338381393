//! `nix-store --realise`: fetches paths and outputs of derivations, and makes roots.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_daemon::{HostError, MissingPaths};
use floe_format::{StoreDir, StorePath};
use floe_store::{IndirectGcRoot, StoreWriter};
use floe_transfer::Cancel;

use super::args::NixStoreArgs;
use super::paths::Paths;
use crate::display::{eprint_error, eprint_line, warn};
use crate::exit::{AlreadyReported, UsageError};
use crate::hosting;
use crate::nix_sizes::render_size;
use crate::stdout::print;
use crate::store_choice::LocalStore;

pub(super) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let mut wanted = Paths::read(args, &store)?.into_wanted();
    let config = store
        .settings
        .store(args.local.choice(), StoreAccess::Write)?;
    if config.facts().daemon_socket.is_some() {
        return print_valid(args, &store, &wanted);
    }
    let hosted = hosting::open(&config, &store.settings, true)?;
    if args.dry_run || args.ignore_unknown {
        let mut missing = floe_daemon::find_missing(&hosted, &texts(&store, &wanted))?;
        if args.ignore_unknown {
            wanted.retain(|(path, _)| !missing.unknown.contains(path));
            missing.unknown.clear();
        }
        print_missing(&missing, &store.layout.store_dir);
        if args.dry_run {
            return Ok(());
        }
    }
    let texts = texts(&store, &wanted);
    let realised = match floe_daemon::realise(&hosted, &texts) {
        // The code by which Nix reports a failed build.
        Err(error @ HostError::CannotBuild(_)) => {
            eprint_error(error);
            bail!(AlreadyReported(BUILD_FAILED));
        }
        realised => realised?,
    };
    if args.ignore_unknown {
        // Nix prints no paths and makes no roots then.
        return Ok(());
    }
    if args.add_root.is_none() && !args.no_gc_warning {
        warn(
            "you did not specify '--add-root'; the result might be removed by the garbage \
             collector",
        );
    }
    let options = store.settings.write_options(&Cancel::default())?;
    let writer = StoreWriter::open_with(store.layout.clone(), &options)?;
    let mut roots = Roots::new(args)?;
    for ((path, _), outputs) in wanted.into_iter().zip(realised) {
        roots.count += 1;
        let mut outputs: Vec<(String, StorePath)> = outputs.into_iter().collect();
        if outputs.is_empty() {
            outputs.push(("out".into(), path));
        }
        // Nix prints each line of an argument once, and sorts them.
        let mut lines = BTreeSet::new();
        for (name, path) in &outputs {
            lines.insert(match roots.link_for(name) {
                None => store.layout.store_dir.full_path(path),
                Some(link) => {
                    let root = IndirectGcRoot::check(&store.layout, &link)?;
                    writer.add_gc_root(&root, path)?;
                    root.path().display().to_string()
                }
            });
        }
        if !args.no_output {
            lines.iter().try_for_each(print)?;
        }
    }
    Ok(())
}

/// Returns the paths with the names of their outputs.
fn texts(store: &LocalStore, wanted: &[(StorePath, String)]) -> Vec<String> {
    let dir = &store.layout.store_dir;
    let texts = wanted
        .iter()
        .map(|(path, outputs)| dir.full_path(path) + outputs);
    texts.collect()
}

/// Tells on stderr what a realisation would do, in Nix's words (`printMissing`).
fn print_missing(missing: &MissingPaths, dir: &StoreDir) {
    let print_paths = |paths: &mut dyn Iterator<Item = &StorePath>| {
        paths.for_each(|path| eprint_line(format_args!("  {}", dir.full_path(path))));
    };
    match missing.will_build.len() {
        0 => {}
        1 => eprint_line("this derivation will be built:"),
        count => eprint_line(format_args!("these {count} derivations will be built:")),
    }
    print_paths(&mut missing.will_build.iter());
    let sizes = || {
        let (download, nar) = (missing.download_size, missing.nar_size);
        let (download, nar) = (render_size(download), render_size(nar));
        format!("will be fetched ({download} download, {nar} unpacked):")
    };
    match missing.will_substitute.len() {
        0 => {}
        1 => eprint_line(format_args!("this path {}", sizes())),
        count => eprint_line(format_args!("these {count} paths {}", sizes())),
    }
    let mut fetched: Vec<&StorePath> = missing.will_substitute.iter().collect();
    fetched.sort_by_key(|path| (path.name(), *path));
    print_paths(&mut fetched.into_iter());
    if !missing.unknown.is_empty() {
        eprint_line("don't know how to build these paths:");
    }
    print_paths(&mut missing.unknown.iter());
}

/// Prints paths of a store that this user may not write. All of them must be valid.
fn print_valid(
    args: &NixStoreArgs,
    store: &LocalStore,
    wanted: &[(StorePath, String)],
) -> anyhow::Result<()> {
    let reader = store.open()?;
    let mut are_printable = args.add_root.is_none();
    for (path, outputs) in wanted {
        let is_path = outputs.is_empty() && !path.is_derivation();
        are_printable = are_printable && is_path && reader.is_valid(path)?;
    }
    if !are_printable {
        bail!(UsageError(
            "cannot write the store of another user: try floe install, which uses the daemon of \
             this machine"
                .into()
        ));
    }
    if args.no_output || args.dry_run || args.ignore_unknown {
        return Ok(());
    }
    let dir = &store.layout.store_dir;
    wanted
        .iter()
        .try_for_each(|(path, _)| print(dir.full_path(path)))
}

/// The links that `--add-root` makes.
struct Roots {
    link: Option<PathBuf>,
    /// The number of the current path.
    count: usize,
}

impl Roots {
    fn new(args: &NixStoreArgs) -> anyhow::Result<Roots> {
        let link = args.add_root.as_ref().map(std::path::absolute);
        Ok(Roots {
            link: link.transpose()?,
            count: 0,
        })
    }

    /// Returns the link to an output. All but the first path have a number, and all outputs but
    /// `out` their names.
    fn link_for(&self, output: &str) -> Option<PathBuf> {
        let mut link = self.link.clone()?.into_os_string();
        if self.count > 1 {
            link.push(format!("-{}", self.count));
        }
        if output != "out" {
            link.push(format!("-{output}"));
        }
        Some(link.into())
    }
}

/// The exit code of Nix after a failed build.
const BUILD_FAILED: u8 = 100;
