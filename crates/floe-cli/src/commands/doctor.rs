//! `floe doctor`: checks the configuration, the caches, the store and the machine.

pub(crate) mod args;
mod caches;
mod configuration;
mod findings;
pub(crate) mod page;
mod store;

use std::env;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use floe_config::{Origin, StoreAccess};
use floe_transfer::{
    CANCEL_POLL, Cancel, Error, Events, Session, SourceContext, StoreConfig, StoreServer,
};

use crate::commands::run::enter_namespace;
use crate::exit;
use crate::options::{Settings, lock_wait};
use crate::package_names::PackageNames;
use crate::signals;
use args::DoctorArgs;
use caches::CacheCheck;
use findings::{Findings, Part};

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    if args.enter_namespace {
        return enter_namespace();
    }
    let mut findings = Findings::default();
    match Settings::load_quietly(&args.options, None) {
        Ok(mut settings) => {
            configuration::check(&mut settings.config, &mut findings);
            ask_once(&mut settings);
            if let Err(error) = check_all(args, &settings, &mut findings) {
                // The findings until then may be enough.
                findings.report(args.json).ok();
                let message = "interrupted; a diagnosis changes nothing";
                return Err(exit::explain_interrupt(error, message));
            }
        }
        // Without settings, no store and no cache is known.
        Err(error) => findings.problem(Part::Configuration, error, ""),
    }
    check_namespaces(&mut findings);
    findings.report(args.json)
}

/// Makes each request fail at once, so that no server that is away delays the check.
fn ask_once(settings: &mut Settings) {
    let origin = || Origin::Flag("floe doctor");
    let config = &mut settings.config;
    config.filetransfer_retry_attempts.replace(1, origin());
    config.outage_timeout.replace(0, origin());
    if config.stalled_download_timeout.is_default() {
        config
            .stalled_download_timeout
            .replace(REPLY_SECONDS, origin());
    }
    if config.connect_timeout.is_default() {
        config.connect_timeout.replace(CONNECT_SECONDS, origin());
    }
}

fn check_all(
    args: &DoctorArgs,
    settings: &Settings,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let mut sample = Vec::new();
    let store =
        settings
            .config
            .resolve_store(args.local.choice(), StoreAccess::Read, &settings.context);
    let mut store_dir = settings.context.store_dir.clone().unwrap_or_default();
    let mut require_signatures = settings.config.require_sigs.get() & !args.trust.no_check_sigs;
    match store {
        Ok(store) => {
            if let Some(layout) = store.layout() {
                store_dir = layout.store_dir.clone();
                let lock_wait = lock_wait(raised_after(LOCK_WAIT, &cancel));
                sample = store::check(layout, &lock_wait, findings);
                if cancel.is_raised() {
                    return Err(Error::Cancelled.into());
                }
            } else if args.offline && store.facts().daemon_socket.is_none() {
                findings.warn(
                    Part::Store,
                    format!("{store} was not checked"),
                    "leave out --offline",
                );
            } else {
                check_daemon(&*store, &cancel, findings);
            }
            require_signatures = settings.check_signatures(&args.trust, &*store);
        }
        Err(error) => findings.problem(Part::Store, error, "correct store, or --store"),
    }
    if args.offline {
        return Ok(());
    }
    let keys = match settings.trusted_keys(&args.trust) {
        Ok(keys) => keys,
        Err(error) => {
            findings.problem(Part::Configuration, error, "");
            return Ok(());
        }
    };
    let mut network = settings.network(true);
    // The queries are for paths that do not exist, and for the state of this moment.
    network.narinfo_disk_cache = None;
    network.tells_certificates = true;
    let check = CacheCheck {
        network,
        store_dir,
        keys: &keys,
        require_signatures,
        sample: &sample,
        cancel: &cancel,
    };
    for cache in sources(args, settings, findings) {
        check.check(&cache, findings)?;
    }
    check_names(args, settings, findings)
}

/// Returns the caches to check.
fn sources(
    args: &DoctorArgs,
    settings: &Settings,
    findings: &mut Findings,
) -> Vec<Arc<dyn StoreConfig>> {
    if args.from.is_empty() {
        let (found, errors) = settings.config.substituters(&settings.context);
        for error in errors {
            findings.problem(Part::Caches, error, "correct substituters");
        }
        if found.is_empty() {
            let remedy = "set substituters, or use --from";
            findings.warn(Part::Caches, "no substituter can be used", remedy);
        }
        return found;
    }
    let mut found = Vec::new();
    for uri in &args.from {
        match settings.source(uri) {
            Ok(store) => found.push(store),
            Err(error) => findings.problem(Part::Caches, error, "correct --from"),
        }
    }
    found
}

/// Returns a flag that is raised after a time, or with the cancellation.
fn raised_after(time: Duration, cancel: &Cancel) -> Arc<AtomicBool> {
    let (flag, cancel) = (Arc::new(AtomicBool::new(false)), cancel.clone());
    let raised = flag.clone();
    let until = Instant::now() + time;
    let watch = move || {
        while Instant::now() < until && !cancel.is_raised() {
            thread::sleep(CANCEL_POLL);
        }
        raised.store(true, Ordering::Relaxed);
    };
    // Without a thread, the wait is as long as that of other commands.
    let _ = thread::Builder::new().name("doctor".into()).spawn(watch);
    flag
}

/// Says what the daemon of the store tells of itself.
fn check_daemon(store: &dyn StoreConfig, cancel: &Cancel, findings: &mut Findings) {
    let session = Session::new(cancel.clone(), Events::default());
    let (opened, _opened) = mpsc::channel();
    let source = store.open_source(&SourceContext {
        session: &session,
        are_substituters: false,
        opened,
    });
    // A silent daemon must not keep the process.
    let (told, reply) = mpsc::channel();
    let asked = source.and_then(|source| {
        let ask = move || {
            // The receiver is gone after the time limit.
            let _: Result<(), _> = told.send(source.query_server());
        };
        let thread = thread::Builder::new().name("doctor".into());
        thread.spawn(ask).map_err(Error::Thread)
    });
    let reply = asked.and_then(|_| wait_for_reply(store, &reply, cancel));
    match reply {
        Ok(Some(server)) => {
            let version = server.version.as_deref().unwrap_or("an unknown version");
            findings.fine(Part::Store, format!("{store}: a daemon, {version}"));
            if server.trusts_client == Some(false) {
                findings.warn(
                    Part::Store,
                    format!("the daemon of {store} does not trust this user"),
                    "paths need signatures; its owner can add you to trusted-users",
                );
            }
        }
        Ok(None) => {
            let remedy = format!("try --from {store}");
            findings.warn(
                Part::Store,
                format!("{store} is a binary cache and no store"),
                remedy,
            );
        }
        Err(error) => findings.problem(Part::Store, error, "start the daemon, or use --root"),
    }
}

/// Waits for the reply of a daemon, but not for ever.
fn wait_for_reply(
    store: &dyn StoreConfig,
    reply: &mpsc::Receiver<Result<Option<StoreServer>, Error>>,
    cancel: &Cancel,
) -> Result<Option<StoreServer>, Error> {
    let until = Instant::now() + Duration::from_secs(REPLY_SECONDS);
    while Instant::now() < until && !cancel.is_raised() {
        if let Ok(reply) = reply.recv_timeout(CANCEL_POLL) {
            return reply;
        }
    }
    Err(Error::fetch(&store.to_string(), "it does not reply", true))
}

/// Asks each source of names for a package that all have.
fn check_names(
    args: &DoctorArgs,
    settings: &Settings,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let packages = match PackageNames::new(settings, &args.names, (None, true)) {
        Ok(packages) => packages,
        Err(error) => {
            findings.problem(Part::Names, error, "correct names, or --names");
            return Ok(());
        }
    };
    for (source, result) in packages.check_sources(PACKAGE) {
        match result {
            Ok(reply) => findings.fine(Part::Names, format!("{source}: {reply}")),
            Err(error) => {
                let remedy = format!("correct {source}, or leave it out of names");
                findings.warn(Part::Names, error, remedy);
            }
        }
    }
    Ok(())
}

/// Enters the namespaces of `floe run` in a process of its own, which can do so only with one
/// thread.
fn check_namespaces(findings: &mut Findings) {
    let part = Part::Namespaces;
    let program = env::current_exe();
    let ran = program.and_then(|program| {
        let mut command = Command::new(program);
        command.args(["doctor", "--enter-namespace"]);
        command.stdin(Stdio::null()).output()
    });
    match ran {
        Ok(output) if output.status.success() => {
            findings.fine(part, "floe run can mount stores of other directories");
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let reason = text.trim().trim_start_matches("floe: ").to_owned();
            findings.warn(part, reason, "only floe run and floe shell need them");
        }
        Err(error) => findings.warn(part, format!("cannot start floe: {error}"), ""),
    }
}

/// The longest time until a server is connected, if the user has set none.
const CONNECT_SECONDS: u64 = 5;

/// The longest wait for a lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The longest time until a server replies, if the user has set none.
const REPLY_SECONDS: u64 = 10;

/// The package for which sources of names are asked.
const PACKAGE: &str = "hello";
