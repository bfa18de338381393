//! A binary cache as a source: what `nix-cache-info` and narinfos mean, over any storage.
//!
//! A list of all paths reads each narinfo, because only narinfos have the names of paths. The cache
//! keeps these narinfos for the queries that follow, and each query removes its own, so that a copy
//! of all paths requests each narinfo once. The plan of the copy then holds the narinfos that the
//! target lacks, so a copy into an empty target needs no more memory than without this; narinfos of
//! paths that the target has stay. The cache keeps at most [`LISTED_LEN_MAX`] bytes. The names in
//! the list and the paths need about 200 bytes for each path, and at most
//! [`REQUESTS_MAX`](crate::storage::REQUESTS_MAX) replies are in memory.

mod files;
mod list;

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, OnceLock, Weak};

use floe_format::nar::layout::{FileExtent, Node};
use floe_format::{CacheInfo, DrvOutput, NarInfo, Realisation, StoreDir, StorePath};
use floe_transfer::store_uri::parse_bool;
use floe_transfer::{
    Body, CachePolicy, Cancel, DEFAULT_PRIORITY, Error, Event, EventSink as _, Events, HttpServer,
    NarInfoCallback, NarInfoReply, NarRequest, NarStream, PathSpec, Source, SourceContext,
    SourceFacts,
};
use parking_lot::Mutex;

use crate::error::CacheError;
use crate::realisations::get_realisation;
use crate::storage::{Found, GetResult, QueryLimit, ReadStorage, get_all};
use crate::uri_parameter::UriParameter;
use list::list_narinfos;
pub(crate) use list::list_objects;

/// The options of a binary cache as a source, which override its own `nix-cache-info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// Sources with lower numbers are queried first (`priority`).
    pub priority: Option<i32>,
    /// Whether the cache accepts many queries at once (`want-mass-query`).
    pub want_mass_query: Option<bool>,
    /// Whether paths of the cache need no signature (`trusted`).
    pub trusted: bool,
}

impl CacheOptions {
    /// Sets the option that a parameter of a store URI names.
    pub(crate) fn visit(&mut self, parameter: &mut UriParameter<'_>) -> Result<(), String> {
        parameter.number("priority", &mut self.priority)?;
        let want_mass_query = &mut self.want_mass_query;
        parameter.parsed("want-mass-query", want_mass_query, |name, value| {
            parse_bool(name, value).map(Some)
        })?;
        parameter.bool("trusted", &mut self.trusted)
    }
}

/// A binary cache that is open, or still opening.
#[derive(Debug)]
pub struct BinaryCache(Arc<Shared>);

/// The part that replies of the storage refer to. They hold weak references: a slow request must
/// not keep the cache alive.
#[derive(Debug)]
struct Shared {
    storage: Arc<dyn ReadStorage>,
    options: CacheOptions,
    /// Ends waits for replies.
    cancel: Cancel,
    events: Events,
    /// The store directory while that of the cache is not known.
    default_dir: StoreDir,
    /// The parsed `nix-cache-info`, or the reason why the cache cannot be used.
    info: OnceLock<Result<CacheInfo, Arc<Error>>>,
    /// Queries that wait for `nix-cache-info`.
    waiting: Mutex<Vec<Query>>,
    listed: Mutex<ListedNarInfos>,
}

/// The narinfos that a list has read and no query has taken.
#[derive(Debug, Default)]
struct ListedNarInfos {
    by_name: HashMap<String, NarInfo>,
    /// The length of the texts of all narinfos that were added, in bytes.
    len: usize,
}

/// One query for a narinfo.
struct Query {
    /// The name of the narinfo.
    name: String,
    policy: CachePolicy,
    reply: NarInfoCallback,
}

impl BinaryCache {
    /// Begins to fetch `nix-cache-info`: see [`SourceContext::opened`] and [`Source::open_result`].
    pub fn open(
        storage: Arc<dyn ReadStorage>,
        options: &CacheOptions,
        context: &SourceContext<'_>,
    ) -> BinaryCache {
        let mut options = options.clone();
        if !context.are_substituters {
            // As in Nix, the `WantMassQuery` of a cache counts for substituters only.
            options.want_mass_query.get_or_insert(true);
        }
        let signal = context.opened.clone();
        let opened = move || {
            // The receiver is gone when the copy does not wait any more.
            let _: Result<(), _> = signal.send(());
        };
        let shared = Arc::new(Shared {
            storage,
            options,
            cancel: context.session.cancel.clone(),
            events: context.session.events.clone(),
            default_dir: StoreDir::default(),
            info: OnceLock::new(),
            waiting: Mutex::default(),
            listed: Mutex::default(),
        });
        shared.fetch_info(CachePolicy::Use, Box::new(opened));
        BinaryCache(shared)
    }
}

impl Shared {
    fn fetch_info(self: &Arc<Shared>, policy: CachePolicy, opened: Box<dyn FnOnce() + Send>) {
        let shared = Arc::downgrade(self);
        let reply = move |found: GetResult| {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let is_remembered =
                matches!(&found, Ok(Found::Object(object)) if object.remembered_at.is_some());
            match shared.parse_info(found) {
                // The disk cache may be damaged, or a newer floe may have written it.
                Err(_) if is_remembered => shared.fetch_info(CachePolicy::Bypass, opened),
                info => {
                    shared.set_info(info.map_err(Arc::new));
                    opened();
                }
            }
        };
        self.storage.get(CACHE_INFO, policy, Box::new(reply));
    }

    /// Parses `nix-cache-info`, and passes on to the storage how many queries the cache wants.
    fn parse_info(&self, found: GetResult) -> Result<CacheInfo, Error> {
        let not_a_cache = |reason: String| CacheError::NotACache {
            url: self.storage.name(),
            reason,
        };
        let object = match found? {
            Found::Object(object) => object,
            Found::Missing { reason, .. } => return Err(not_a_cache(reason.into()).into()),
        };
        let info = parse_cache_info(&object.contents).map_err(|reason| {
            self.storage.forget(CACHE_INFO);
            not_a_cache(reason)
        })?;
        let own = info.want_mass_query;
        self.storage.set_query_limit(QueryLimit {
            want_mass_query: self.options.want_mass_query.unwrap_or(own),
            uses_http2: object.uses_http2,
        });
        Ok(info)
    }

    /// Records what is known of the cache, and sends the queries that waited for it.
    fn set_info(self: &Arc<Shared>, info: Result<CacheInfo, Arc<Error>>) {
        // Only the reply to the one request for `nix-cache-info` sets it.
        let _: Result<(), _> = self.info.set(info);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for query in waiting {
            self.send(query);
        }
    }

    /// Sends a query, or keeps it until `nix-cache-info` is known.
    fn query(self: &Arc<Shared>, query: Query) {
        let mut waiting = self.waiting.lock();
        if self.info.get().is_none() {
            waiting.push(query);
            return;
        }
        drop(waiting);
        self.send(query);
    }

    fn send(self: &Arc<Shared>, query: Query) {
        match self.info.get() {
            Some(Ok(_)) => {}
            Some(Err(error)) => return (query.reply)(Err(Error::SourceDisabled(error.clone()))),
            None => return (query.reply)(Err(Error::Internal(TOO_EARLY))),
        }
        let listed = self.listed.lock().by_name.remove(&query.name);
        if listed.is_some() {
            return (query.reply)(Ok(listed.into()));
        }
        let shared: Weak<Shared> = Arc::downgrade(self);
        let (name, policy) = (query.name.clone(), query.policy);
        let reply = move |found: GetResult| match shared.upgrade() {
            Some(shared) => shared.reply(query, found),
            None => (query.reply)(Err(Error::Internal("a cache is closed during a query"))),
        };
        self.storage.get(&name, policy, Box::new(reply));
    }

    fn reply(self: &Arc<Shared>, query: Query, found: GetResult) {
        let object = match found {
            Ok(Found::Object(object)) => object,
            Ok(Found::Missing { remembered_at, .. }) => {
                return (query.reply)(Ok(NarInfoReply {
                    narinfo: None,
                    remembered_at,
                }));
            }
            Err(error) => return (query.reply)(Err(error)),
        };
        let parsed = self.parse_narinfo(&query.name, &object.contents);
        match parsed {
            // The disk cache may be damaged: the cache itself is queried.
            Err(_) if object.remembered_at.is_some() => self.send(Query {
                policy: CachePolicy::Bypass,
                ..query
            }),
            parsed => (query.reply)(parsed.map(|narinfo| NarInfoReply {
                narinfo: Some(narinfo),
                remembered_at: object.remembered_at,
            })),
        }
    }

    fn parse_narinfo(&self, name: &str, contents: &[u8]) -> Result<NarInfo, Error> {
        let dir = self.store_dir().ok_or(Error::Internal(TOO_EARLY))?;
        let parsed = NarInfo::parse(contents, dir).map_err(|source| {
            self.storage.forget(name);
            CacheError::NarInfo {
                url: self.object_url(name),
                source: Box::new(source),
            }
        });
        Ok(parsed?)
    }

    fn object_url(&self, name: &str) -> String {
        format!("{}/{name}", self.storage.name().trim_end_matches('/'))
    }

    fn known_info(&self) -> Option<&CacheInfo> {
        self.info.get()?.as_ref().ok()
    }

    fn store_dir(&self) -> Option<&StoreDir> {
        self.known_info().map(|info| &info.store_dir)
    }
}

impl ListedNarInfos {
    /// Adds a narinfo, if there is room.
    fn add(&mut self, name: String, narinfo: NarInfo, text_len: usize) {
        if self.len + text_len <= LISTED_LEN_MAX {
            self.len += text_len;
            self.by_name.insert(name, narinfo);
        }
    }
}

impl Source for BinaryCache {
    fn name(&self) -> String {
        self.0.storage.name()
    }

    fn store_dir(&self) -> &StoreDir {
        self.0.store_dir().unwrap_or(&self.0.default_dir)
    }

    fn facts(&self) -> SourceFacts {
        let own = || self.0.known_info()?.priority;
        let priority = self.0.options.priority.or_else(own);
        SourceFacts {
            priority: priority.unwrap_or(DEFAULT_PRIORITY),
            retry_policy: self.0.storage.retry_policy(),
            is_trusted: self.0.options.trusted,
            ..SourceFacts::default()
        }
    }

    fn http_server(&self) -> Option<HttpServer> {
        self.0.storage.http_server()
    }

    fn query(&self, spec: &PathSpec, policy: CachePolicy, reply: NarInfoCallback) {
        self.0.query(Query {
            name: format!("{}{NARINFO_SUFFIX}", spec.hash_part()),
            policy,
            reply,
        });
    }

    fn open_nar(&self, narinfo: &NarInfo, request: NarRequest) -> Result<NarStream, Error> {
        let body = self.0.storage.open(&narinfo.url, request);
        body.map(NarStream::Body)
    }

    fn prefetch_nar(
        &self,
        narinfo: &NarInfo,
        request: NarRequest,
    ) -> Option<Result<NarStream, Error>> {
        let body = self.0.storage.prefetch(&narinfo.url, request)?;
        Some(body.map(NarStream::Body))
    }

    fn query_tree(&self, narinfo: &NarInfo) -> Result<Option<Node>, Error> {
        self.0.query_tree(narinfo)
    }

    fn open_file(&self, narinfo: &NarInfo, file: &FileExtent<'_>) -> Result<Option<Body>, Error> {
        self.0.open_file(narinfo, file)
    }

    fn open_build_log(&self, derivation: &StorePath) -> Result<Option<Box<dyn Read>>, Error> {
        self.0.open_build_log(derivation)
    }

    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        let info = self.0.info.get()?;
        Some(info.as_ref().map(|_| ()).map_err(Arc::clone))
    }

    /// Reads every narinfo, if the storage can list them. One that does not parse does not end the
    /// list.
    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        let shared = &*self.0;
        let Some(list) = shared.storage.as_list() else {
            return Ok(None);
        };
        let names = list_narinfos(list, (&self.name(), &shared.cancel))?;
        let mut paths = Vec::with_capacity(names.len());
        let (mut skipped, mut first) = (0, None);
        get_all(&*shared.storage, names, &shared.cancel, |name, text| {
            let hash_part = name.trim_end_matches(NARINFO_SUFFIX).to_owned();
            match shared.parse_narinfo(&name, &text) {
                // The path has another narinfo, or none that a client would find.
                Ok(narinfo) if narinfo.info.path.hash_part().to_string() != hash_part => {
                    skipped += 1;
                    first.get_or_insert_with(|| Error::WrongPath {
                        source_name: shared.storage.name(),
                        url: shared.object_url(&name),
                        found: narinfo.info.path,
                        wanted: hash_part,
                    });
                }
                Ok(narinfo) => {
                    paths.push(narinfo.info.path.clone());
                    shared.listed.lock().add(name, narinfo, text.len());
                }
                Err(error) => {
                    skipped += 1;
                    first.get_or_insert(error);
                }
            }
            Ok(())
        })?;
        if let Some(first) = &first {
            let event = Event::SkippedNarInfos {
                count: skipped,
                first,
            };
            shared.events.event(event);
        }
        paths.sort_unstable();
        Ok(Some(paths))
    }

    fn query_realisation(
        &self,
        id: &DrvOutput,
        cancel: &Cancel,
    ) -> Result<Option<Realisation>, Error> {
        get_realisation(&*self.0.storage, id, cancel)
    }

    fn abort(&self) {
        self.0.storage.abort();
    }
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Query({})", self.name)
    }
}

/// Parses the `nix-cache-info` of a source or a target. The error says why it is none.
pub(crate) fn parse_cache_info(text: &[u8]) -> Result<CacheInfo, String> {
    // Probably a captive portal.
    if text.trim_ascii_start().starts_with(b"<") {
        return Err("a web page came instead".into());
    }
    CacheInfo::parse(text).map_err(|error| error.to_string())
}

/// The name of the object that describes a cache.
pub(crate) const CACHE_INFO: &str = "nix-cache-info";

/// The end of the name of a narinfo; a hash part stands before it.
pub(crate) const NARINFO_SUFFIX: &str = ".narinfo";

/// A query of a cache whose `nix-cache-info` has not come yet must wait.
const TOO_EARLY: &str = "a query does not wait for nix-cache-info";

/// The largest length of all narinfos that a list keeps, in bytes of their texts; a parsed narinfo
/// needs about twice its text. Usual narinfos of 75,000 paths fit. Queries request further ones
/// again.
const LISTED_LEN_MAX: usize = 64 * 1024 * 1024;
