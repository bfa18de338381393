//! Lists what a cache has, and deletes objects of it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use floe_format::{HashPart, NarInfo, PathInfo, StorePath};
use floe_transfer::{
    CacheContents, CacheInventory, CacheNames, CacheObject, CachePolicy, CachedPath, Cancel, Error,
    NamedObjects, SignatureChange, SigningOutcome, UnusableNarInfo,
};

use super::BinaryCacheWriter;
use crate::binary_cache::{NARINFO_SUFFIX, list_objects};
use crate::storage::{Folder, GetResult, ListStorage, ListedObject, REQUESTS_MAX, Replies};

impl CacheInventory for BinaryCacheWriter {
    fn exists(&self) -> bool {
        self.existed
    }

    fn list(&self, cancel: &Cancel) -> Result<CacheContents, Error> {
        let top = self.list_folder(Folder::Top, cancel)?;
        let times = top.into_iter().filter(|it| is_narinfo(&it.name));
        let times: HashMap<_, _> = times.map(|object| (object.name, object.modified)).collect();
        let mut contents = CacheContents::default();
        self.read_narinfos(
            &mut times.keys().cloned(),
            cancel,
            &mut |name, found| match found {
                Ok(narinfo) => {
                    let modified = times.get(&name).copied().flatten();
                    let found = CachedPath { narinfo, modified };
                    let path = found.narinfo.info.path.clone();
                    contents.narinfos.insert(path, found);
                }
                Err(found) => {
                    let all = if found.is_unreadable {
                        &mut contents.unreadable
                    } else {
                        &mut contents.unusable
                    };
                    all.insert(name, found.reason);
                }
            },
        )?;
        let nars = self.list_folder(Folder::Nars, cancel)?.into_iter();
        contents.nars = nars.map(fact).collect();
        Ok(contents)
    }

    fn names(&self, cancel: &Cancel) -> Result<CacheNames, Error> {
        let mut names = CacheNames::default();
        for object in self.list_folder(Folder::Top, cancel)? {
            if is_narinfo(&object.name) {
                names.narinfos.extend([fact(object)]);
            } else if is_listing(&object.name) {
                names.listings.extend([fact(object)]);
            }
        }
        let nars = self.list_folder(Folder::Nars, cancel)?.into_iter();
        names.nars = nars.map(fact).collect();
        names.link_targets = self.link_targets(names.nars.keys());
        names.logs = self.list_facts(Folder::Logs, cancel)?;
        names.realisations = self.list_facts(Folder::Realisations, cancel)?;
        names.debug_info = self.list_facts(Folder::DebugInfo, cancel)?;
        Ok(names)
    }

    fn read_narinfos(
        &self,
        names: &mut dyn Iterator<Item = String>,
        cancel: &Cancel,
        receive: &mut dyn FnMut(String, Result<NarInfo, UnusableNarInfo>),
    ) -> Result<(), Error> {
        self.read(names, cancel, &mut |name, text| {
            let found = text.and_then(|text| {
                self.parse_listed(&name, &text)
                    .map_err(|reason| UnusableNarInfo {
                        reason,
                        url: url_of(&text),
                        is_unreadable: false,
                    })
            });
            receive(name, found);
        })
    }

    fn read_objects(
        &self,
        names: &mut dyn Iterator<Item = String>,
        cancel: &Cancel,
        receive: &mut dyn FnMut(String, Vec<u8>),
    ) -> Result<(), Error> {
        self.read(names, cancel, &mut |name, contents| {
            if let Ok(contents) = contents {
                receive(name, contents);
            }
        })
    }

    fn keep(&self, hash_parts: &[HashPart]) -> Result<(), Error> {
        self.lease.need(hash_parts.iter().map(HashPart::as_str))
    }

    fn change_signatures(
        &self,
        paths: &[StorePath],
        change: &dyn Fn(&PathInfo) -> Result<SignatureChange, &'static str>,
    ) -> Result<SigningOutcome, Error> {
        self.sign_now(paths.iter(), change)
    }

    fn objects(&self) -> &dyn NamedObjects {
        self.storage.as_objects()
    }

    fn lease_lifetime(&self) -> u32 {
        self.options.lease_lifetime
    }

    fn remove_temporaries(&self) -> Result<(), Error> {
        self.storage.create()
    }

    fn delete(&self, names: &[String], check: &dyn Fn() -> Result<(), Error>) -> Result<(), Error> {
        let mut replies = Replies::new(&Cancel::default());
        let mut failure = None;
        let mut unsent = names;
        loop {
            // A server may turn out not to delete many at once.
            let batch_len = self.storage.deletion_batch();
            let pending_max = (REQUESTS_MAX / batch_len).max(DELETION_BATCHES);
            while failure.is_none() && replies.pending() < pending_max && !unsent.is_empty() {
                if let Err(error) = check() {
                    failure = Some(error);
                    break;
                }
                let (batch, rest) = unsent.split_at(batch_len.min(unsent.len()));
                unsent = rest;
                let reply = replies.callback(|done| done);
                self.storage.delete(batch.to_vec(), reply);
            }
            // The deletions in flight end before the function does.
            match replies.next()? {
                None => break,
                Some(Ok(())) => {}
                Some(Err(error)) => _ = failure.get_or_insert(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => self.storage.sync(),
        }
    }
}

impl BinaryCacheWriter {
    /// Lists a folder with the facts of its objects.
    fn list_folder(&self, folder: Folder, cancel: &Cancel) -> Result<Vec<ListedObject>, Error> {
        let (list, name) = self.list_storage()?;
        let mut objects = list_objects(list, folder, (&name, cancel))?;
        list.examine(&mut objects)?;
        Ok(objects)
    }

    fn list_facts(
        &self,
        folder: Folder,
        cancel: &Cancel,
    ) -> Result<HashMap<String, CacheObject>, Error> {
        let objects = self.list_folder(folder, cancel)?.into_iter();
        Ok(objects.map(fact).collect())
    }

    /// Returns the targets of the links in the folder of NARs of a directory.
    fn link_targets<'a>(&self, names: impl Iterator<Item = &'a String>) -> HashSet<String> {
        let Some(directory) = self.storage.nar_directory().and_then(Path::parent) else {
            return HashSet::new();
        };
        let targets = names.filter_map(|name| fs::read_link(directory.join(name)).ok());
        let files = targets.filter_map(|target| Some(target.file_name()?.to_str()?.to_owned()));
        files.collect()
    }

    fn list_storage(&self) -> Result<(&dyn ListStorage, String), Error> {
        let source_name = self.storage.name();
        match self.storage.as_list() {
            Some(list) => Ok((list, source_name)),
            None => Err(Error::Unlistable { source_name }),
        }
    }

    /// Reads small objects. An error is that of a file that cannot be read.
    fn read(
        &self,
        names: &mut dyn Iterator<Item = String>,
        cancel: &Cancel,
        receive: &mut dyn FnMut(String, Result<Vec<u8>, UnusableNarInfo>),
    ) -> Result<(), Error> {
        let mut replies = Replies::new(cancel);
        loop {
            while replies.pending() < REQUESTS_MAX
                && let Some(name) = names.next()
            {
                let key = name.clone();
                let reply = replies.callback(move |found: GetResult| (key, found));
                self.storage.get(&name, CachePolicy::Bypass, reply);
            }
            let Some((name, found)) = replies.next()? else {
                return Ok(());
            };
            match found {
                // `None`: another process has deleted it since, or it is a link to nothing.
                Ok(found) => {
                    if let Some(contents) = found.into_contents() {
                        receive(name, Ok(contents));
                    }
                }
                // A directory, or a file of another user. The other objects can be read.
                Err(error @ Error::UnreadableFile { .. }) => {
                    let unusable = UnusableNarInfo {
                        reason: error.to_string(),
                        url: None,
                        is_unreadable: true,
                    };
                    receive(name, Err(unusable));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Parses a listed narinfo. Its path must have the hash part of its name.
    fn parse_listed(&self, name: &str, text: &[u8]) -> Result<NarInfo, String> {
        let narinfo = NarInfo::parse(text, &self.store_dir).map_err(|error| error.to_string())?;
        let path = &narinfo.info.path;
        if name.strip_suffix(NARINFO_SUFFIX) != Some(path.hash_part().as_str()) {
            return Err(format!("it is for {path}"));
        }
        Ok(narinfo)
    }
}

/// How many requests that delete many objects run at once.
const DELETION_BATCHES: usize = 4;

fn fact(object: ListedObject) -> (String, CacheObject) {
    let facts = CacheObject {
        len: object.len,
        modified: object.modified,
    };
    (object.name, facts)
}

/// Returns the URL of a narinfo that does not parse.
fn url_of(text: &[u8]) -> Option<String> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let url = lines.find_map(|line| line.strip_prefix(b"URL: "))?;
    Some(str::from_utf8(url).ok()?.trim().to_owned())
}

fn is_narinfo(name: &str) -> bool {
    has_hash_part(name, NARINFO_SUFFIX)
}

fn is_listing(name: &str) -> bool {
    has_hash_part(name, ".ls")
}

fn has_hash_part(name: &str, suffix: &str) -> bool {
    let part = name.strip_suffix(suffix);
    part.and_then(HashPart::parse).is_some()
}
