//! The life of a server: bind, run, shut down.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime};

use floe_store::{DamagedRow, LiveStore};
use parking_lot::{Mutex, RwLock};

use crate::auth::logins::Logins;
use crate::body::budget::Budget;
use crate::body::readahead::ReadaheadBudget;
use crate::caches::compressed_nar_cache::CompressedNarCache;
use crate::caches::nar_cache::NarCache;
use crate::caches::narinfo_cache::NarInfoCache;
use crate::config::{self, Config, Listen};
use crate::context::{Browsers, Context};
use crate::error::ServeError;
use crate::finish::access_log::AccessLog;
use crate::finish::access_log::writer::LogWriter;
use crate::handlers::browse::BROWSING_MAX;
use crate::handlers::log::DECODERS_MAX;
use crate::handlers::nix_cache_info::cache_info_text;
use crate::handlers::pin::check_pins;
use crate::landing_page::LandingPage;
use crate::login_worker;
use crate::metrics::Metrics;
use crate::net::event_loop::EventLoop;
use crate::net::job_queue::JobQueue;
use crate::net::listeners::Listeners;
use crate::net::login_queue::LoginQueue;
use crate::net::peers::PeerCounts;
use crate::net::shared::{ServerShared, Signal};
use crate::readiness::Readiness;
use crate::reload::ReloadHandle;
use crate::tls::TlsAcceptor;
use crate::warning::RepeatedWarning;
use crate::workers;

/// A server that listens. It responds when [`Server::run`] is called.
pub struct Server {
    shared: Arc<ServerShared>,
    addresses: Vec<Listen>,
    metrics_addresses: Vec<Listen>,
    redirect_addresses: Vec<Listen>,
    /// One for each network thread, opened by [`Server::prepare`].
    stores: Vec<LiveStore>,
}

/// The access log of a running server, if it has one.
#[derive(Clone, Debug)]
pub struct AccessLogHandle {
    log: Option<Arc<AccessLog>>,
}

impl AccessLogHandle {
    /// Opens the output of the log anew, before any line of a later response. Does not wait.
    pub fn reopen(&self) {
        if let Some(log) = &self.log {
            log.writer.reopen();
        }
    }
}

/// Tells whether a running server responds.
#[derive(Clone)]
pub struct HealthHandle {
    shared: Arc<ServerShared>,
}

impl HealthHandle {
    /// Whether all network threads were active within a time, which must be longer than a second.
    pub fn is_active_within(&self, time: Duration) -> bool {
        let oldest = self.shared.oldest_beat();
        oldest.is_some_and(|beat| beat.elapsed() <= time)
    }
}

/// Stops a running server, from any thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    signal: Arc<Signal>,
}

impl ShutdownHandle {
    /// Makes [`Server::run`] return. Responses that have begun get ten seconds to finish. A second
    /// call aborts them.
    pub fn shutdown(&self) {
        self.signal.advance();
    }
}

impl Server {
    /// Opens the store, reads the index of its paths, and listens on every address.
    ///
    /// Errors: [`ServeError`].
    pub fn bind(config: Config) -> Result<Server, ServeError> {
        config.check()?;
        let landing_page = LandingPage::of(&config, &config.store.store_dir);
        let log = match config.access_log {
            Some((format, output)) => {
                let writer = LogWriter::start(output, config.warn.clone())?;
                Some(Arc::new(AccessLog::new(format, writer)))
            }
            None => None,
        };
        let acceptor = |tls| TlsAcceptor::new(tls, config.warn.clone());
        let tls = config.tls.map(acceptor).transpose()?;
        let open_logins = |path: PathBuf| {
            let logins = Logins::open(&path, config.warn.clone())?;
            logins.set_public_reading(config.public_read);
            logins.set_browsing_readers(config.status_browse);
            Ok::<_, ServeError>(logins)
        };
        let logins = config.auth_file.map(open_logins).transpose()?;
        let needs_login = logins.as_ref().is_some_and(Logins::are_needed_to_read);
        let login_counters = logins.as_ref().map(|logins| logins.counters.clone());
        let signal = Arc::new(Signal::new(config.threads.get())?);
        let mut store = LiveStore::open(config.store.clone(), STARTUP_DATABASE_WAIT)?;
        let dir = &config.store.store_dir;
        let encoders_max = config.encoders_max.unwrap_or(config.threads).get();
        let workers = config::workers(config.threads.get());
        config.pins.as_deref().map_or(Ok(()), check_pins)?;
        let compressed_nars = config.compressed_cache.map(CompressedNarCache::open);
        let mut context = Context {
            cache_info: RwLock::new(cache_info_text(dir, config.priority).into()),
            landing_page: RwLock::new(landing_page),
            uses_tls: tls.is_some(),
            https_port: None,
            browsers: Browsers {
                are_readers: AtomicBool::new(config.status_browse),
                are_logins: logins.is_some(),
            },
            browsing: Budget::new(BROWSING_MAX),
            metrics: Metrics::new(config.limits.connections_max.get(), workers, login_counters),
            readiness: Readiness::new(&mut store, config.secret_keys.len()),
            narinfos: NarInfoCache::new(&store, config.secret_keys)?,
            nars: NarCache::new(),
            readahead: ReadaheadBudget::default(),
            log_decoders: Budget::new(DECODERS_MAX),
            encoders: Budget::new(encoders_max as u64),
            compressed_nars: compressed_nars.transpose()?,
            compress: config.compress,
            needs_login: AtomicBool::new(needs_login),
            prefix: config.path_prefix,
            log_dir: config.log_dir,
            pins: config.pins,
            receiver: config.receiver,
            layout: config.store,
            warn: config.warn,
        };
        if let Some(rows) = DamagedRow::describe(&store.skipped_rows()) {
            (context.warn)(&format!("skipping {rows}; try floe verify"));
        }
        let addresses = [
            &config.listen,
            &config.metrics_listen,
            &config.redirect_listen,
        ];
        let addresses = addresses.map(Vec::as_slice);
        let listeners = Listeners::open(addresses, config.passed_sockets, config.backlog)?;
        context.https_port = listeners.first_port();
        let shared = ServerShared {
            context,
            peers: PeerCounts::new(config.limits.connections_per_address_max),
            limits: RwLock::new(Arc::new(config.limits)),
            listeners: Mutex::new(listeners.all.into_iter().map(Arc::new).collect()),
            tls,
            queue: JobQueue::default(),
            upload_queue: JobQueue::default(),
            login_queue: logins.map(|logins| LoginQueue::new(Arc::new(logins))),
            open: AtomicUsize::new(0),
            full_warning: RepeatedWarning::default(),
            peer_warning: RepeatedWarning::default(),
            room_warning: RepeatedWarning::default(),
            log_decoder_warning: RepeatedWarning::default(),
            log,
            signal,
        };
        shared.note_certificates();
        Ok(Server {
            shared: Arc::new(shared),
            addresses: listeners.clients,
            metrics_addresses: listeners.monitoring,
            redirect_addresses: listeners.redirects,
            stores: Vec::new(),
        })
    }

    /// Opens the store for each network thread, with the rights that the process has now.
    ///
    /// [`Server::run`] does this by itself. A caller that announces the server before it runs
    /// calls this first, so that the announcement is true.
    ///
    /// Errors: [`ServeError`], if the process may not read the database.
    pub fn prepare(&mut self) -> Result<(), ServeError> {
        let threads = self.shared.signal.threads();
        while self.stores.len() < threads {
            let layout = self.shared.context.layout.clone();
            let mut store = LiveStore::open(layout, STARTUP_DATABASE_WAIT)?;
            store.set_busy_timeout(Duration::ZERO)?;
            self.stores.push(store);
        }
        Ok(())
    }

    /// Returns the addresses, with the ports that the system chose and the wildcards resolved. One
    /// address of the settings may have become several.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Returns the addresses as clients write them.
    pub fn urls(&self) -> Vec<String> {
        let scheme = match self.shared.tls {
            Some(_) => "https",
            None => "http",
        };
        let addresses = self.addresses.iter();
        addresses.map(|address| url(scheme, address)).collect()
    }

    /// Returns when the first of the certificates for TLS expires.
    pub fn certificate_expiry(&self) -> Option<SystemTime> {
        let settings = self.shared.tls.as_ref()?.settings();
        let first = settings.expiries().into_values().min()?;
        Some(SystemTime::UNIX_EPOCH + first)
    }

    /// Returns the addresses of [`Config::metrics_listen`] as clients write them.
    pub fn metrics_urls(&self) -> Vec<String> {
        let addresses = self.metrics_addresses.iter();
        addresses.map(|address| url("http", address)).collect()
    }

    /// Returns the addresses of [`Config::redirect_listen`] as clients write them.
    pub fn redirect_urls(&self) -> Vec<String> {
        let addresses = self.redirect_addresses.iter();
        addresses.map(|address| url("http", address)).collect()
    }

    /// Returns a handle that reopens the access log.
    pub fn access_log_handle(&self) -> AccessLogHandle {
        AccessLogHandle {
            log: self.shared.log.clone(),
        }
    }

    /// Returns a handle that exchanges settings, and reads files anew.
    pub fn reload_handle(&self) -> ReloadHandle {
        ReloadHandle::new(self.shared.clone())
    }

    /// Returns a handle that tells whether the server responds.
    pub fn health_handle(&self) -> HealthHandle {
        HealthHandle {
            shared: self.shared.clone(),
        }
    }

    /// Returns a handle that stops the server.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle {
            signal: self.shared.signal.clone(),
        }
    }

    /// Serves until a [`ShutdownHandle`] stops the server. Blocks the calling thread.
    ///
    /// Errors: the system refuses what the server needs to start, or a network thread panics.
    pub fn run(mut self) -> Result<(), ServeError> {
        self.prepare()?;
        let shared = &*self.shared;
        let mut loops = Vec::new();
        for (number, store) in self.stores.into_iter().enumerate() {
            loops.push(EventLoop::new(shared, number, store)?);
        }
        let (mut has_panicked, mut refused) = (false, None);
        thread::scope(|scope| {
            let mut threads = Threads {
                scope,
                refused: None,
            };
            let mut queues = vec![&shared.queue];
            if shared.context.receiver.is_some() {
                queues.push(&shared.upload_queue);
            }
            for queue in queues {
                let workers = config::workers(loops.len());
                threads.start_some(workers, || move || workers::work(shared, queue));
            }
            if let Some(queue) = &shared.login_queue {
                threads.start(|| login_worker::work(shared, queue));
            }
            let compressed_nars = shared.context.compressed_nars.as_ref();
            if let Some(cache) = compressed_nars {
                threads.start(|| cache.run(&*shared.context.warn));
            }
            let mut network = Vec::new();
            for event_loop in loops {
                network.extend(threads.start(move || {
                    let ended = catch_unwind(AssertUnwindSafe(|| event_loop.run()));
                    // The clients of a thread that has panicked would wait for ever, so the other
                    // threads finish their responses, and the server ends.
                    let has_panicked = ended.is_err();
                    if has_panicked {
                        shared.signal.advance();
                    }
                    has_panicked
                }));
            }
            refused = threads.refused;
            if refused.is_some() {
                shared.signal.stop();
            }
            for thread in network {
                has_panicked |= thread.join().unwrap_or(true);
            }
            shared.signal.stop();
            shared.queue.stop();
            shared.upload_queue.stop();
            if let Some(receiver) = &shared.context.receiver {
                receiver.stop();
            }
            if let Some(queue) = &shared.login_queue {
                queue.stop();
            }
            if let Some(cache) = compressed_nars {
                cache.stop();
            }
        });
        if let Some(log) = &shared.log {
            log.writer.finish();
        }
        match refused {
            Some(source) => Err(ServeError::System {
                action: "start a thread",
                source,
            }),
            None if has_panicked => Err(ServeError::ThreadPanic),
            None => Ok(()),
        }
    }
}

/// The threads of a server.
struct Threads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// The error of the system about a thread that it has refused.
    refused: Option<io::Error>,
}

impl<'scope> Threads<'scope, '_> {
    /// Starts several threads that do the same. The server works with fewer of them too, but not
    /// with none.
    fn start_some<R: FnOnce() + Send + 'scope>(&mut self, count: usize, run: impl Fn() -> R) {
        let before = self.refused.take();
        let started = (0..count).filter(|_| self.start(run()).is_some());
        if started.count() > 0 {
            self.refused = before;
        }
    }

    /// Starts a thread, unless the system refuses it.
    fn start<T: Send + 'scope>(
        &mut self,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, T>> {
        match thread::Builder::new().spawn_scoped(self.scope, run) {
            Ok(thread) => Some(thread),
            Err(error) => {
                self.refused = Some(error);
                None
            }
        }
    }
}

/// Returns an address as clients write it.
fn url(scheme: &str, address: &Listen) -> String {
    match address {
        Listen::Tcp { .. } => format!("{scheme}://{address}"),
        Listen::Unix(_) => address.to_string(),
    }
}

/// How long the start of a server waits for Nix to unlock the database.
const STARTUP_DATABASE_WAIT: Duration = Duration::from_secs(60);
