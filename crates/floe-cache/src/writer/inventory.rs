//! Lists what a cache has, and deletes objects of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use floe_format::NarInfo;
use floe_transfer::{
    CacheContents, CacheInventory, CacheObject, CachePolicy, CachedPath, Cancel, Error,
};
use parking_lot::Mutex;

use super::BinaryCacheWriter;
use crate::binary_cache::{NARINFO_SUFFIX, list_objects};
use crate::storage::{Folder, GetResult, REQUESTS_MAX, Replies};

impl CacheInventory for BinaryCacheWriter {
    fn exists(&self) -> bool {
        self.existed
    }

    fn list(&self, cancel: &Cancel) -> Result<CacheContents, Error> {
        let source_name = self.storage.name();
        let list = self.storage.as_list();
        let list = list.ok_or_else(|| Error::Unlistable {
            source_name: source_name.clone(),
        })?;
        let mut top = list_objects(list, Folder::Top, (&source_name, cancel))?;
        list.examine(&mut top)?;
        let times: HashMap<String, Option<SystemTime>> = top
            .into_iter()
            .map(|object| (object.name, object.modified))
            .collect();
        let mut contents = CacheContents::default();
        let mut replies = Replies::new(cancel);
        let mut unsent = times.iter();
        loop {
            while replies.pending() < REQUESTS_MAX
                && let Some((name, modified)) = unsent.next()
            {
                let (key, modified) = (name.clone(), *modified);
                let reply = replies.callback(move |found: GetResult| (key, modified, found));
                self.storage.get(name, CachePolicy::Bypass, reply);
            }
            let Some((name, modified, found)) = replies.next()? else {
                break;
            };
            let text = match found {
                Ok(found) => found.into_contents(),
                // A directory, or a file of another user. The other narinfos can be read.
                Err(error @ Error::UnreadableFile { .. }) => {
                    contents.unusable.insert(name, error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(text) = text else {
                // Another process has deleted it since, or it is a link to nothing.
                continue;
            };
            match self.parse_listed(&name, &text) {
                Ok(narinfo) => {
                    let found = CachedPath { narinfo, modified };
                    let path = found.narinfo.info.path.clone();
                    contents.narinfos.insert(path, found);
                }
                Err(reason) => _ = contents.unusable.insert(name, reason),
            }
        }
        let mut nars = list_objects(list, Folder::Nars, (&source_name, cancel))?;
        list.examine(&mut nars)?;
        contents.nars = nars
            .into_iter()
            .map(|object| {
                let found = CacheObject {
                    len: object.len,
                    modified: object.modified,
                };
                (object.name, found)
            })
            .collect();
        Ok(contents)
    }

    fn delete(&self, names: &[String], cancel: &Cancel) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || {
            while failure.lock().is_none()
                && let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let deleted = if cancel.is_raised() {
                    Err(Error::Cancelled)
                } else {
                    self.storage.delete(name)
                };
                if let Err(error) = deleted {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..DELETIONS_MAX.min(names.len()) {
                // Without a thread, the others delete more.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        match failure.into_inner() {
            Some(error) => Err(error),
            None => self.storage.sync(),
        }
    }
}

impl BinaryCacheWriter {
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

/// How many objects are deleted at once. Each waits for the reply of the server.
const DELETIONS_MAX: usize = 16;
