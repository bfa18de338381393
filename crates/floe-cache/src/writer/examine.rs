//! Finds out what a binary cache has of many paths, with many requests in flight.

use std::collections::BTreeSet;

use floe_format::{NarInfo, StorePath};
use floe_transfer::{CachePolicy, Cancel, Error};

use super::{BinaryCacheWriter, narinfo_name};
use crate::storage::{GetResult, LenResult, Replies};

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
            while replies.pending() < EXAMINED_AT_ONCE
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

    /// Parses the narinfo of a path. The error says why it cannot be used.
    fn parse_narinfo(&self, path: &StorePath, text: &[u8]) -> Result<NarInfo, String> {
        let narinfo = NarInfo::parse(text, &self.store_dir).map_err(|error| error.to_string())?;
        match narinfo.info.path == *path {
            true => Ok(narinfo),
            false => Err(format!("its narinfo describes {}", narinfo.info.path)),
        }
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

/// How many paths are examined at once: more than a server accepts over one connection. Their
/// narinfos are in memory, usually a few KiB each, and at most `NARINFO_LEN_MAX`.
const EXAMINED_AT_ONCE: usize = 128;
