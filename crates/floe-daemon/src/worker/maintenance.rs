//! Roots, collections and verifications that a client of the daemon requests.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use floe_format::{Signature, StorePath};
use floe_store::{Collector, DeleteError, DeleteOptions, IndirectGcRoot, RootPlace, Signing};
use floe_wire::worker::{GcAction, Reply, Request};

use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Does what a request wants with the store as a whole. Returns `None` for another request.
///
/// Errors: those of the store; [`HostError::Forbidden`] for a client that is not trusted.
pub(super) fn execute(store: &HostedStore, request: &Request) -> Result<Option<Reply>, HostError> {
    Ok(Some(match request {
        Request::AddTempRoot(path) => {
            store
                .writer("add roots")?
                .add_temp_roots([path].into_iter())?;
            Reply::Done
        }
        Request::AddIndirectRoot(link) => {
            store
                .writer("add roots")?
                .register_gc_root(Path::new(link))?;
            Reply::Done
        }
        Request::AddPermRoot { path, link } => {
            require_trust(store, "add a root")?;
            let writer = store.writer("add roots")?;
            let root = IndirectGcRoot::check(writer.layout(), Path::new(link))?;
            writer.add_gc_root(&root, path)?;
            Reply::Text(link.clone())
        }
        Request::SyncWithGc => Reply::Done,
        Request::WaitForGc => {
            store.writer("wait for a collection")?.wait_for_gc()?;
            Reply::Collected
        }
        Request::FindRoots => find_roots(store)?,
        Request::CollectGarbage {
            action,
            paths,
            ignore_liveness,
            max_freed,
        } => {
            if *ignore_liveness {
                return Err(HostError::Forbidden {
                    action: "delete live paths".into(),
                    reason:
                        "a daemon deletes only garbage; use floe delete --ignore-liveness there"
                            .into(),
                });
            }
            let paths: Vec<_> = paths.iter().cloned().collect();
            if !paths.is_empty() && *action != GcAction::DeleteSpecific {
                return Err(HostError::Refused(
                    "cannot collect garbage among some paths: floe speaks a version of the \
                     protocol that has only a collection of all paths"
                        .into(),
                ));
            }
            collect(store, *action, (&paths, *max_freed))?
        }
        Request::OptimiseStore => {
            let writer = store.writer("link equal files")?;
            writer.optimise(None, &store.progress())?;
            Reply::Done
        }
        Request::VerifyStore {
            check_contents,
            repair,
        } => verify(store, *check_contents, *repair)?,
        Request::AddSignatures { path, signatures } => {
            let writer = store.writer("add signatures")?;
            if !store.access().is_trusted {
                check_signatures(store, path, signatures)?;
            }
            match writer.add_signatures(path, signatures)? {
                Signing::Absent => {
                    return Err(HostError::NotValid(store.store_dir().full_path(path)));
                }
                _ => Reply::Done,
            }
        }
        _ => return Ok(None),
    }))
}

fn require_trust(store: &HostedStore, action: &str) -> Result<(), HostError> {
    if store.access().is_trusted {
        return Ok(());
    }
    Err(HostError::Forbidden {
        action: action.into(),
        reason: "you are not a trusted user; ask the owner of the store for trusted-users".into(),
    })
}

/// Checks that a client that is not trusted leaves no junk in the database: every copy of the path
/// would carry it.
///
/// Errors: [`HostError::Forbidden`], [`HostError::NotValid`].
fn check_signatures(
    store: &HostedStore,
    path: &StorePath,
    signatures: &BTreeSet<Signature>,
) -> Result<(), HostError> {
    let mut info = store.valid_path_info(path)?;
    info.signatures.extend(signatures.iter().cloned());
    let access = store.access();
    if info.drop_junk_signatures(store.store_dir(), &access.trusted_keys) == 0 {
        return Ok(());
    }
    Err(HostError::Forbidden {
        action: format!("add signatures to {path}"),
        reason: "you are not a trusted user, and some are invalid, or those by other keys than \
                 trusted ones are too long together"
            .into(),
    })
}

/// Returns the roots. Only a trusted client learns where those of processes are, as from Nix.
fn find_roots(store: &HostedStore) -> Result<Reply, HostError> {
    let found = store.reader().find_roots(store.gc_settings.runtime_roots)?;
    let roots = found.roots.into_iter().map(|root| {
        let is_shown = store.access().is_trusted || matches!(root.place, RootPlace::Link(_));
        let place = if is_shown {
            root.place.to_string()
        } else {
            "{censored}".into()
        };
        (place, root.path)
    });
    Ok(Reply::Roots(roots.collect()))
}

fn collect(
    store: &HostedStore,
    action: GcAction,
    (paths, max_freed): (&[StorePath], u64),
) -> Result<Reply, HostError> {
    let (reader, settings) = (store.reader(), &store.gc_settings);
    let dir = store.store_dir();
    let garbage = || -> Result<Vec<String>, HostError> {
        let found = reader
            .find_garbage(settings, &HashSet::new())?
            .dead
            .into_iter();
        let names = found.map(|dead| format!("{dir}/{}", dead.name.to_string_lossy()));
        Ok(names.collect())
    };
    let (paths, bytes) = match action {
        GcAction::ReturnLive => {
            let live = reader.find_garbage(settings, &HashSet::new())?.live;
            (live.iter().map(|path| dir.full_path(path)).collect(), 0)
        }
        GcAction::ReturnDead => (garbage()?, 0),
        GcAction::DeleteDead => {
            let dead = garbage()?;
            let collector = Collector::open(reader.layout().clone(), &store.write_options)?;
            let limit = Some(max_freed).filter(|max| *max < u64::MAX);
            let (results, collected) = collector.collect(settings, limit, &store.progress());
            collected?;
            let count = usize::try_from(results.paths).unwrap_or(usize::MAX);
            (dead.into_iter().take(count).collect(), results.bytes_freed)
        }
        GcAction::DeleteSpecific => {
            let collector = Collector::open(reader.layout().clone(), &store.write_options)?;
            let options = DeleteOptions::default();
            let (results, deleted) = collector.delete(paths, options, settings, &store.progress());
            deleted.map_err(|error| match error {
                DeleteError::Store(error) => error.into(),
                error => HostError::Refused(error.to_string()),
            })?;
            let deleted = paths.iter().map(|path| dir.full_path(path));
            (deleted.collect(), results.bytes_freed)
        }
    };
    Ok(Reply::Garbage { paths, bytes })
}

/// Verifies the store. Nix without `check_contents` looks only whether the paths exist.
fn verify(store: &HostedStore, check_contents: bool, repair: bool) -> Result<Reply, HostError> {
    if repair {
        require_trust(store, "repair paths")?;
        return Err(HostError::Refused(
            "cannot repair paths through the daemon: use floe verify --repair on its machine"
                .into(),
        ));
    }
    let reader = store.reader();
    if check_contents {
        let has_problems = !reader
            .verify(&[], None, &store.progress())?
            .problems
            .is_empty();
        return Ok(Reply::Verified { has_problems });
    }
    let has_problems = !reader.vanished_paths()?.is_empty();
    Ok(Reply::Verified { has_problems })
}
