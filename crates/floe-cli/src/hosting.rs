//! A store of this machine for the clients of Nix's protocols.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use floe_cache::Network;
use floe_config::accounts;
use floe_copy::{CopyRequest, RequestedPaths, SourceOrder, Sources};
use floe_daemon::{Access, ArrivingPaths, HostedStore, Substituter};
use floe_format::{NarInfo, StorePath, TrustedKeys};
use floe_store::{GcSettings, StoreError, StoreLayout, StoreReader, TempRoots, WriteOptions};
use floe_transfer::{Cancel, CopyOptions, Error, Events, PathSpec, Session, StoreConfig};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use crate::display::warn;
use crate::exit::UsageError;
use crate::options::{Settings, lock_wait};
use crate::store_choice::why_not_local;
use crate::writable_mount::make_writable;

/// A store of this machine that is opened once for each client.
pub(crate) struct Hosting {
    layout: StoreLayout,
    access: Access,
    options: WriteOptions,
    substituters: Option<Arc<Substituters>>,
    gc_settings: GcSettings,
    arriving: Arc<ArrivingPaths>,
}

impl Hosting {
    /// Prepares a store for clients. Their paths need signatures.
    ///
    /// Errors: the store is not one of this machine, or cannot be written.
    pub(crate) fn new(
        store: &Arc<dyn StoreConfig>,
        settings: &Settings,
        may_write: bool,
    ) -> anyhow::Result<Hosting> {
        let Some(layout) = store.layout() else {
            bail!(UsageError(format!(
                "cannot use {store}: {}",
                why_not_local(&**store)
            )));
        };
        if may_write {
            // Must come before any other thread starts: such a thread would keep the read-only
            // mount.
            make_writable(&layout.real_store_dir)?;
        }
        let by_config = *settings.config.require_sigs.get();
        let access = Access {
            may_write,
            is_trusted: false,
            requires_signatures: store.facts().requires_signatures.unwrap_or(by_config),
            trusted_keys: settings.config.trusted_keys(TrustedKeys::default()),
        };
        let options = settings.write_options(&Cancel::default())?;
        let (sources, _) = settings.config.substituters(&settings.context);
        let mut network = settings.network(false);
        // The client waits, and can send the paths itself.
        network.retry.outage_timeout = network.retry.outage_timeout.min(OUTAGE_TIMEOUT);
        let substituters = (may_write && !sources.is_empty()).then(|| {
            Arc::new(Substituters(CopyRequest {
                order: SourceOrder::ByPriority,
                network,
                options: CopyOptions {
                    check_signatures: access.requires_signatures,
                    trusted_keys: access.trusted_keys.clone(),
                    closure_limit: settings.closure_limit(),
                    optimise: *settings.config.auto_optimise_store.get(),
                    ..CopyOptions::default()
                },
                write: options.clone(),
                ..CopyRequest::new(sources, store.clone(), RequestedPaths::All)
            }))
        });
        Ok(Hosting {
            layout: layout.clone(),
            access,
            options,
            substituters,
            gc_settings: settings.gc_settings(&**store),
            arriving: Arc::default(),
        })
    }

    /// Opens the store for a client, whose work ends when `cancel` is raised. Its temporary roots
    /// live until the store is closed.
    ///
    /// Errors: those of the store.
    pub(crate) fn open(&self, is_trusted: bool, cancel: Cancel) -> anyhow::Result<HostedStore> {
        let access = Access {
            is_trusted,
            ..self.access.clone()
        };
        let options = WriteOptions {
            temp_roots: TempRoots::default(),
            lock_wait: lock_wait(cancel.flag()),
            ..self.options.clone()
        };
        let mut hosted = HostedStore::open(self.layout.clone(), access, &options)?;
        hosted.set_cancel(cancel);
        if let Some(substituters) = &self.substituters {
            hosted.set_substituter(substituters.clone());
        }
        hosted.set_gc_settings(self.gc_settings);
        hosted.set_arriving_paths(self.arriving.clone());
        Ok(hosted)
    }

    /// The directories of the store.
    pub(crate) fn layout(&self) -> &StoreLayout {
        &self.layout
    }
}

/// Opens a store for a client that runs this process. It is trusted if the user of this process
/// owns the store, or is a trusted user.
pub(crate) fn open(
    store: &Arc<dyn StoreConfig>,
    settings: &Settings,
    may_write: bool,
) -> anyhow::Result<HostedStore> {
    let hosting = Hosting::new(store, settings, may_write)?;
    let trusted = &settings.config.trusted_users.get().0;
    let is_trusted =
        store.is_new() || owns(&hosting.layout) || names_user(trusted, geteuid(), getegid())?;
    hosting.open(is_trusted, Cancel::default())
}

/// Fetches a path with its closure from the substituters, unless it is valid.
///
/// Errors: no substituter has it, and those of the copy.
pub(crate) fn ensure_valid(
    store: &Arc<dyn StoreConfig>,
    settings: &Settings,
    path: &StorePath,
) -> anyhow::Result<()> {
    let hosting = Hosting::new(store, settings, true)?;
    let is_valid = || {
        let reader = StoreReader::open(hosting.layout.clone());
        match reader {
            Err(StoreError::NoStore { .. }) => Ok(false),
            reader => reader?.is_valid(path),
        }
    };
    if is_valid()? {
        return Ok(());
    }
    let full_path = hosting.layout.store_dir.full_path(path);
    if let Some(substituters) = &hosting.substituters {
        let fetched = substituters.fetch(std::slice::from_ref(path), &Cancel::default());
        fetched.map_err(|reason| anyhow!("cannot fetch {full_path}: {reason}"))?;
    }
    if !is_valid()? {
        bail!("cannot use {full_path}: it is not valid, and no substituter has it");
    }
    Ok(())
}

/// Whether a list such as `trusted-users` names a user.
///
/// Errors: the system cannot look users up.
pub(crate) fn names_user(list: &[String], user: Uid, group: Gid) -> anyhow::Result<bool> {
    let looked_up = || {
        let account = accounts::user_by_uid(user.as_raw().into())?;
        let user = (user.as_raw().into(), account.as_ref());
        accounts::names_user(list, user, group.as_raw().into())
    };
    looked_up().with_context(|| format!("cannot look up the user {}", user.as_raw()))
}

/// Whether the user of this process owns a store.
fn owns(layout: &StoreLayout) -> bool {
    let user = geteuid();
    let owner = fs::metadata(&layout.real_store_dir).map(|found| found.uid());
    user.is_root() || owner.is_ok_and(|owner| owner == user.as_raw())
}

/// The configured substituters, as the sources of a copy into the store.
struct Substituters(CopyRequest);

impl Substituter for Substituters {
    /// Nix, too, leaves out paths that no substituter has.
    fn fetch(&self, paths: &[StorePath], cancel: &Cancel) -> Result<(), String> {
        let Some(layout) = self.0.target.layout() else {
            return Ok(());
        };
        let texts = paths.iter().map(|path| layout.store_dir.full_path(path));
        let request = CopyRequest {
            paths: RequestedPaths::Named(texts.collect()),
            options: CopyOptions {
                cancel: cancel.clone(),
                ..self.0.options.clone()
            },
            ..self.0.clone()
        };
        let summary = request.open().and_then(|copy| copy.run());
        let mut failures = match summary {
            Ok(summary) => summary.failures.into_iter(),
            Err(error) => return Err(error.to_string()),
        };
        match failures.find(|error| !matches!(error, Error::NotFound { .. })) {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }

    fn query(
        &self,
        paths: &[StorePath],
        closures: bool,
        cancel: &Cancel,
    ) -> Result<Vec<NarInfo>, String> {
        let CopyRequest {
            sources,
            order,
            network,
            options,
            ..
        } = &self.0;
        let session = Session::new(cancel.clone(), Events::default())
            .with_options::<Network>(network.clone());
        let limit = (options.closure_limit, &session.cancel);
        let sources =
            Sources::open(sources, *order, &session).map_err(|error| error.to_string())?;
        let mut found: BTreeMap<StorePath, NarInfo> = BTreeMap::new();
        for source in &sources.list {
            let missing = paths.iter().filter(|path| !found.contains_key(*path));
            let specs: Vec<PathSpec> = missing.cloned().map(PathSpec::Path).collect();
            if specs.is_empty() {
                break;
            }
            // A substituter that fails has nothing, as for Nix.
            if let Ok(queried) = source.query_closure(&specs, closures, limit) {
                found.extend(queried.found);
            }
        }
        Ok(found.into_values().collect())
    }

    fn warn(&self, reason: &str) {
        warn(format_args!("cannot fetch what the client wants: {reason}"));
    }
}

/// Takes the standard input and output for a protocol. Whatever else writes to them reaches the
/// standard error, so that it cannot break the protocol.
pub(crate) fn take_standard_streams() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let taken = || {
        let streams = (
            fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?,
            fcntl_dupfd_cloexec(stdout(), FIRST_FREE)?,
        );
        let null = openat(
            CWD,
            "/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // The client can go on while this process writes to the disk. A socket has its own buffer,
        // and the system may refuse so large a pipe.
        let _: rustix::io::Result<usize> = fcntl_setpipe_size(&streams.0, PIPE_LEN);
        dup2_stdin(&null)?;
        dup2_stdout(stderr())?;
        Ok::<_, rustix::io::Errno>(streams)
    };
    taken().context("cannot take the standard streams")
}

/// How long a substituter may be away.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of a client that wait for this process: the largest pipe of an ordinary user.
const PIPE_LEN: usize = 1024 * 1024;

/// The number of the first descriptor that is not a standard stream.
const FIRST_FREE: i32 = 3;
