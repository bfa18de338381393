//! Finds out what a binary cache has of many paths, with many requests in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use floe_format::{NarInfo, StorePath};
use floe_transfer::{CachePolicy, Cancel, Error};

use super::{BinaryCacheWriter, narinfo_name};
use crate::binary_cache::NARINFO_SUFFIX;
use crate::error::CacheError;
use crate::storage::{
    Folder, GetResult, LenResult, ListStorage, ListedObject, REQUESTS_MAX, Replies,
};

/// The state of a path in a cache.
pub(super) enum Presence {
    Missing,
    /// Its narinfo or its NAR cannot be used, for this reason.
    Damaged(String),
    /// Its references.
    Whole(BTreeSet<StorePath>),
}

/// The reply of the storage to a query for the path at an index.
enum Reply {
    NarInfo(usize, GetResult),
    /// The length of the NAR that the narinfo names.
    NarLen(usize, Box<NarInfo>, LenResult),
}

impl BinaryCacheWriter {
    /// Finds out what the cache has of each path, in the order of the paths.
    ///
    /// Errors: those of the storage; [`Error::Cancelled`].
    pub(super) fn examine(
        &self,
        paths: &[StorePath],
        cancel: &Cancel,
    ) -> Result<Vec<Presence>, Error> {
        self.examine_with(paths, &Listed::default(), cancel)
    }

    /// As [`BinaryCacheWriter::examine`], with the NARs of a list, which need no query.
    fn examine_with(
        &self,
        paths: &[StorePath],
        nars: &Listed,
        cancel: &Cancel,
    ) -> Result<Vec<Presence>, Error> {
        self.need(paths)?;
        let mut found: Vec<Presence> = paths.iter().map(|_| Presence::Missing).collect();
        let mut replies = Replies::new(cancel);
        let mut unsent = paths.iter().enumerate();
        let mut pages = 0;
        loop {
            while replies.pending() < REQUESTS_MAX
                && let Some((index, path)) = unsent.next()
            {
                let reply = replies.callback(move |found| Reply::NarInfo(index, found));
                self.storage
                    .get(&narinfo_name(path), CachePolicy::Bypass, reply);
            }
            let Some(reply) = replies.next()? else {
                let url = self.storage.name();
                // One page may be damage of one narinfo.
                return if pages == paths.len() && pages > 1 {
                    Err(CacheError::WebPages { url }.into())
                } else {
                    Ok(found)
                };
            };
            match reply {
                Reply::NarInfo(index, text) => {
                    let Some(text) = text?.into_contents() else {
                        continue;
                    };
                    pages += usize::from(text.trim_ascii_start().starts_with(b"<"));
                    match self.parse_narinfo(&paths[index], &text) {
                        Err(reason) => found[index] = Presence::Damaged(reason),
                        // A NAR outside of the cache is not examined.
                        Ok(narinfo) if narinfo.url.contains("://") => {
                            self.note_signatures(&narinfo);
                            found[index] = Presence::Whole(narinfo.info.references);
                        }
                        Ok(narinfo) => {
                            self.note_signatures(&narinfo);
                            let url = narinfo.url.clone();
                            // An object that a list lacks may have another name in it.
                            if let Some(Some(len)) = nars.len_of(&url) {
                                found[index] = presence(narinfo, Some(len));
                                continue;
                            }
                            let reply = replies
                                .callback(move |len| Reply::NarLen(index, Box::new(narinfo), len));
                            self.storage.query_len(&url, reply);
                        }
                    }
                }
                Reply::NarLen(index, narinfo, len) => {
                    found[index] = match len {
                        // Its URL leads out of the cache.
                        Err(Error::InvalidStoreUri { reason, .. }) => {
                            Presence::Damaged(format!("its URL cannot be used: {reason}"))
                        }
                        len => presence(*narinfo, len?),
                    };
                }
            }
        }
    }

    /// Finds out which paths of whole closures the cache has, by lists where those need fewer
    /// requests. A listed narinfo counts as whole, because its NAR was there before it, unless the
    /// lists show damage or the user wants a check.
    ///
    /// Errors: as [`BinaryCacheWriter::examine`].
    pub(super) fn examine_closures(&self, paths: &[StorePath]) -> Result<Vec<Presence>, Error> {
        let list = self.storage.as_list();
        // Queries of a directory cost less than its list.
        let list = list.filter(|_| paths.len() >= LISTED_FROM && !self.has_records());
        let Some(list) = list else {
            return self.examine(paths, &self.cancel);
        };
        self.need(paths)?;
        let pages = paths.len() / PATHS_PER_PAGE;
        let read = |folder| Listed::read(list, (folder, pages), &self.cancel);
        let (narinfos, nars) = thread::scope(|scope| {
            let nars = thread::Builder::new().spawn_scoped(scope, || read(Folder::Nars));
            let narinfos = read(Folder::Top);
            let nars = match nars {
                Ok(nars) => nars.join().unwrap_or(Err(Error::Internal(LIST_PANICKED))),
                // The system has no thread left.
                Err(_) => read(Folder::Nars),
            };
            (narinfos, nars)
        });
        let (narinfos, nars) = match (narinfos, nars) {
            (Err(Error::Cancelled), _) | (_, Err(Error::Cancelled)) => {
                return Err(Error::Cancelled);
            }
            (Ok(narinfos), Ok(nars)) => (narinfos, nars),
            // The user may read and write the objects, but not list them.
            _ => return self.examine(paths, &self.cancel),
        };
        let must_read = self.options.check || nars.show_damage(&narinfos);
        let known = |path: &StorePath| match narinfos.len_of(&narinfo_name(path))? {
            None => Some(Presence::Missing),
            Some(0) => Some(Presence::Damaged("its narinfo is empty".into())),
            Some(_) if must_read => None,
            Some(_) => Some(Presence::Whole(BTreeSet::new())),
        };
        let mut known: Vec<Option<Presence>> = paths.iter().map(known).collect();
        // The narinfos of the others are read.
        let listed =
            (0..paths.len()).filter(|index| matches!(known[*index], Some(Presence::Whole(_))));
        let listed: Vec<usize> = listed.collect();
        self.examine_unknown(paths, &mut known, &nars)?;
        self.examine_signatures(paths, (&mut known, listed), &nars)?;
        let found = known.into_iter();
        Ok(found.map(|it| it.unwrap_or(Presence::Missing)).collect())
    }

    /// Examines the paths whose state is not known.
    fn examine_unknown(
        &self,
        paths: &[StorePath],
        known: &mut [Option<Presence>],
        nars: &Listed,
    ) -> Result<(), Error> {
        let unknown = (0..paths.len()).filter(|index| known[*index].is_none());
        let unknown: Vec<usize> = unknown.collect();
        let names: Vec<StorePath> = unknown.iter().map(|index| paths[*index].clone()).collect();
        let examined = self.examine_with(&names, nars, &self.cancel)?;
        for (index, presence) in unknown.into_iter().zip(examined) {
            known[index] = Some(presence);
        }
        Ok(())
    }

    /// Reads the narinfos of present paths, so that a copy with a key finds those that lack its
    /// signature: of many paths a sample first, and all if one of these lacks it.
    fn examine_signatures(
        &self,
        paths: &[StorePath],
        (known, listed): (&mut [Option<Presence>], Vec<usize>),
        nars: &Listed,
    ) -> Result<(), Error> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let step = listed.len().div_ceil(SAMPLE_LEN).max(1);
        let (sample, rest): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .enumerate()
            .partition(|(number, _)| number % step == 0);
        for part in [sample, rest] {
            part.iter().for_each(|(_, index)| known[*index] = None);
            self.examine_unknown(paths, known, nars)?;
            if self.unsigned.lock().is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Keeps paths from a collection until the end of this writer.
    pub(super) fn need(&self, paths: &[StorePath]) -> Result<(), Error> {
        let names: Vec<String> = paths.iter().map(narinfo_name).collect();
        self.lease.need(names.iter().map(String::as_str))
    }

    /// Parses the narinfo of a path. The error says why it cannot be used.
    pub(super) fn parse_narinfo(&self, path: &StorePath, text: &[u8]) -> Result<NarInfo, String> {
        let narinfo = NarInfo::parse(text, &self.store_dir).map_err(|error| error.to_string())?;
        if narinfo.info.path == *path {
            Ok(narinfo)
        } else {
            Err(format!("its narinfo describes {}", narinfo.info.path))
        }
    }
}

/// The lengths of the first objects of a folder, in the order of their names.
#[derive(Default)]
struct Listed {
    objects: BTreeMap<String, u64>,
    is_complete: bool,
}

impl Listed {
    fn read(
        list: &dyn ListStorage,
        (folder, pages): (Folder, usize),
        cancel: &Cancel,
    ) -> Result<Listed, Error> {
        let mut listed = Listed::default();
        let mut next = None::<String>;
        for _ in 0..pages.clamp(1, PAGES_MAX) {
            let page = list.list_page(folder, next.as_deref(), cancel)?;
            let with_len = |object: ListedObject| Some((object.name, object.len?));
            listed
                .objects
                .extend(page.objects.into_iter().filter_map(with_len));
            next = page.next;
            if next.is_none() {
                listed.is_complete = true;
                break;
            }
        }
        Ok(listed)
    }

    /// Returns the length of an object, or inner `None` if there is no such object. Returns `None`
    /// if it would come after the last listed one.
    fn len_of(&self, name: &str) -> Option<Option<u64>> {
        let last = self.objects.last_key_value();
        let is_covered = || last.is_some_and(|(last, _)| name <= last.as_str());
        (self.is_complete || is_covered()).then(|| self.objects.get(name).copied())
    }

    /// Whether these NARs show that the cache has lost some: one is empty, or there are fewer than
    /// narinfos. Equal NARs share a file, so that the latter may have another reason.
    fn show_damage(&self, narinfos: &Listed) -> bool {
        let is_narinfo = |name: &&String| name.ends_with(NARINFO_SUFFIX);
        let is_whole_list = self.is_complete && narinfos.is_complete;
        let lacks_nars = || self.objects.len() < narinfos.objects.keys().filter(is_narinfo).count();
        self.objects.values().any(|len| *len == 0) || is_whole_list && lacks_nars()
    }
}

/// Returns the state of a path whose NAR file has a length; `None` is an absent file.
fn presence(narinfo: NarInfo, len: Option<u64>) -> Presence {
    match nar_defect(&narinfo, len) {
        Some(reason) => Presence::Damaged(reason),
        None => Presence::Whole(narinfo.info.references),
    }
}

/// Returns what is wrong with the NAR file of a narinfo, by its length; `None` is an absent file.
fn nar_defect(narinfo: &NarInfo, len: Option<u64>) -> Option<String> {
    let NarInfo { url, file_size, .. } = narinfo;
    match (len, *file_size) {
        (None, _) => Some(format!("its NAR {url} does not exist")),
        (Some(len), Some(size)) if len != size => {
            Some(format!("its NAR {url} has {len} bytes instead of {size}"))
        }
        (Some(0), None) => Some(format!("its NAR {url} is empty")),
        _ => None,
    }
}

/// As many narinfos are read in one round trip.
const SAMPLE_LEN: usize = 16;

const LIST_PANICKED: &str = "the thread of a list panicked";

/// With at least this many paths, a list may need fewer requests.
const LISTED_FROM: usize = 20;

/// A page of a list is requested for this many paths: it has up to 1,000 names, but they may be
/// those of other paths.
const PATHS_PER_PAGE: usize = 100;

/// The largest number of pages that are read.
const PAGES_MAX: usize = 20;
