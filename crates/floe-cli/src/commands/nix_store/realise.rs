//! `nix-store --realise`: fetches paths and outputs of derivations, and makes roots.

use std::path::PathBuf;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_daemon::{HostError, HostedStore};
use floe_format::StorePath;
use floe_store::{IndirectGcRoot, StoreWriter};
use floe_transfer::Cancel;

use super::args::NixStoreArgs;
use super::paths::Paths;
use crate::display::{eprint_error, warn};
use crate::exit::{AlreadyReported, UsageError};
use crate::hosting;
use crate::stdout::print;
use crate::store_choice::LocalStore;

pub(super) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let wanted = Paths::read(args, &store)?.into_wanted();
    let mut roots = Roots::new(args)?;
    let config = store
        .settings
        .store(args.local.choice(), StoreAccess::Write)?;
    if config.facts().daemon_socket.is_some() {
        bail!(UsageError(
            "cannot write the store of another user: try floe install, which uses the daemon of \
             this machine"
                .into()
        ));
    }
    let hosted = hosting::open(&config, &store.settings, true)?;
    let mut realised = Vec::new();
    for (path, outputs) in &wanted {
        let full = store.layout.store_dir.full_path(path);
        realised.push(realise(&hosted, path, &format!("{full}{outputs}"))?);
    }
    if roots.link.is_none() && !args.no_gc_warning {
        warn(
            "you did not specify '--add-root'; the result might be removed by the garbage \
             collector",
        );
    }
    let options = store.settings.write_options(&Cancel::default())?;
    let writer = StoreWriter::open_with(store.layout.clone(), &options)?;
    for outputs in realised {
        roots.count += 1;
        for (name, path) in outputs {
            let full = store.layout.store_dir.full_path(&path);
            let line = match roots.link_for(&name) {
                None => full,
                Some(link) => {
                    let root = IndirectGcRoot::check(&store.layout, &link)?;
                    writer.add_gc_root(&root, &path)?;
                    root.path().display().to_string()
                }
            };
            if !args.no_output {
                print(line)?;
            }
        }
    }
    Ok(())
}

/// Fetches a path, or outputs of a derivation. Returns them with the names of outputs; the name of
/// a path is `out`.
fn realise(
    hosted: &HostedStore,
    path: &StorePath,
    text: &str,
) -> anyhow::Result<Vec<(String, StorePath)>> {
    match floe_daemon::realise(hosted, text) {
        Ok(outputs) if outputs.is_empty() => Ok(vec![("out".into(), path.clone())]),
        Ok(outputs) => Ok(outputs.into_iter().collect()),
        // A derivation would have to be built: the code by which Nix reports a failed build.
        Err(error @ HostError::Refused(_)) if path.is_derivation() => {
            eprint_error(error);
            bail!(AlreadyReported(BUILD_FAILED));
        }
        Err(error) => Err(error.into()),
    }
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
