//! Content-addressed paths. They need no signature, but their contents must match.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::content_address::{
    ContentAddress, ContentAddressMethod, ModuloHasher, ModuloHashes,
};
use floe_format::{
    Compression, Hash, HashAlgorithm, NarInfo, PathInfo, SecretKey, StoreDir, StorePath,
};
use floe_testkit::{Nix, Scratch, nars, nixes, run, scratch};

use crate::faulty_cache::assert_store_contains_exactly;
use crate::support::floe;

/// An unsigned cache in a directory.
struct Cache(PathBuf);

impl Cache {
    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    fn narinfo(&self, path: &StorePath) -> NarInfo {
        let text = fs::read(self.0.join(format!("{}.narinfo", path.hash_part()))).unwrap();
        NarInfo::parse(&text, &StoreDir::default()).unwrap()
    }

    fn write(&self, path: &StorePath, narinfo: &NarInfo) {
        let text = narinfo.to_text(&StoreDir::default());
        fs::write(self.0.join(format!("{}.narinfo", path.hash_part())), text).unwrap();
    }

    /// Replaces the NAR of a path and all narinfo fields that describe it, except the content
    /// address.
    fn replace(&self, path: &StorePath, nar: &[u8]) {
        let mut narinfo = self.narinfo(path);
        narinfo.url = format!("nar/replaced-{}.nar", path.hash_part());
        fs::write(self.0.join(&narinfo.url), nar).unwrap();
        narinfo.info.nar_hash = Hash::sha256(floe_hash::sha256(nar));
        narinfo.info.nar_size = nar.len() as u64;
        (narinfo.file_hash, narinfo.file_size) = (None, None);
        self.write(path, &narinfo);
    }

    /// Adds a path that refers to itself. `choose` selects the hash in its content address.
    fn add_self_referencing(
        &self,
        name: &str,
        choose: impl FnOnce(ModuloHashes) -> Hash,
    ) -> (StorePath, Vec<u8>) {
        let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, BLANK);
        hasher.update(&self_referencing_nar(BLANK));
        let ca = ContentAddress {
            method: ContentAddressMethod::NixArchive,
            hash: choose(hasher.finish_both()),
        };
        let path = ca.store_path(&StoreDir::default(), name, &BTreeSet::new(), true);
        let path = path.unwrap();
        let nar = self_referencing_nar(path.hash_part().as_str());
        self.write(&path, &self_referencing_narinfo(&path, ca));
        self.replace(&path, &nar);
        (path, nar)
    }

    /// Installs a path. The only trusted key is that of cache.nixos.org, which signed none of
    /// these.
    #[track_caller]
    fn install(&self, root: &Path, path: &StorePath, code: i32, says: &[&str]) {
        let mut ran = run(floe(["install", "--from", &self.url(), "--root"])
            .arg(root)
            .arg(path.as_str()))
        .expect(code);
        for part in says {
            ran = ran.stderr_contains(part);
        }
    }
}

/// Lets Nix create one path for every content-addressing method that is not experimental, and
/// copies them to a cache.
fn content_addressed_paths(nix: &Nix, scratch: &Scratch) -> (Cache, Vec<StorePath>) {
    let (file, tree) = (scratch.join("file"), scratch.join("tree"));
    fs::write(&file, "harmless contents\n").unwrap();
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("directory/file"), "harmless contents\n").unwrap();
    std::os::unix::fs::symlink("directory/file", tree.join("link")).unwrap();
    let store = scratch.join("store");
    let mut paths: Vec<StorePath> = Vec::new();
    let mut add_path = |printed: &str| {
        let path = StoreDir::default().parse(printed.trim()).unwrap();
        assert!(!paths.contains(&path), "{path} was created twice");
        paths.push(path);
    };
    for source in [&file, &tree] {
        add_path(&nix.store(&store, ["--add".as_ref(), source.as_os_str()]));
    }
    for algorithm in ["md5", "sha1", "sha256", "sha512"] {
        let args = ["--add-fixed", algorithm].map(AsRef::as_ref);
        add_path(&nix.store(&store, [&args[..], &[file.as_os_str()]].concat()));
        if algorithm != "sha256" {
            let args = ["--add-fixed", "--recursive", algorithm].map(AsRef::as_ref);
            add_path(&nix.store(&store, [&args[..], &[tree.as_os_str()]].concat()));
        }
    }
    let expression = r#"derivation { name = "top"; system = "x"; builder = "/harmless";
        source = builtins.toFile "text" "harmless contents"; }"#;
    let instantiate = ["--store", store.to_str().unwrap(), "-E", expression];
    add_path(
        &run(&mut nix.command("nix-instantiate", instantiate))
            .expect(0)
            .stdout,
    );

    let cache = Cache(scratch.join("cache"));
    run(floe(["copy", "--all", "--from"])
        .arg(&store)
        .args(["--to", &format!("{}?compression=none", cache.url())]))
    .expect(0);
    (cache, paths)
}

#[test]
fn content_addressed_path_needs_no_signature_but_right_contents() {
    for nix in nixes() {
        let scratch = scratch();
        let (cache, paths) = content_addressed_paths(&nix, &scratch);
        let methods: BTreeSet<String> = paths
            .iter()
            .map(|path| cache.narinfo(path).info.ca.unwrap().to_string())
            .map(|ca| ca[..ca.rfind(':').unwrap()].to_owned())
            .collect();
        assert_eq!(methods.len(), 9, "{methods:?}");
        let root = scratch.join("root");
        for path in &paths {
            cache.install(&root, path, 0, &[]);
        }
        run(floe(["verify", "--root"]).arg(&root)).expect(0);
        nix.verify(&root, paths.len() + 1);

        for path in &paths {
            let untouched = cache.narinfo(path);
            assert!(untouched.info.signatures.is_empty(), "{path} is signed");
            let nar = fs::read(cache.0.join(&untouched.url)).unwrap();
            let changed = replace_once(&nar, b"harmless", b"harmful!");
            cache.replace(path, &changed);
            let root = scratch.join(&format!("root-{}", path.hash_part()));
            cache.install(
                &root,
                path,
                3,
                &["the content hash is", path.as_str(), "cannot accept"],
            );
            let kept: BTreeSet<String> = untouched.info.references.iter().map(full_path).collect();
            assert_store_contains_exactly(&root, &kept);
            // Nix also treats the path as content-addressed, and also rejects the contents.
            let args = ["copy", "--from", &cache.url(), "--to"];
            let by_nix = run(nix
                .command("nix", args)
                .arg(scratch.join("by-nix"))
                .arg(full_path(path)));
            assert_ne!(by_nix.code, Some(0), "{} accepted {path}", nix.version);
            cache.write(path, &untouched);
            cache.install(&root, path, 0, &[]);
        }
    }
}

#[test]
fn content_address_of_another_path_is_rejected() {
    for nix in nixes() {
        let scratch = scratch();
        let (cache, paths) = content_addressed_paths(&nix, &scratch);
        let root = scratch.join("root");
        for (path, other) in paths.iter().zip(paths.iter().skip(1)) {
            let untouched = cache.narinfo(path);
            let ca = untouched.info.ca.unwrap();
            let method = match ca.method {
                ContentAddressMethod::NixArchive => ContentAddressMethod::Flat,
                _ => ContentAddressMethod::NixArchive,
            };
            for wrong in [
                cache.narinfo(other).info.ca.unwrap(),
                ContentAddress { method, ..ca },
            ] {
                let mut narinfo = untouched.clone();
                narinfo.info.ca = Some(wrong);
                cache.write(path, &narinfo);
                let says = [path.as_str(), "its content address", "another path"];
                cache.install(&root, path, 3, &says);
            }
            // References are part of the content address.
            let mut narinfo = untouched.clone();
            narinfo.info.references.insert(other.clone());
            cache.write(path, &narinfo);
            cache.install(&root, path, 3, &["belongs to another path"]);
            // Without a content address, the path needs a signature.
            narinfo = untouched.clone();
            narinfo.info.ca = None;
            cache.write(path, &narinfo);
            cache.install(&root, path, 3, &["cannot trust"]);
            cache.write(path, &untouched);
        }
        assert_store_contains_exactly(&root, &BTreeSet::new());
    }
}

#[test]
fn self_referencing_content_addressed_path_is_verified() {
    let scratch = scratch();
    let cache = empty_cache(&scratch);
    let (path, nar) = cache.add_self_referencing("x", |hashes| hashes.hash);
    let root = scratch.join("root");
    cache.install(&root, &path, 0, &[]);
    assert_store_contains_exactly(&root, &BTreeSet::from([full_path(&path)]));
    let root = scratch.join("changed");
    for wrong in [
        replace_once(&nar, b"harmless", b"harmful!"),
        self_referencing_nar(BLANK),
        // The hash treats the hash part as zeros, but actual zeros there are different contents.
        with_zeros_for_reference(&nar, &path),
    ] {
        cache.replace(&path, &wrong);
        cache.install(&root, &path, 3, &["the content hash is", path.as_str()]);
    }
    assert_store_contains_exactly(&root, &BTreeSet::new());
}

/// Nix from 2.17 to 2.34 does not hash where a path refers to itself, so that different contents
/// have the same content address. Other versions refuse such paths.
#[test]
fn content_address_without_offsets_needs_signature() {
    let scratch = scratch();
    let cache = empty_cache(&scratch);
    let (path, nar) = cache.add_self_referencing("x", |hashes| hashes.without_offsets);
    let changed = with_zeros_for_reference(&nar, &path);
    let root = scratch.join("root");
    for nar in [&nar, &changed] {
        cache.replace(&path, nar);
        let says = [path.as_str(), "cannot trust", "Nix 2.17 to 2.34"];
        cache.install(&root, &path, 3, &says);
    }
    cache.replace(&path, &replace_once(&nar, b"harmless", b"harmful!"));
    cache.install(&root, &path, 3, &["the content hash is", path.as_str()]);
    assert_store_contains_exactly(&root, &BTreeSet::new());

    cache.replace(&path, &nar);
    let install = |root: &Path, trust: &[&str]| {
        let mut command = floe(["install", "--from", &cache.url(), "--root"]);
        run(command.arg(root).args(trust).arg(path.as_str())).expect(0);
        assert_store_contains_exactly(root, &BTreeSet::from([full_path(&path)]));
    };
    install(&scratch.join("unchecked"), &["--no-check-sigs"]);
    let key = SecretKey::from_seed("key-1", [7; 32]).unwrap();
    let mut narinfo = cache.narinfo(&path);
    narinfo.info.sign(&StoreDir::default(), &key);
    cache.write(&path, &narinfo);
    let key = key.public().to_string();
    install(&root, &["--trusted-public-keys", &key]);
}

#[test]
fn every_nix_accepts_one_form_of_self_reference() {
    let scratch = scratch();
    let cache = empty_cache(&scratch);
    let paths = [
        cache.add_self_referencing("with", |hashes| hashes.hash).0,
        cache
            .add_self_referencing("without", |hashes| hashes.without_offsets)
            .0,
    ];
    for nix in nixes() {
        let accepted = paths.iter().filter(|path| {
            let args = ["copy", "--from", &cache.url(), "--to"];
            let to = scratch.join(&format!("by-nix-{}", nix.version.replace(' ', "-")));
            run(nix.command("nix", args).arg(to).arg(full_path(path))).code == Some(0)
        });
        assert!(accepted.count() >= 1, "{} accepts no form", nix.version);
    }
}

fn empty_cache(scratch: &Scratch) -> Cache {
    let cache = Cache(scratch.join("cache"));
    fs::create_dir_all(cache.0.join("nar")).unwrap();
    fs::write(cache.0.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    cache
}

/// Stands for the hash part of a path that is not known yet.
const BLANK: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

fn self_referencing_nar(hash_part: &str) -> Vec<u8> {
    nars::file(format!("{hash_part} harmless {hash_part}").as_bytes())
}

/// Replaces the second self-reference by zeros.
fn with_zeros_for_reference(nar: &[u8], path: &StorePath) -> Vec<u8> {
    let second = format!(" harmless {}", path.hash_part());
    replace_once(
        nar,
        second.as_bytes(),
        &[&b" harmless "[..], &[0; 32]].concat(),
    )
}

/// Returns a narinfo for a path that references itself. The caller adds the NAR.
fn self_referencing_narinfo(path: &StorePath, ca: ContentAddress) -> NarInfo {
    let info = PathInfo {
        path: path.clone(),
        nar_hash: ca.hash,
        nar_size: 1,
        references: BTreeSet::from([path.clone()]),
        deriver: None,
        signatures: BTreeSet::new(),
        ca: Some(ca),
        registration_time: None,
        ultimate: false,
    };
    let (url, compression) = ("nar/later".to_owned(), Compression::None);
    NarInfo {
        info,
        url,
        compression,
        file_hash: None,
        file_size: None,
    }
}

fn full_path(path: &StorePath) -> String {
    StoreDir::default().full_path(path)
}

/// Replaces the first occurrence of `from` by bytes of the same length. Panics if there is none.
fn replace_once(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}
