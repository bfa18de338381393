//! Content-addressed paths. They need no signature, but their contents must match.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::content_address::{ContentAddress, ContentAddressMethod, ModuloHasher};
use floe_format::{Compression, Hash, HashAlgorithm, NarInfo, PathInfo, StoreDir, StorePath};
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
    let cache = Cache(scratch.join("cache"));
    fs::create_dir_all(cache.0.join("nar")).unwrap();
    fs::write(cache.0.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let contents =
        |hash_part: &str| nars::file(format!("{hash_part} harmless {hash_part}").as_bytes());
    let blank = "x".repeat(32);
    let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, &blank);
    hasher.update(&contents(&blank));
    let hashes = hasher.finish_both();
    let mut accepted = vec![0; nixes().len()];
    for (name, hash) in [("with", hashes.hash), ("without", hashes.without_offsets)] {
        let (dir, method) = (StoreDir::default(), ContentAddressMethod::NixArchive);
        let ca = ContentAddress { method, hash };
        let path = ca.store_path(&dir, name, &BTreeSet::new(), true).unwrap();
        let nar = contents(path.hash_part().as_str());
        cache.write(&path, &self_referencing_narinfo(&path, ca));
        cache.replace(&path, &nar);
        let root = scratch.join(name);
        cache.install(&root, &path, 0, &[]);
        assert_store_contains_exactly(&root, &BTreeSet::from([full_path(&path)]));
        // Nix hashes the offsets of self-references up to 2.16 and after 2.34, but not from 2.17
        // to 2.34.
        for (nix, accepted) in nixes().iter().zip(&mut accepted) {
            let args = ["copy", "--from", &cache.url(), "--to"];
            let to = scratch.join(&format!("by-nix-{}", nix.version.replace(' ', "-")));
            let ran = run(nix.command("nix", args).arg(to).arg(full_path(&path)));
            *accepted += i32::from(ran.code == Some(0));
        }

        let root = scratch.join(&format!("{name}-changed"));
        let mut wrong = vec![
            replace_once(&nar, b"harmless", b"harmful!"),
            contents(&blank),
        ];
        if name == "with" {
            // The hash treats the hash part as zeros, but actual zeros there are different
            // contents.
            let twice = format!(" harmless {}", path.hash_part());
            wrong.push(replace_once(
                &nar,
                twice.as_bytes(),
                &[&b" harmless "[..], &[0; 32]].concat(),
            ));
        }
        for wrong in wrong {
            cache.replace(&path, &wrong);
            cache.install(&root, &path, 3, &["the content hash is", path.as_str()]);
        }
        assert_store_contains_exactly(&root, &BTreeSet::new());
    }
    assert!(
        accepted.iter().all(|&accepted| accepted >= 1),
        "a Nix accepted no form: {accepted:?}"
    );
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
