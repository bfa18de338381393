//! A store of this machine for the clients of Nix's protocols.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use floe_copy::{CopyRequest, RequestedPaths, SourceOrder};
use floe_daemon::{Access, HostedStore, Substitute};
use floe_format::TrustedKeys;
use floe_store::StoreLayout;
use floe_transfer::{Cancel, CopyOptions, Error, StoreConfig};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::geteuid;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use crate::exit::UsageError;
use crate::options::Settings;
use crate::store_choice::why_not_local;
use crate::writable_mount::make_writable;

/// Opens a store for a client that runs this process. It is trusted if the user of this process
/// owns the store.
pub(crate) fn open(
    store: &Arc<dyn StoreConfig>,
    settings: &Settings,
    may_write: bool,
) -> anyhow::Result<HostedStore> {
    let Some(layout) = store.layout() else {
        bail!(UsageError(format!(
            "cannot serve {store}: {}",
            why_not_local(&**store)
        )));
    };
    if may_write {
        // Must come before any other thread starts: such a thread would keep the read-only mount.
        make_writable(&layout.real_store_dir)?;
    }
    let keys = settings.config.trusted_keys(TrustedKeys::default());
    let access = Access {
        may_write,
        is_trusted: store.is_new() || owns(layout),
        requires_signatures: store
            .facts()
            .requires_signatures
            .unwrap_or(*settings.config.require_sigs.get()),
        trusted_keys: keys.clone(),
    };
    let options = settings.write_options(&Cancel::default())?;
    let mut hosted = HostedStore::open(layout.clone(), access, &options)?;
    let (sources, _) = settings.config.substituters(&settings.context);
    if may_write && !sources.is_empty() {
        let request = CopyRequest {
            order: SourceOrder::ByPriority,
            network: settings.network(false),
            options: CopyOptions {
                check_signatures: hosted.requires_signatures(),
                trusted_keys: keys,
                closure_limit: settings.closure_limit(),
                optimise: *settings.config.auto_optimise_store.get(),
                ..CopyOptions::default()
            },
            write: options,
            ..CopyRequest::new(sources, store.clone(), RequestedPaths::All)
        };
        hosted.set_substitute(substitute(request));
    }
    Ok(hosted)
}

/// Whether the user of this process owns a store.
fn owns(layout: &StoreLayout) -> bool {
    let user = geteuid();
    let owner = fs::metadata(&layout.real_store_dir).map(|found| found.uid());
    user.is_root() || owner.is_ok_and(|owner| owner == user.as_raw())
}

/// Fetches paths as a copy from the substituters. Nix, too, leaves out paths that none of them has.
fn substitute(request: CopyRequest) -> Box<Substitute> {
    Box::new(move |paths| {
        let Some(layout) = request.target.layout() else {
            return Ok(());
        };
        let texts = paths.iter().map(|path| layout.store_dir.full_path(path));
        let request = CopyRequest {
            paths: RequestedPaths::Named(texts.collect()),
            ..request.clone()
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
    })
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
        dup2_stdin(&null)?;
        dup2_stdout(stderr())?;
        Ok::<_, rustix::io::Errno>(streams)
    };
    taken().context("cannot take the standard streams")
}

/// The number of the first descriptor that is not a standard stream.
const FIRST_FREE: i32 = 3;
