//! The server's life: bind, run, stop.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use floe_store::LiveStore;

use crate::access_log::writer::LogWriter;
use crate::caches::compressed_nar_cache::CompressedNarCache;
use crate::caches::nar_cache::NarCache;
use crate::caches::narinfo_cache::NarInfoCache;
use crate::config::{Compress, Config, Listen};
use crate::context::Context;
use crate::error::ServeError;
use crate::handlers::nix_cache_info::{cache_info_text, root_text};
use crate::net::event_loop::EventLoop;
use crate::net::limits::Limits;
use crate::net::listen;
use crate::net::queue::JobQueue;
use crate::net::shared::{ServerShared, Signal};
use crate::workers;

/// A server that listens already, and answers once it runs.
pub struct Server {
    shared: Arc<ServerShared>,
    addresses: Vec<Listen>,
    /// One for each thread of the network, once it is prepared.
    stores: Vec<LiveStore>,
}

/// Framing a running server. May be used from any thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    shared: Arc<Signal>,
}

impl ShutdownHandle {
    /// Makes [`Server::run`] return soon: answers that are under way get ten seconds to be
    /// finished; a second call ends them at once.
    pub fn shutdown(&self) {
        self.shared.advance();
    }
}

impl Server {
    /// Opens the store, reads the index of its paths and listens on every address.
    ///
    /// Errors: [`ServeError`], for each thing that a server needs and cannot have.
    pub fn bind(config: Config) -> Result<Server, ServeError> {
        if config.listen.is_empty() {
            return Err(ServeError::Config("a server needs an address to listen on"));
        }
        if config.compress == Compress::Cached && config.compressed_cache.is_none() {
            return Err(ServeError::Config(
                "compressed copies need a directory to be kept in: give one with --side-cache",
            ));
        }
        let limits = Limits::of(&config);
        let start_log =
            |(format, sink)| LogWriter::start(sink, config.warn.clone()).map(|log| (format, log));
        let log = config.access_log.map(start_log).transpose()?;
        let signal = Arc::new(Signal::new(config.threads.get())?);
        let store = LiveStore::open(config.store.clone(), STARTUP_DATABASE_WAIT)?;
        let dir = &config.store.store_dir;
        let context = Context {
            cache_info: cache_info_text(dir, config.priority).into(),
            root: root_text(dir, &config.secret_keys).into(),
            narinfos: NarInfoCache::new(&store, config.secret_keys)?,
            nars: Arc::new(NarCache::new()),
            compressed_nars: config
                .compressed_cache
                .map(CompressedNarCache::open)
                .transpose()?,
            compress: config.compress,
            prefix: config.path_prefix,
            log_dir: config.log_dir,
            layout: config.store,
            warn: config.warn,
        };
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.extend(listen::open(address, config.backlog)?);
        }
        let addresses = listeners
            .iter()
            .map(|listener| listener.address.clone())
            .collect();
        let listeners = listeners.into_iter().map(Arc::new).collect();
        let shared = ServerShared {
            context,
            limits,
            listeners: Mutex::new(listeners),
            queue: JobQueue::default(),
            open: AtomicUsize::new(0),
            log,
            signal,
        };
        Ok(Server {
            shared: Arc::new(shared),
            addresses,
            stores: Vec::new(),
        })
    }

    /// Opens the store for each thread, as the user that this process is by now. Whoever wants to
    /// say that the server is there before it runs calls this first; [`Server::run`] does it where
    /// nobody has.
    ///
    /// Errors: [`ServeError`], if this user may not read the database.
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

    /// Where it listens: the addresses asked for, with the ports that the system chose and the
    /// stars resolved. One `Listen` may have become several.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// How many paths the store has.
    pub fn path_count(&self) -> usize {
        self.shared.context.narinfos.path_count()
    }

    /// What ends it.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle {
            shared: self.shared.signal.clone(),
        }
    }

    /// Serves until it is stopped. Blocks the calling thread.
    ///
    /// Errors: what the system refuses at the start; a server that runs ends by being stopped.
    pub fn run(mut self) -> Result<(), ServeError> {
        self.prepare()?;
        let shared = &*self.shared;
        let threads = shared.signal.threads();
        let mut loops = Vec::new();
        for (number, store) in self.stores.into_iter().enumerate() {
            loops.push(EventLoop::new(shared, number, store)?);
        }
        thread::scope(|scope| {
            for _ in 0..(threads * WORKERS_PER_THREAD).max(WORKERS_MIN) {
                scope.spawn(|| workers::work(shared));
            }
            let compressed_nars = shared.context.compressed_nars.as_ref();
            if let Some(compressed_nars) = compressed_nars {
                scope.spawn(|| compressed_nars.fill(&*shared.context.warn));
            }
            let network: Vec<_> = loops
                .into_iter()
                .map(|it| scope.spawn(move || it.run()))
                .collect();
            for thread in network {
                // A thread that panicked has said so; the others go on to their end.
                let _: thread::Result<()> = thread.join();
            }
            shared.signal.stop();
            shared.queue.stop();
            if let Some(compressed_nars) = compressed_nars {
                compressed_nars.stop();
            }
        });
        if let Some((_, log)) = &shared.log {
            log.finish();
        }
        Ok(())
    }
}

/// At the start a server waits for a Nix that holds the database.
const STARTUP_DATABASE_WAIT: Duration = Duration::from_secs(60);

/// Workers wait for disks, and a disk answers several questions at once.
const WORKERS_PER_THREAD: usize = 4;
const WORKERS_MIN: usize = 8;
