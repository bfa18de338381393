//! The requests to name sources.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use floe_cache::{DocumentRequest, Fetched, Network, NetworkOptions, fetch_documents};
use floe_copy::{SourceOrder, Sources, resolve_store_uri};
use floe_format::elf::{HEAD_LEN, system_of_file};
use floe_format::nar::read::NarEvent;
use floe_format::pin::PINS_FOLDER;
use floe_format::{NarInfo, StorePath};
use floe_names::{Access, pin_object};
use floe_transfer::{Cancel, Error, Events, NamedObjects, PathSpec, Session, Source, StoreConfig};

use super::PackageNames;
use crate::options::Settings;

/// The requests to name sources and caches, over a network that starts with the first one.
pub(super) struct Fetcher<'a> {
    settings: &'a Settings,
    has_used_network: &'a Cell<bool>,
    session: OnceCell<Session>,
    /// The caches of the command, or else the substituters.
    caches: &'a [Arc<dyn StoreConfig>],
    sources: OnceCell<Sources>,
    /// Which source has a path.
    owners: RefCell<HashMap<StorePath, Arc<dyn Source>>>,
}

impl Fetcher<'_> {
    pub(super) fn new<'a>(names: &'a PackageNames<'_>) -> Fetcher<'a> {
        Fetcher {
            settings: names.settings,
            has_used_network: &names.has_used_network,
            session: OnceCell::new(),
            caches: &names.caches,
            sources: OnceCell::new(),
            owners: RefCell::default(),
        }
    }

    fn session(&self) -> &Session {
        self.session.get_or_init(|| {
            self.has_used_network.set(true);
            let options = with_short_waits(self.settings.network(false));
            Session::new(Cancel::default(), Events::default()).with_options::<Network>(options)
        })
    }

    fn sources(&self) -> Result<&Sources, Error> {
        if let Some(sources) = self.sources.get() {
            return Ok(sources);
        }
        let opened = if self.caches.is_empty() {
            let (substituters, _) = self.settings.config.substituters(&self.settings.context);
            Sources::open(&substituters, SourceOrder::ByPriority, self.session())?
        } else {
            Sources::open(self.caches, SourceOrder::AsListed, self.session())?
        };
        Ok(self.sources.get_or_init(|| opened))
    }
}

impl Fetcher<'_> {
    /// Opens the small objects of a cache: one of the command, or another one.
    fn objects(&self, cache: &str) -> Result<Arc<dyn NamedObjects>, Error> {
        let mut known = self.caches.iter();
        let config = match known.find(|config| config.address() == cache) {
            Some(config) => config.clone(),
            None => resolve_store_uri(cache, &self.settings.context)?,
        };
        let objects = config.open_objects(self.session())?;
        objects.ok_or_else(|| Error::InvalidStoreUri {
            text: config.to_string(),
            reason: "it has no pins, because it is not a binary cache".into(),
        })
    }

    /// Queries the narinfos of paths: of each path the first one that is accepted.
    pub(super) fn query_narinfos(
        &self,
        paths: &[StorePath],
        accepts: &dyn Fn(&NarInfo) -> bool,
    ) -> Result<Vec<Option<NarInfo>>, Error> {
        let mut found: HashMap<StorePath, NarInfo> = HashMap::new();
        let mut failure = None;
        for source in &self.sources()?.list {
            let missing = paths.iter().filter(|path| !found.contains_key(*path));
            let specs: Vec<PathSpec> = missing.cloned().map(PathSpec::Path).collect();
            if specs.is_empty() {
                break;
            }
            let limit = (self.settings.closure_limit(), &self.session().cancel);
            match source.query_closure(&specs, false, limit) {
                Ok(queried) => {
                    let accepted = queried.found.into_iter().filter(|(_, it)| accepts(it));
                    let mut owners = self.owners.borrow_mut();
                    for (path, narinfo) in accepted {
                        owners.insert(path.clone(), source.clone());
                        found.insert(path, narinfo);
                    }
                }
                // The cache has another path with this hash part.
                Err(Error::WrongName { .. }) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            // The cache that failed may have the path that no other one has.
            Some(error) if paths.iter().any(|path| !found.contains_key(path)) => Err(error),
            _ => Ok(paths.iter().map(|path| found.get(path).cloned()).collect()),
        }
    }
}

impl Access for Fetcher<'_> {
    fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched {
        let session = self.session();
        let network = session.service::<Network>()?;
        fetch_documents(&network, requests, &session.cancel)
    }

    fn narinfos(&self, paths: &[StorePath]) -> Result<Vec<Option<NarInfo>>, Error> {
        self.query_narinfos(paths, &|_| true)
    }

    fn pins(&self, cache: &str, names: &[&str]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let objects = match self.objects(cache) {
            Ok(objects) => objects,
            Err(error) => {
                let error = Arc::new(error);
                let failed = names.iter();
                return failed
                    .map(|_| Err(Error::SourceDisabled(error.clone())))
                    .collect();
            }
        };
        let names: Vec<String> = names.iter().map(|name| pin_object(name)).collect();
        let found = objects.get(&names, &self.session().cancel).into_iter();
        found
            .map(|found| Ok(found?.map(|object| object.contents)))
            .collect()
    }

    fn pin_names(&self, cache: &str) -> Result<Option<Vec<String>>, Error> {
        self.objects(cache)?
            .list(PINS_FOLDER, &self.session().cancel)
    }

    fn system(&self, narinfo: &NarInfo) -> Result<Option<String>, Error> {
        let owners = self.owners.borrow();
        let Some(source) = owners.get(&narinfo.info.path) else {
            return Ok(None);
        };
        let mut head = Vec::new();
        let mut system = None;
        source.scan_nar(narinfo, &mut |event| {
            match event {
                NarEvent::File { .. } => head.clear(),
                NarEvent::Data(data) if head.len() < HEAD_LEN => {
                    let missing = (HEAD_LEN - head.len()).min(data.len());
                    head.extend_from_slice(&data[..missing]);
                    system = system_of_file(&head);
                }
                _ => {}
            }
            match system {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        })?;
        Ok(system.map(str::to_owned))
    }
}

/// Shortens the waits: the user waits for the name, and a remembered one may be there.
fn with_short_waits(mut options: NetworkOptions) -> NetworkOptions {
    options.narinfo_disk_cache = None;
    options.stall_timeout = options.stall_timeout.min(STALL_TIMEOUT);
    options.retry.outage_timeout = options.retry.outage_timeout.min(OUTAGE_TIMEOUT);
    options
}

/// How long a name source may send nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a name source may be away.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(5);
