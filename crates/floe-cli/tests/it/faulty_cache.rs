//! A binary cache with one injected fault, and assertions about a store after an install from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::{Hash, NarInfo, SecretKey, StoreDir, StorePath};
use floe_store::StoreError;
use floe_store::tree::dump_path;
use floe_testkit::{CommandOutput, Corpus, Scratch, corpus, nixes, run, scratch};

use crate::support::floe;

/// A modifiable copy of a cache of the jq corpus, and a store root to install into.
pub(crate) struct FaultyCache {
    pub(crate) corpus: Corpus,
    pub(crate) cache: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) key: SecretKey,
    pub(crate) scratch: Scratch,
}

/// Copies the cache with this compression. Returns `None` if the corpus is missing.
pub(crate) fn faulty_cache(compression: &str) -> Option<FaultyCache> {
    let corpus = corpus("jq")?;
    let scratch = scratch();
    let key = fs::read_to_string(corpus.dir.join("key.sec")).unwrap();
    Some(FaultyCache {
        cache: corpus.cache_copy(compression, scratch.path()),
        root: scratch.join("root"),
        key: SecretKey::parse(key.trim()).unwrap(),
        corpus,
        scratch,
    })
}

impl FaultyCache {
    /// Returns the path whose name starts with `name`.
    pub(crate) fn path(&self, name: &str) -> StorePath {
        let dir = StoreDir::default();
        let mut paths = self
            .corpus
            .paths
            .iter()
            .map(|path| dir.parse(path).unwrap());
        paths.find(|path| path.name().starts_with(name)).unwrap()
    }

    fn narinfo_file(&self, path: &StorePath) -> PathBuf {
        self.cache.join(format!("{}.narinfo", path.hash_part()))
    }

    pub(crate) fn narinfo(&self, path: &StorePath) -> NarInfo {
        NarInfo::parse(
            &fs::read(self.narinfo_file(path)).unwrap(),
            &StoreDir::default(),
        )
        .unwrap()
    }

    /// Returns the NAR file of a path.
    pub(crate) fn nar(&self, path: &StorePath) -> PathBuf {
        self.cache.join(self.narinfo(path).url)
    }

    /// Replaces the narinfo of a path by `text`.
    pub(crate) fn write(&self, path: &StorePath, text: &str) {
        fs::write(self.narinfo_file(path), text).unwrap();
    }

    /// Edits the narinfo of a path and keeps its signature.
    pub(crate) fn edit(&self, path: &StorePath, edit: impl FnOnce(&mut NarInfo)) {
        let mut narinfo = self.narinfo(path);
        let before = narinfo.clone();
        edit(&mut narinfo);
        assert_ne!(narinfo, before, "the edit changed nothing");
        self.write(path, &narinfo.to_text(&StoreDir::default()));
    }

    /// Edits the narinfo of a path and signs it again with the trusted key.
    pub(crate) fn edit_signed(&self, path: &StorePath, edit: impl FnOnce(&mut NarInfo)) {
        self.edit(path, |narinfo| {
            edit(narinfo);
            narinfo.info.signatures.clear();
            narinfo.info.sign(&StoreDir::default(), &self.key);
        });
    }

    pub(crate) fn file_url(&self) -> String {
        format!("file://{}", self.cache.display())
    }

    /// Installs the root path of the corpus.
    pub(crate) fn install(&self, from: &str) -> CommandOutput {
        run(floe([
            "install",
            "--json",
            "--from",
            from,
            "--trusted-public-keys",
            &self.corpus.key,
            // Otherwise a server that is away would be waited for.
            "--option",
            "filetransfer-retry-attempts",
            "5",
        ])
        .arg("--root")
        .arg(&self.root)
        .arg(&self.corpus.root))
    }

    /// Returns all paths except those that are in `failed` or depend on them.
    pub(crate) fn paths_without(&self, failed: &[&StorePath]) -> BTreeSet<String> {
        let dir = StoreDir::default();
        let mut failed: BTreeSet<StorePath> = failed.iter().map(|path| (*path).clone()).collect();
        let untouched = self.corpus.cache("zstd");
        let infos = self.corpus.paths.iter().map(|path| {
            let path = dir.parse(path).unwrap();
            let text = fs::read(untouched.join(format!("{}.narinfo", path.hash_part())));
            NarInfo::parse(&text.unwrap(), &dir).unwrap().info
        });
        let infos: Vec<_> = infos.collect();
        // Each round adds the direct referrers of the paths found so far.
        for _ in &infos {
            let referrers = infos
                .iter()
                .filter(|info| !info.references.is_disjoint(&failed));
            let referrers: Vec<_> = referrers.map(|info| info.path.clone()).collect();
            failed.extend(referrers);
        }
        infos
            .iter()
            .map(|i| &i.path)
            .filter(|p| !failed.contains(p))
            .map(|p| dir.full_path(p))
            .collect()
    }

    /// Asserts that exactly `valid` is registered and that everything else in the store is a
    /// complete staged tree, kept for resume. Returns the paths of these trees.
    #[track_caller]
    pub(crate) fn assert_valid_paths(&self, valid: &BTreeSet<String>) -> BTreeSet<String> {
        let found = self.complete_paths();
        let left: BTreeSet<String> = list_store(&self.root).difference(&found).cloned().collect();
        assert_eq!(found, *valid, "on disk, locks included");
        assert_valid(&self.root, valid);
        let roots = fs::read_dir(self.root.join("nix/var/nix/temproots"));
        let is_kept = roots.is_ok_and(|mut roots| roots.next().is_some());
        assert_eq!(
            is_kept,
            !left.is_empty(),
            "temporary roots do not match the staged trees: {left:?}"
        );
        let path_of = |tree: &String| self.path_of_staged_tree(tree);
        left.iter().map(path_of).collect()
    }

    /// Lists the store directory without staged trees.
    pub(crate) fn complete_paths(&self) -> BTreeSet<String> {
        let mut found = list_store(&self.root);
        found.retain(|path| !path.contains("-floe-"));
        found
    }

    /// Returns the path that a staged tree will become. Asserts that the tree has the NAR hash of
    /// that path.
    #[track_caller]
    fn path_of_staged_tree(&self, tree: &str) -> String {
        let (place, hash_part) = (
            self.root.join(&tree[1..]),
            &tree["/nix/store/".len()..][..32],
        );
        let text = self
            .corpus
            .cache("zstd")
            .join(format!("{hash_part}.narinfo"));
        let narinfo = NarInfo::parse(&fs::read(text).unwrap(), &StoreDir::default()).unwrap();
        let mut nar = Vec::new();
        let mut keep = |chunk: &[u8]| -> Result<(), StoreError> {
            nar.extend_from_slice(chunk);
            Ok(())
        };
        dump_path(&place, &mut keep).unwrap();
        assert_eq!(Hash::sha256(floe_hash::sha256(&nar)), narinfo.info.nar_hash);
        StoreDir::default().full_path(&narinfo.info.path)
    }

    /// Asserts that an install fails with `code`, prints all of `says`, and installs everything
    /// except `failed` and its referrers. Then installs from the intact cache and asserts that
    /// this fetches only the missing paths.
    #[track_caller]
    pub(crate) fn assert_install_fails_for(
        &self,
        from: &str,
        failed: &[&StorePath],
        code: i32,
        says: &[&str],
    ) {
        self.assert_install_keeps_only(from, &self.paths_without(failed), code, says);
    }

    /// Does the same as `assert_install_fails_for`, with the set of installed paths given.
    #[track_caller]
    pub(crate) fn assert_install_keeps_only(
        &self,
        from: &str,
        kept: &BTreeSet<String>,
        code: i32,
        says: &[&str],
    ) {
        let mut ran = self.install(from).expect(code);
        for part in says {
            ran = ran.stderr_contains(part);
        }
        let json = ran.json();
        assert_eq!(json["copied"], kept.len());
        assert_eq!(
            json["paths"].as_array().unwrap().len(),
            0,
            "the root path cannot be valid"
        );
        let left = self.assert_valid_paths(kept);

        let again = self.install(&self.corpus.file_url("zstd")).expect(0).json();
        assert_eq!(
            again["reusedPaths"],
            left.len(),
            "fetched a staged tree again: {left:?}"
        );
        assert_eq!(again["copied"], self.corpus.paths.len() - kept.len());
        assert_eq!(again["alreadyValid"], kept.len());
        assert_store_contains_exactly(&self.root, &self.paths_without(&[]));
        floe_store::tree::remove_tree(&self.root).unwrap();
    }
}

/// Asserts that exactly `paths` are on disk and registered, and that neither floe nor Nix finds a
/// fault in the store.
#[track_caller]
pub(crate) fn assert_store_contains_exactly(root: &Path, paths: &BTreeSet<String>) {
    let found = list_store(root);
    assert_eq!(found, *paths, "on disk, temporary trees and locks included");
    assert_valid(root, paths);
}

/// Lists the store directory without `.links`. A failed copy leaves no new store.
fn list_store(root: &Path) -> BTreeSet<String> {
    if !root.exists() {
        return BTreeSet::new();
    }
    fs::read_dir(root.join("nix/store"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".links")
        .map(|name| format!("/nix/store/{name}"))
        .collect()
}

/// Asserts that exactly `paths` are valid, and that neither floe nor Nix finds a fault in them.
#[track_caller]
fn assert_valid(root: &Path, paths: &BTreeSet<String>) {
    if paths.is_empty() && !root.exists() {
        return;
    }
    assert_verified(root, paths.len());
    for nix in nixes() {
        nix.verify(root, paths.len());
        let args = ["path-info", "--all", "--store"];
        let valid = run(nix.command("nix", args).arg(root)).expect(0).stdout;
        let valid: BTreeSet<String> = valid.lines().map(str::to_owned).collect();
        assert_eq!(valid, *paths, "valid paths according to {}", nix.version);
    }
}

/// Asserts that `floe verify` finds `paths` valid paths and no fault.
#[track_caller]
pub(crate) fn assert_verified(root: &Path, paths: usize) {
    let verified = run(floe(["verify", "--json", "--root"]).arg(root))
        .expect(0)
        .json();
    assert_eq!(verified["paths"], paths);
}
