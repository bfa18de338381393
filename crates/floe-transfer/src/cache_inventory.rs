//! The contents of a binary cache, object by object, for its maintenance.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::time::SystemTime;

use floe_format::{HashPart, NarInfo, PathInfo, StorePath};
use percent_encoding::percent_decode_str;

use crate::cancel::Cancel;
use crate::error::Error;
use crate::named_objects::NamedObjects;
use crate::signing::{SignatureChange, SigningOutcome};

/// Lists and deletes the objects of a binary cache.
pub trait CacheInventory: Debug + Send + Sync {
    /// Whether there was a cache when it was opened.
    fn exists(&self) -> bool;

    /// Reads all narinfos, and lists the files of NARs.
    ///
    /// Errors: [`Error::Unlistable`], those of the storage, [`Error::Cancelled`].
    fn list(&self, cancel: &Cancel) -> Result<CacheContents, Error>;

    /// Lists the names and times of all objects, and reads none.
    ///
    /// Errors: as [`CacheInventory::list`].
    fn names(&self, cancel: &Cancel) -> Result<CacheNames, Error>;

    /// Reads narinfos by the names of their objects, many at once and in any order. Leaves out
    /// absent ones.
    ///
    /// Errors: the first one of the storage; [`Error::Cancelled`].
    fn read_narinfos(
        &self,
        names: &mut dyn Iterator<Item = String>,
        cancel: &Cancel,
        receive: &mut dyn FnMut(String, Result<NarInfo, UnusableNarInfo>),
    ) -> Result<(), Error>;

    /// Reads small objects by their names, such as links to debug information, as
    /// [`CacheInventory::read_narinfos`] does.
    fn read_objects(
        &self,
        names: &mut dyn Iterator<Item = String>,
        cancel: &Cancel,
        receive: &mut dyn FnMut(String, Vec<u8>),
    ) -> Result<(), Error>;

    /// Keeps paths from a collection until the end of this value, also those that are absent.
    /// Waits for a collection that deletes some of them now.
    ///
    /// Errors: those of the storage; [`Error::Cancelled`].
    fn keep(&self, hash_parts: &[HashPart]) -> Result<(), Error>;

    /// Changes the signatures of narinfos as `change` wants, which gets what each states now. Other
    /// fields stay.
    ///
    /// Errors: those of the storage; [`Error::Cancelled`]. One of `change` is in
    /// [`SigningOutcome::different`].
    fn change_signatures(
        &self,
        paths: &[StorePath],
        change: &dyn Fn(&PathInfo) -> Result<SignatureChange, &'static str>,
    ) -> Result<SigningOutcome, Error>;

    /// Returns the interface to pins, leases and the plan.
    fn objects(&self) -> &dyn NamedObjects;

    /// Returns for how many seconds a lease or a plan of this program counts after each write.
    fn lease_lifetime(&self) -> u32;

    /// Removes the temporary files that killed writers have left, unless another writer runs.
    ///
    /// Errors: those of the storage.
    fn remove_temporaries(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Deletes objects, many at once. An absent object is no error. Calls `check` before each
    /// object.
    ///
    /// Errors: the first one of the storage or of `check`, after which no deletion begins.
    fn delete(&self, names: &[String], check: &dyn Fn() -> Result<(), Error>) -> Result<(), Error>;
}

/// A narinfo that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableNarInfo {
    /// Why.
    pub reason: String,
    /// The file of its NAR, if it names one.
    pub url: Option<String>,
    /// Whether its text could not be read at all.
    pub is_unreadable: bool,
}

/// The objects of a binary cache by their names, such as `nar/HASH.nar.zst`, with their facts.
#[derive(Clone, Debug, Default)]
pub struct CacheNames {
    /// The narinfos.
    pub narinfos: HashMap<String, CacheObject>,
    /// The listings, `HASH.ls`.
    pub listings: HashMap<String, CacheObject>,
    /// The files of NARs, and the records of staged ones.
    pub nars: BTreeMap<String, CacheObject>,
    /// The targets of links beside the files of NARs, without their folder.
    pub link_targets: HashSet<String>,
    /// The logs of builds.
    pub logs: HashMap<String, CacheObject>,
    /// The realisations.
    pub realisations: HashMap<String, CacheObject>,
    /// The links to debug information.
    pub debug_info: HashMap<String, CacheObject>,
}

/// The objects of a binary cache.
#[derive(Clone, Debug, Default)]
pub struct CacheContents {
    /// The narinfos that parse, by their paths.
    pub narinfos: BTreeMap<StorePath, CachedPath>,
    /// The files in `nar/` by their names in the cache, such as `nar/HASH.nar.zst`.
    pub nars: BTreeMap<String, CacheObject>,
    /// The narinfos that cannot be used, by the names of their objects, with the reasons.
    pub unusable: BTreeMap<String, String>,
    /// The narinfos that cannot be read, such as files of another user. Other users may be able to
    /// read them.
    pub unreadable: BTreeMap<String, String>,
}

/// A path of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedPath {
    /// The narinfo.
    pub narinfo: NarInfo,
    /// When the narinfo was written, if the cache tells.
    pub modified: Option<SystemTime>,
}

/// A file of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheObject {
    /// The length in bytes, if the cache tells; `None` for what is no file, such as a directory.
    pub len: Option<u64>,
    /// When it was written, if the cache tells.
    pub modified: Option<SystemTime>,
}

/// Returns the name of a file in its folder by the URL of a narinfo, which has several spellings:
/// `nar/x`, `./nar//x` or `file:///srv/cache/nar/x`.
pub fn file_name_of_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    percent_decode_str(name).decode_utf8_lossy().into_owned()
}

impl CachedPath {
    /// Returns the name of the object with the narinfo.
    pub fn object_name(&self) -> String {
        format!("{}.narinfo", self.narinfo.info.path.hash_part())
    }
}

impl CacheContents {
    /// Returns the names of the files of NARs that no narinfo names.
    pub fn unreferenced_nars(&self) -> Vec<&str> {
        let used: HashSet<&str> = self.used_nars().collect();
        let names = self.nars.keys().map(String::as_str);
        names.filter(|name| !used.contains(name)).collect()
    }

    fn used_nars(&self) -> impl Iterator<Item = &str> {
        let narinfos = self.narinfos.values();
        narinfos.map(|path| path.narinfo.url.as_str())
    }

    /// Returns the paths that refer to each path, except for itself.
    pub fn referrers(&self) -> HashMap<&StorePath, Vec<&StorePath>> {
        let mut referrers: HashMap<_, Vec<_>> = HashMap::new();
        for (path, found) in &self.narinfos {
            for reference in found
                .narinfo
                .info
                .references
                .iter()
                .filter(|it| *it != path)
            {
                referrers.entry(reference).or_default().push(path);
            }
        }
        referrers
    }

    /// Returns the objects whose deletion removes some paths: the narinfos, and then the files that
    /// only they name.
    pub fn objects_of(&self, paths: &[StorePath]) -> Vec<String> {
        let found = paths.iter().filter_map(|path| self.narinfos.get(path));
        let mut names: Vec<String> = found.clone().map(CachedPath::object_name).collect();
        let removed: BTreeSet<&StorePath> = paths.iter().collect();
        let others = self
            .narinfos
            .iter()
            .filter(|(path, _)| !removed.contains(path));
        let kept: HashSet<&str> = others.map(|(_, it)| it.narinfo.url.as_str()).collect();
        let urls: BTreeSet<&str> = found.map(|it| it.narinfo.url.as_str()).collect();
        let files = urls
            .into_iter()
            .filter(|url| !kept.contains(url) && self.nars.contains_key(*url));
        names.extend(files.map(str::to_owned));
        names
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use floe_format::StoreDir;

    use super::*;

    fn narinfo(name: &str, url: &str, references: &str) -> CachedPath {
        let text = format!(
            "StorePath: /nix/store/{name}\nURL: {url}\nCompression: none\n\
             NarHash: sha256:0yzcdk0y0mjhn0szq6j5mhi5knxxmdylyyhf0h2mxbqvdjzwa5rj\n\
             NarSize: 1000\nReferences: {references}\n"
        );
        CachedPath {
            narinfo: NarInfo::parse(text.as_bytes(), &StoreDir::default()).unwrap(),
            modified: None,
        }
    }

    fn contents() -> (CacheContents, [StorePath; 3]) {
        let names = ["a", "b", "c"].map(|name| format!("{}-{name}", name.repeat(32)));
        let [a, b, c] = &names;
        let mut contents = CacheContents::default();
        for (name, url, references) in [
            (a, "nar/x", a.as_str()),
            (b, "nar/x", a.as_str()),
            (c, "nar/y", ""),
        ] {
            let found = narinfo(name, url, references);
            let path = found.narinfo.info.path.clone();
            contents.narinfos.insert(path, found);
        }
        for name in ["nar/x", "nar/y", "nar/z"] {
            contents.nars.insert(name.into(), CacheObject::default());
        }
        (contents, names.map(|name| StorePath::parse(&name).unwrap()))
    }

    #[test]
    fn shared_nar_is_deleted_with_its_last_narinfo() {
        let (contents, [a, b, c]) = contents();
        let object = |path: &StorePath| format!("{}.narinfo", path.hash_part());
        assert_eq!(contents.objects_of(slice::from_ref(&a)), [object(&a)]);
        assert_eq!(
            contents.objects_of(&[b.clone(), a.clone()]),
            [object(&b), object(&a), "nar/x".into()]
        );
        assert_eq!(
            contents.objects_of(slice::from_ref(&c)),
            [object(&c), "nar/y".into()]
        );
        assert_eq!(contents.unreferenced_nars(), ["nar/z"]);
    }

    #[test]
    fn path_is_no_referrer_of_itself() {
        let (contents, [a, b, c]) = contents();
        let referrers = contents.referrers();
        assert_eq!(referrers[&a], [&b]);
        assert_eq!(referrers.get(&c), None);
    }
}
