//! The mover: closures from sources into a target.
//!
//! 1. *resolve*: what is missing in the target, asked for in waves, checked for trust;
//! 2. *plan*: the largest first, and whether there is room for all;
//! 3. *fetch*: bodies arrive, small ones ahead of time;
//! 4. *receive*: one worker runs one path to completion: decode, hash, parse, write;
//! 5. *commit*: what is complete and whose references are there becomes valid, in batches.
//!
//! A path that fails takes only those with it that refer to it. Nothing waits for its
//! references to be fetched; only the commit is ordered.
//!
//! Not guaranteed: the order in which paths become valid, beyond references first.

mod accept;
mod check;
mod commit;
mod elsewhere;
mod fetch;
mod outcome;
mod pack;
mod preview;
mod publish;
mod receive;
mod resolve;
mod reuse;
mod space;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use floe_format::{NarInfo, StoreDir, StorePath};
use floe_store::hashing::Hashing;
use floe_store::{StagedPath, StoreWriter, WriteOptions};

use crate::cache::file::read_cache_info;
use crate::cache::{Source, Sources};
use crate::codec;
use crate::error::Error;
use crate::location::{HttpLocation, Location};
use crate::options::Options;
use crate::path_spec::Root;
use crate::report::{Event, Reporter};
use crate::url::without_credentials;
use commit::Commit;
use fetch::Queue;
use pack::PackedNar;
use preview::Preview;
use publish::CacheWriter;
use resolve::Resolved;

pub use outcome::Outcome;
pub use reuse::reuse_directory;
pub use space::Space;

/// Where paths go.
#[derive(Debug)]
pub struct Target(pub(crate) TargetKind);

#[derive(Debug)]
pub(crate) enum TargetKind {
    Store(Box<StoreWriter>),
    Cache(CacheWriter),
    Preview(Preview),
}

/// Moves closures from sources into a target.
pub struct Mover<'a> {
    /// Where paths come from.
    pub sources: &'a Sources,
    /// Where they go.
    pub target: &'a Target,
    /// How.
    pub options: &'a Options,
    /// Who watches.
    pub reporter: &'a dyn Reporter,
}

/// A path to be moved.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) narinfo: NarInfo,
    /// Which of the sources has it.
    pub(crate) source: usize,
    /// Where it lies in other stores of this machine.
    pub(crate) places: Vec<PathBuf>,
    /// A run that ended early has left it in the target.
    pub(crate) is_left: bool,
}

impl Item {
    /// Whether it is looked for on this machine first; then it is not fetched ahead.
    pub(crate) fn is_here(&self) -> bool {
        self.is_left || !self.places.is_empty()
    }
}

/// A path that has arrived whole and right.
#[derive(Debug)]
pub(crate) enum Finished {
    Tree(StagedPath),
    Nar(PackedNar),
}

impl Target {
    /// Opens a target, and makes it where there is none.
    ///
    /// Errors: an HTTP cache cannot be written to; otherwise those of the store or the disk.
    pub fn open(
        location: &Location,
        store_dir: Option<&StoreDir>,
        options: &WriteOptions,
    ) -> Result<Target, Error> {
        Ok(Target(match location {
            Location::Store(store) => {
                let layout = store.layout.clone();
                TargetKind::Store(Box::new(StoreWriter::open_with(layout, options)?))
            }
            Location::File(file) => {
                let dir = store_dir.cloned().unwrap_or_default();
                TargetKind::Cache(CacheWriter::open(file.clone(), dir)?)
            }
            Location::Http(http) => return Err(read_only(http)),
        }))
    }

    /// Looks at a target without making or changing anything, for dry runs.
    pub fn preview(location: &Location, store_dir: Option<&StoreDir>) -> Result<Target, Error> {
        Ok(Target(TargetKind::Preview(match location {
            Location::Store(store) => Preview::store(store.layout.clone())?,
            Location::File(file) => {
                let found = read_cache_info(&file.directory)?.map(|info| info.store_dir);
                let dir = found.or(store_dir.cloned()).unwrap_or_default();
                Preview::Cache(file.clone(), dir)
            }
            Location::Http(http) => return Err(read_only(http)),
        })))
    }

    /// The store directory that its paths name.
    pub fn store_dir(&self) -> &StoreDir {
        match &self.0 {
            TargetKind::Preview(preview) => preview.store_dir(),
            TargetKind::Store(store) => &store.layout().store_dir,
            TargetKind::Cache(cache) => cache.store_dir(),
        }
    }

    /// A cache takes what nobody has signed: whoever installs from it checks.
    pub(crate) fn is_cache(&self) -> bool {
        matches!(
            &self.0,
            TargetKind::Cache(_) | TargetKind::Preview(Preview::Cache(..))
        )
    }

    /// The local store, if it is one.
    pub fn as_store(&self) -> Option<&StoreWriter> {
        match &self.0 {
            TargetKind::Store(store) => Some(store),
            TargetKind::Cache(_) | TargetKind::Preview(_) => None,
        }
    }

    /// Keeps paths from being collected and says which of them are missing.
    pub(crate) fn missing(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, Error> {
        match &self.0 {
            TargetKind::Store(store) => {
                store.protect(paths.iter())?;
                Ok(store.invalid(paths)?)
            }
            TargetKind::Cache(cache) => Ok(cache.missing(paths)),
            TargetKind::Preview(preview) => preview.missing(paths),
        }
    }
}

impl Mover<'_> {
    /// Moves the closures of `roots`. What fails is in the outcome; an error is returned only
    /// where nothing could be begun, or the target itself fails, or the move is cancelled.
    pub fn run(&self, roots: &[Root]) -> Result<Outcome, Error> {
        self.check_store_dirs()?;
        let mut outcome = Outcome::default();
        let mut resolved = resolve::resolve(self, roots)?;
        self.discard_unwanted(&resolved);
        let roots = std::mem::take(&mut resolved.roots);
        let mut waiting = Vec::new();
        let mut lacking = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let unavailable = std::mem::take(&mut resolved.unavailable);
            let items = self.plan(resolved, &mut outcome);
            if outcome.space.is_none() {
                outcome.space = self.look_for_space(&items)?;
            }
            if self.options.dry_run {
                return Ok(outcome);
            }
            let mut vanished = self.transfer(items, &unavailable, &mut waiting, &mut outcome)?;
            lacking.extend(unavailable);
            if vanished.is_empty() {
                vanished = self.vanished_roots(&roots, &outcome, &lacking)?;
            }
            if vanished.is_empty() {
                break;
            }
            // An older collector took away what it had promised to spare: fetch it again. Until it
            // has ended, it may take away more of what it had looked at before.
            if let Some(store) = self.target.as_store() {
                store.outlast_collector()?;
            }
            let again: Vec<Root> = vanished.into_iter().map(Root::Path).collect();
            resolved = resolve::resolve(self, &again)?;
        }
        for finished in waiting {
            let path = finished.path().clone();
            let missing = finished.references().clone();
            outcome.fail(self.reporter, Error::MissingReferences { path, missing });
            if let (Some(store), Finished::Tree(staged)) = (self.target.as_store(), finished) {
                store.leave([staged.tree]);
            }
        }
        let missing: BTreeSet<StorePath> = self.target.missing(&roots)?.into_iter().collect();
        if outcome.failures.is_empty() {
            for path in missing.iter().cloned() {
                outcome.fail(self.reporter, Error::Vanished { path });
            }
        }
        if let (Some(store), []) = (self.target.as_store(), outcome.failures.as_slice()) {
            store.discard_left(|_| false);
        }
        outcome.roots = roots
            .into_iter()
            .filter(|root| !missing.contains(root))
            .collect();
        Ok(outcome)
    }

    /// What other moves have left takes room that this one may need. But a move that could not even
    /// ask for all that it wants does not know what that is.
    fn discard_unwanted(&self, resolved: &Resolved) {
        let is_known = resolved.failures.is_empty() && resolved.unavailable.is_empty();
        if let (Some(store), true) = (self.target.as_store(), is_known) {
            let paths = resolved.items.iter().map(|item| &item.narinfo.info.path);
            let wanted: BTreeSet<&StorePath> = paths.collect();
            store.discard_left(|path| wanted.contains(path));
        }
    }

    /// Roots that a store had, and that a collector took away before they counted. What was
    /// registered here needs no such look: its collector knew that it was wanted.
    fn vanished_roots(
        &self,
        roots: &[StorePath],
        outcome: &Outcome,
        lacking: &BTreeSet<StorePath>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let Some(store) = self.target.as_store() else {
            return Ok(BTreeSet::new());
        };
        let planned: BTreeSet<&StorePath> = outcome.planned.iter().map(|plan| &plan.0).collect();
        let untouched: Vec<StorePath> = roots
            .iter()
            .filter(|root| !planned.contains(root) && !lacking.contains(*root))
            .cloned()
            .collect();
        if untouched.is_empty() {
            return Ok(BTreeSet::new());
        }
        store.outlast_collector()?;
        Ok(store.invalid(&untouched)?.into_iter().collect())
    }

    /// At least one source has to be for the target's store directory; the others are not asked.
    fn check_store_dirs(&self) -> Result<(), Error> {
        let dir = self.target.store_dir();
        let mut sources = self.sources.iter();
        match self.sources.iter().any(|source| source.is_for(dir)) {
            true => Ok(()),
            false => Err(sources
                .next()
                .map_or(Error::NoSources, |source| self.other_store_dir(source))),
        }
    }

    fn other_store_dir(&self, source: &Source) -> Error {
        Error::OtherStoreDir {
            source_name: source.name(),
            found: source.store_dir().as_str().into(),
            wanted: self.target.store_dir().as_str().into(),
        }
    }

    /// Puts the largest first: they take longest, and the small ones fill the gaps.
    fn plan(&self, resolved: Resolved, outcome: &mut Outcome) -> Vec<Item> {
        outcome.unplanned += resolved.failures.len();
        for error in resolved.failures {
            outcome.fail(self.reporter, error);
        }
        let mut items = resolved.items;
        for item in &mut items {
            let path = &item.narinfo.info.path;
            item.places = reuse::places(&self.options.reuse, path);
            item.is_left = self
                .target
                .as_store()
                .is_some_and(|store| store.has_left(path));
        }
        items.sort_by_key(|item| Reverse(item.narinfo.info.nar_size));
        let planned = items.iter().map(|item| {
            let size = match item.narinfo.compression {
                // Whether it is right there is known when it is read.
                _ if item.is_here() => Some(0),
                floe_format::Compression::None => Some(item.narinfo.info.nar_size),
                _ => item.narinfo.file_size,
            };
            (
                item.narinfo.info.path.clone(),
                item.narinfo.info.nar_size,
                size,
            )
        });
        outcome.planned.extend(planned);
        let nar_sizes = items.iter().map(|item| item.narinfo.info.nar_size);
        let fetched = items.iter().filter(|item| !item.is_here());
        let file_sizes = fetched.filter_map(|item| item.narinfo.file_size);
        self.reporter.event(Event::Planned {
            paths: items.len(),
            // A narinfo may claim any size, so the sums must not overflow.
            nar_bytes: nar_sizes.fold(0, u64::saturating_add),
            download_bytes: file_sizes.fold(0, u64::saturating_add),
        });
        items
    }

    /// What the items take and what is free for them. Only a dry run ends well without the room.
    fn look_for_space(&self, items: &[Item]) -> Result<Option<Space>, Error> {
        let (check, dry_run) = (self.options.check_space, self.options.dry_run);
        if items.is_empty() || !(check || dry_run) {
            return Ok(None);
        }
        let reuses = items.iter().any(|item| !item.places.is_empty());
        let shares = self.options.optimise || reuses;
        let space = Space::of(self.target, items)?.sharing(shares);
        for shortage in space.shortages().into_iter().filter(|_| check) {
            if shortage.is_certain && !dry_run {
                return Err(Error::NoSpace(Box::new(shortage)));
            }
            let shortage = &shortage;
            self.reporter.event(Event::Scarce { shortage });
        }
        Ok(Some(space))
    }

    /// Fetches, receives and commits. Returns references that were valid when they were asked
    /// for and are not any more; the paths that need them are left in `waiting`.
    fn transfer(
        &self,
        items: Vec<Item>,
        unavailable: &BTreeSet<StorePath>,
        waiting: &mut Vec<Finished>,
        outcome: &mut Outcome,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let hashing = self.hashing(&items);
        let queue = Queue::new(self.sources, &items, hashing.cores());
        let (sender, receiver) = mpsc::sync_channel(RESULTS_AHEAD);
        let mut commit = Commit::new(self, &items, &queue, outcome);
        commit.fail_referrers_of(unavailable);
        thread::scope(|scope| {
            for (number, place) in hashing.places().enumerate() {
                let (sender, queue) = (sender.clone(), &queue);
                thread::Builder::new()
                    .name(format!("floe-worker-{number}"))
                    .spawn_scoped(scope, move || receive::work(self, queue, place, &sender))
                    .map_err(|source| Error::File {
                        action: "starting a thread for",
                        path: "the transfer".into(),
                        source,
                    })?;
            }
            drop(sender);
            let result = commit.run(&receiver, waiting);
            // After an error here the workers must not go on: nobody takes their results.
            if result.is_err() {
                queue.close();
                self.sources.abort();
            }
            commit.leave(receiver, result.as_ref().err());
            result
        })
    }

    /// A crew has more workers than there are cores, and each would need the memory of an
    /// encoder or a decoder; where that is much, hashing is little beside encoding or decoding.
    fn hashing(&self, items: &[Item]) -> Hashing {
        let jobs = self.options.jobs;
        match &self.target.0 {
            TargetKind::Cache(cache) if codec::is_heavy(cache.location().compression) => {
                Hashing::alone(items.len(), jobs)
            }
            _ => {
                let hashing = Hashing::of(items.iter().map(|i| i.narinfo.info.nar_size), jobs);
                let mut compressions = items.iter().map(|item| &item.narinfo.compression);
                match compressions.any(codec::has_large_window) {
                    true => hashing.with_half_a_crew(),
                    false => hashing,
                }
            }
        }
    }

    pub(crate) fn source_of(&self, item: &Item) -> &Source {
        &self.sources.list[item.source]
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), Error> {
        match self.options.cancel.is_raised() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// An HTTP cache cannot be a target.
fn read_only(cache: &HttpLocation) -> Error {
    Error::Location {
        text: without_credentials(&cache.url),
        reason: "floe does not upload over HTTP yet; copy to file://DIR".into(),
    }
}

impl Finished {
    pub(crate) fn path(&self) -> &StorePath {
        match self {
            Finished::Tree(staged) => &staged.info.path,
            Finished::Nar(packed) => &packed.narinfo.info.path,
        }
    }

    pub(crate) fn references(&self) -> &BTreeSet<StorePath> {
        match self {
            Finished::Tree(staged) => &staged.info.references,
            Finished::Nar(packed) => &packed.narinfo.info.references,
        }
    }
}

/// Each round fetches again what a collector took away during the one before; one that does so
/// thrice does so forever.
const ROUNDS_MAX: usize = 3;

/// Results that may wait for the commit; workers pause beyond.
const RESULTS_AHEAD: usize = 64;
