//! Tests with trees that have no rows yet.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_format::{SecretKey, StoreDir};

use super::*;
use crate::disk::StoreLayout;

struct Store {
    _root: tempfile::TempDir,
    writer: StoreWriter,
}

impl Store {
    fn new() -> Store {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let writer = StoreWriter::open(layout).unwrap();
        Store {
            _root: root,
            writer,
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.writer.layout().real_path(&path(name))
    }

    /// Makes a tree, and returns its registration.
    fn tree(&self, name: &str, references: &[&str]) -> ValidityRegistration {
        fs::write(self.place(name), name).unwrap();
        let mut nar = Vec::new();
        crate::tree::dump_path(&self.place(name), &mut |chunk| {
            nar.extend_from_slice(chunk);
            Ok::<_, StoreError>(())
        })
        .unwrap();
        ValidityRegistration {
            path: path(name),
            nar: Some((Hash::sha256(floe_hash::sha256(&nar)), nar.len() as u64)),
            deriver: None,
            references: references.iter().map(|name| path(name)).collect(),
        }
    }

    fn load(&self, registrations: &[&ValidityRegistration]) -> Result<(), String> {
        let trees = ExistingTrees {
            reregister: true,
            canonicalise: false,
        };
        self.register(registrations, trees)
    }

    fn register(
        &self,
        registrations: &[&ValidityRegistration],
        trees: ExistingTrees,
    ) -> Result<(), String> {
        let all = registrations.iter().map(|it| (*it).clone()).collect();
        let registered = self.writer.register_existing(all, trees);
        registered.map_err(|error| error.to_string())
    }

    fn info(&self, name: &str) -> Option<PathInfo> {
        self.writer.path_info(&path(name)).unwrap()
    }
}

fn path(name: &str) -> StorePath {
    StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap()
}

#[test]
fn rows_are_written_in_the_order_of_references() {
    let store = Store::new();
    let a = store.tree("a", &["b", "a"]);
    let b = store.tree("b", &[]);
    store.load(&[&a, &b]).unwrap();
    let info = store.info("a").unwrap();
    assert_eq!(Some((info.nar_hash, info.nar_size)), a.nar);
    assert_eq!(info.references, a.references);
    // The tree stays as it is, and a second call changes nothing.
    let mode = fs::metadata(store.place("a")).unwrap().permissions().mode();
    assert_ne!(mode & 0o200, 0);
    store.load(&[&a, &b]).unwrap();
    assert_eq!(store.info("a"), Some(info));
}

#[test]
fn more_paths_than_locks_are_registered() {
    let store = Store::new();
    let mut all = vec![store.tree("n0", &[])];
    for number in 1..LOCKS_MAX * 2 + 2 {
        let before = format!("n{}", number - 1);
        all.push(store.tree(&format!("n{number}"), &[&before]));
    }
    all.reverse();
    store.load(&all.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(
        store.writer.query_missing(&[all[0].path.clone()]).unwrap(),
        []
    );
}

#[test]
fn wrong_contents_and_references_register_nothing() {
    let store = Store::new();
    let good = store.tree("good", &[]);
    let changed = store.tree("changed", &[]);
    fs::write(store.place("changed"), "other").unwrap();
    let error = store.load(&[&good, &changed]).unwrap_err();
    assert!(error.contains("its NAR has the hash"), "{error}");
    let mut absent = store.tree("absent", &[]);
    fs::remove_file(store.place("absent")).unwrap();
    let error = store.load(&[&good, &absent]).unwrap_err();
    assert!(error.contains("cannot examine"), "{error}");
    absent.nar = None;
    store.load(&[&good, &absent]).unwrap_err();
    let referrer = store.tree("referrer", &["absent"]);
    let error = store.load(&[&good, &referrer]).unwrap_err();
    assert!(error.contains("are not valid"), "{error}");
    assert_eq!(store.info("good"), None);
    let circle = [store.tree("c", &["d"]), store.tree("d", &["c"])];
    // One transaction has both.
    store.load(&[&circle[0], &circle[1]]).unwrap();
}

#[test]
fn valid_paths_change_only_if_that_is_wanted() {
    let store = Store::new();
    let first = store.tree("a", &[]);
    let referred = store.tree("b", &[]);
    store.load(&[&first, &referred]).unwrap();
    let key = SecretKey::from_seed("k", [1; 32]).unwrap();
    store.writer.sign(&[path("a")], &[key]).unwrap();
    let mut second = store.tree("a", &["b"]);
    second.deriver = Some(path("x.drv"));
    let keep = ExistingTrees::default();
    store.register(&[&second], keep).unwrap();
    assert_eq!(store.info("a").unwrap().references.len(), 0);
    store.load(&[&second]).unwrap();
    let info = store.info("a").unwrap();
    assert_eq!((info.references.len(), info.signatures.len()), (1, 1));
    assert_eq!(info.deriver, None);
    // References are never removed. Signatures of other contents have no meaning.
    fs::write(store.place("a"), "other").unwrap();
    second.nar = None;
    second.references.clear();
    store.load(&[&second]).unwrap();
    let info = store.info("a").unwrap();
    assert_eq!((info.references.len(), info.signatures.len()), (1, 0));
    assert_ne!(Some((info.nar_hash, info.nar_size)), first.nar);
}

#[test]
fn canonical_copies_replace_trees() {
    let store = Store::new();
    let mut a = store.tree("a", &["b"]);
    a.nar = None;
    let b = store.tree("b", &[]);
    let trees = ExistingTrees {
        reregister: false,
        canonicalise: true,
    };
    store.register(&[&a, &b], trees).unwrap();
    for name in ["a", "b"] {
        let metadata = fs::metadata(store.place(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o444);
        assert_eq!(metadata.mtime(), 1);
        assert_eq!(fs::read_to_string(store.place(name)).unwrap(), name);
    }
    assert_eq!(store.info("a").unwrap().references, a.references);
}
