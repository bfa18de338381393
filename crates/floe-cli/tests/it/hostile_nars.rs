//! Malformed NARs and NARs that try to write outside the store. They are signed and have the
//! correct hash. floe must reject them, write nothing but the path's staged tree, and remove that.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::nar::write;
use floe_format::{Compression, Hash, NarInfo, PathInfo, SecretKey, StoreDir, StorePath, nix32};
use floe_testkit::{Scratch, nars, nixes, run, scratch};

use crate::faulty_cache::assert_store_contains_exactly;
use crate::support::floe;

/// A cache of hostile paths, and files next to it that must not change.
struct Fixture {
    scratch: Scratch,
    key: SecretKey,
    canary: PathBuf,
}

fn fixture() -> Fixture {
    let scratch = scratch();
    let canary = scratch.join("canary");
    fs::create_dir_all(canary.join("directory")).unwrap();
    fs::write(canary.join("file"), "alive\n").unwrap();
    fs::create_dir_all(scratch.join("cache/nar")).unwrap();
    fs::write(
        scratch.join("cache/nix-cache-info"),
        "StoreDir: /nix/store\n",
    )
    .unwrap();
    let key = SecretKey::from_seed("throwaway-1", [1; 32]).unwrap();
    Fixture {
        scratch,
        key,
        canary,
    }
}

impl Fixture {
    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    fn cache(&self) -> String {
        format!("file://{}", self.scratch.join("cache").display())
    }

    /// Publishes a NAR as a signed path with this name. Returns its store path.
    fn publish(&self, name: &str, nar: &[u8]) -> String {
        self.publish_as(name, nar, nar)
    }

    /// Publishes a NAR with the signed hash and size of `claimed`.
    fn publish_as(&self, name: &str, nar: &[u8], claimed: &[u8]) -> String {
        let digest = nix32::encode(&floe_hash::sha256(name.as_bytes()));
        let path = StorePath::parse(&format!("{}-{name}", &digest[..32])).unwrap();
        let mut info = PathInfo {
            path: path.clone(),
            nar_hash: Hash::sha256(floe_hash::sha256(claimed)),
            nar_size: claimed.len() as u64,
            references: BTreeSet::new(),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        info.sign(&StoreDir::default(), &self.key);
        let url = format!("nar/{name}.nar");
        let cache = self.scratch.join("cache");
        fs::write(cache.join(&url), nar).unwrap();
        let compression = Compression::None;
        let narinfo = NarInfo {
            info,
            url,
            compression,
            file_hash: None,
            file_size: None,
        };
        let file = cache.join(format!("{}.narinfo", path.hash_part()));
        fs::write(file, narinfo.to_text(&StoreDir::default())).unwrap();
        StoreDir::default().full_path(&path)
    }

    #[track_caller]
    fn install(&self, paths: &[&String], code: i32) -> String {
        let key = self.key.public().to_string();
        let mut command = floe([
            "install",
            "--from",
            &self.cache(),
            "--trusted-public-key",
            &key,
        ]);
        run(command.arg("--root").arg(self.root()).args(paths))
            .expect(code)
            .stderr
    }

    /// Lists everything below the scratch directory except the stores.
    fn files_outside_stores(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        list_files(self.scratch.path(), &mut found);
        found
    }
}

fn list_files(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        let (mode, time) = (stat.mode(), (stat.mtime(), stat.mtime_nsec()));
        if path.ends_with("nix/store") || path.ends_with("nix/var") {
            continue;
        }
        let contents = if stat.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let hash = Hash::sha256(floe_hash::sha256(&contents)).digest_nix32();
        found.insert(path.clone(), format!("{mode:o} {time:?} {hash}"));
        if stat.is_dir() {
            list_files(&path, found);
        }
    }
}

#[test]
fn hostile_nars_are_rejected_without_a_trace() {
    let fixture = fixture();
    let good = fixture.publish("good", &nars::file(b"good\n"));
    fixture.install(&[&good], 0);
    let nars = cases::hostile(&fixture.canary);
    let published: Vec<_> = nars
        .iter()
        .map(|(name, nar)| fixture.publish(name, nar))
        .collect();
    let also_good = fixture.publish("also-good", &nars::file(b"also good\n"));
    let before = fixture.files_outside_stores();
    assert!(
        before.contains_key(&fixture.canary.join("file")),
        "the canary is not in the listing"
    );
    let alone = BTreeSet::from([good.clone()]);
    for ((name, _), path) in nars.iter().zip(&published) {
        let stderr = fixture.install(&[path], 3);
        assert!(stderr.contains("cannot read NAR"), "{name}: {stderr}");
        let store = fs::read_dir(fixture.root().join("nix/store")).unwrap();
        let left: Vec<_> = store.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{name} left files in the store: {left:?}");
        assert_eq!(
            fixture.files_outside_stores(),
            before,
            "{name} wrote outside the store"
        );
    }
    assert_store_contains_exactly(&fixture.root(), &alone);
    // In one install with a good path, only the good one is installed.
    let all: Vec<&String> = published.iter().chain([&also_good]).collect();
    fixture.install(&all, 3);
    assert_store_contains_exactly(&fixture.root(), &BTreeSet::from([good, also_good]));
    assert_eq!(fixture.files_outside_stores(), before);
}

#[test]
fn wrong_nar_hashes_fail_only_their_paths() {
    // Enough paths for the hash pool on up to 32 cores, if the CPU supports multi-lane hashing.
    const PATHS: usize = 60;
    let contents = |number: usize| vec![number as u8; 1000 + number * number * 300];
    let fixture = fixture();
    let (mut good, mut all) = (BTreeSet::new(), Vec::new());
    for number in 0..PATHS {
        let name = format!("path-{number}");
        let nar = nars::file(&contents(number));
        // Include small files and the largest one.
        let is_wrong = number % 10 == 3 || number == PATHS - 1;
        let claimed = if is_wrong {
            nars::file(&vec![b'x'; contents(number).len()])
        } else {
            nar.clone()
        };
        let path = fixture.publish_as(&name, &nar, &claimed);
        if !is_wrong {
            good.insert(path.clone());
        }
        all.push(path);
    }
    let stderr = fixture.install(&all.iter().collect::<Vec<_>>(), 3);
    let rejected = stderr.matches("the NAR hash is").count();
    assert_eq!(rejected, PATHS - good.len(), "{stderr}");
    assert_store_contains_exactly(&fixture.root(), &good);
}

#[test]
fn nix_rejects_the_same_nars() {
    let nixes = nixes();
    for (number, nix) in nixes.iter().enumerate() {
        let fixture = fixture();
        let mut accepted = Vec::new();
        for (name, nar) in cases::hostile(&fixture.canary) {
            let path = fixture.publish(name, &nar);
            let copy = [
                "copy",
                "--no-check-sigs",
                "--from",
                &fixture.cache(),
                "--to",
            ];
            let ran = run(nix.command("nix", copy).arg(fixture.root()).arg(path));
            if ran.code == Some(0) {
                accepted.push(name);
            }
        }
        // The newest Nix comes last.
        let is_newest = number > 0 && number + 1 == nixes.len();
        accepted.retain(|name| is_newest || !ACCEPTED_BY_OLD_NIX.contains(name));
        assert!(accepted.is_empty(), "{} accepts {accepted:?}", nix.version);
    }
}

/// NARs that Nix 2.8 accepts and the newest Nix rejects.
const ACCEPTED_BY_OLD_NIX: [&str; 6] = [
    "unsorted",
    "unsorted-prefix",
    "target-nul",
    "too-deep",
    "far-too-deep",
    "entry-without-node",
];

#[test]
fn symlinks_out_of_a_path_are_kept_and_not_followed() {
    let fixture = fixture();
    let canary = fixture.canary.to_str().unwrap().as_bytes();
    let mut root_link = nars::start();
    write::symlink(&mut root_link, canary);
    let inner_links = nars::directory(&[
        (b"a", &|nar| write::symlink(nar, canary)),
        (b"b", &|nar| {
            write::symlink(nar, b"../../../../canary/directory")
        }),
        (b"c", &|nar| write::symlink(nar, b"/nix/store/.links")),
    ]);
    let paths = [
        fixture.publish("root-link", &root_link),
        fixture.publish("links", &inner_links),
    ];
    let before = fixture.files_outside_stores();
    fixture.install(&paths.each_ref(), 0);
    let after = fixture.files_outside_stores();
    let outside_root = |found: &BTreeMap<PathBuf, String>| -> Vec<_> {
        let outside_root = found
            .iter()
            .filter(|(path, _)| !path.starts_with(fixture.root()));
        outside_root
            .map(|(path, what)| (path.clone(), what.clone()))
            .collect()
    };
    assert_eq!(outside_root(&after), outside_root(&before));
    let installed = fixture.root().join(&paths[0][1..]);
    assert_eq!(fs::read_link(&installed).unwrap(), fixture.canary);
    assert_store_contains_exactly(&fixture.root(), &paths.into());
}

#[test]
fn symlink_in_place_of_a_path_is_replaced_and_not_followed() {
    let fixture = fixture();
    let path = fixture.publish("good", &nars::file(b"good\n"));
    let other = fixture.publish("other", &nars::file(b"other\n"));
    fixture.install(&[&other], 0);
    let place = fixture.root().join(&path[1..]);
    std::os::unix::fs::symlink(&fixture.canary, &place).unwrap();
    let before = fixture.files_outside_stores();
    fixture.install(&[&path], 0);
    assert_eq!(fixture.files_outside_stores(), before);
    assert!(
        fs::symlink_metadata(&place).unwrap().is_file(),
        "the path is still a symlink"
    );
    assert_store_contains_exactly(&fixture.root(), &BTreeSet::from([path, other]));
}
