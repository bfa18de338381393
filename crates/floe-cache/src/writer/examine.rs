//! Finds out what a binary cache has of many paths, with many requests in flight.

use std::collections::BTreeSet;

use floe_format::{NarInfo, StorePath};
use floe_transfer::{CachePolicy, Cancel, Error};

use super::{BinaryCacheWriter, narinfo_name};
use crate::storage::{GetResult, LenResult, ListStorage, REQUESTS_MAX, Replies};

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
        let mut found: Vec<Presence> = paths.iter().map(|_| Presence::Missing).collect();
        let mut replies = Replies::new(cancel);
        let mut unsent = paths.iter().enumerate();
        loop {
            while replies.pending() < REQUESTS_MAX
                && let Some((index, path)) = unsent.next()
            {
                let reply = replies.callback(move |found| Reply::NarInfo(index, found));
                self.storage
                    .get(&narinfo_name(path), CachePolicy::Bypass, reply);
            }
            // A directory replies so fast that nothing waits.
            if cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            let Some(reply) = replies.next()? else {
                return Ok(found);
            };
            match reply {
                Reply::NarInfo(index, text) => {
                    let Some(text) = text?.into_contents() else {
                        continue;
                    };
                    match self.parse_narinfo(&paths[index], &text) {
                        Err(reason) => found[index] = Presence::Damaged(reason),
                        // A NAR outside of the cache is not examined.
                        Ok(narinfo) if narinfo.url.contains("://") => {
                            found[index] = Presence::Whole(narinfo.info.references);
                        }
                        Ok(narinfo) => {
                            let url = narinfo.url.clone();
                            let reply = replies
                                .callback(move |len| Reply::NarLen(index, Box::new(narinfo), len));
                            self.storage.query_len(&url, reply);
                        }
                    }
                }
                Reply::NarLen(index, narinfo, len) => {
                    found[index] = match nar_defect(&narinfo, len?) {
                        Some(reason) => Presence::Damaged(reason),
                        None => Presence::Whole(narinfo.info.references),
                    };
                }
            }
        }
    }

    /// Finds out which paths of whole closures the cache has, by a list where that needs fewer
    /// requests. A listed narinfo counts as whole: its NAR was there before it.
    ///
    /// Errors: as [`BinaryCacheWriter::examine`].
    pub(super) fn examine_closures(&self, paths: &[StorePath]) -> Result<Vec<Presence>, Error> {
        let list = self.storage.as_list();
        // Queries of a directory cost less than its list.
        let list = list.filter(|_| paths.len() >= LISTED_FROM && !self.has_records());
        let Some(list) = list else {
            return self.examine(paths, &self.cancel);
        };
        let listed = match Listed::read(list, paths.len() / PATHS_PER_PAGE, &self.cancel) {
            Ok(listed) => listed,
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            // The user may read and write the objects, but not list them.
            Err(_) => return self.examine(paths, &self.cancel),
        };
        let is_listed = |path: &StorePath| listed.contains(&narinfo_name(path));
        let unknown = paths.iter().filter(|path| is_listed(path).is_none());
        let unknown: Vec<StorePath> = unknown.cloned().collect();
        let mut examined = self.examine(&unknown, &self.cancel)?.into_iter();
        let found = paths.iter().map(|path| match is_listed(path) {
            Some(true) => Presence::Whole(BTreeSet::new()),
            Some(false) => Presence::Missing,
            // One for each unknown path.
            None => examined.next().unwrap_or(Presence::Missing),
        });
        Ok(found.collect())
    }

    /// Parses the narinfo of a path. The error says why it cannot be used.
    fn parse_narinfo(&self, path: &StorePath, text: &[u8]) -> Result<NarInfo, String> {
        let narinfo = NarInfo::parse(text, &self.store_dir).map_err(|error| error.to_string())?;
        if narinfo.info.path == *path {
            Ok(narinfo)
        } else {
            Err(format!("its narinfo describes {}", narinfo.info.path))
        }
    }
}

/// The names of the first objects of a cache, in their order.
struct Listed {
    names: BTreeSet<String>,
    is_complete: bool,
}

impl Listed {
    fn read(list: &dyn ListStorage, pages: usize, cancel: &Cancel) -> Result<Listed, Error> {
        let mut page = list.list_page(None, cancel)?;
        let mut names: BTreeSet<String> = page.names.into_iter().collect();
        for _ in 1..pages.clamp(1, PAGES_MAX) {
            let Some(next) = page.next else { break };
            page = list.list_page(Some(&next), cancel)?;
            names.extend(std::mem::take(&mut page.names));
        }
        Ok(Listed {
            names,
            is_complete: page.next.is_none(),
        })
    }

    /// Whether there is an object; `None` if it would come after the last listed one.
    fn contains(&self, name: &str) -> Option<bool> {
        let is_covered = || self.names.last().is_some_and(|last| name <= last.as_str());
        (self.is_complete || is_covered()).then(|| self.names.contains(name))
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

/// With at least this many paths, a list may need fewer requests.
const LISTED_FROM: usize = 20;

/// A page of a list is requested for this many paths: it has up to 1,000 names, but they may be
/// those of other paths.
const PATHS_PER_PAGE: usize = 100;

/// The largest number of pages that are read.
const PAGES_MAX: usize = 20;
