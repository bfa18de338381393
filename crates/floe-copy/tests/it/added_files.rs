//! Files that change between the two times that they are read.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use floe_copy::{AddedFiles, CopyRequest, FileToAdd, RequestedPaths, resolve_store_uri};
use floe_format::content_address::ContentAddressMethod;
use floe_format::{HashAlgorithm, StoreDir};
use floe_transfer::{Cancel, Error, UriContext};

/// Changes a directory with one file, whose contents are `before`.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 4] = [
    ("another process changed it", |tree| {
        fs::write(tree.join("file"), "aftern").unwrap();
    }),
    ("another process changed it", |tree| {
        fs::write(tree.join("file"), "before and after").unwrap();
    }),
    ("another process changed it", |tree| {
        fs::write(tree.join("file"), "").unwrap();
    }),
    ("cannot ", |tree| {
        fs::remove_file(tree.join("file")).unwrap()
    }),
];

/// Adds the directory or its file to a new store, and changes the file before it is copied.
/// Returns the failure of the copy.
fn add_changing(place: &Path, to: &str, method: ContentAddressMethod, change: Change) -> Error {
    let tree = place.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "before").unwrap();
    let file = match method {
        ContentAddressMethod::Flat => tree.join("file"),
        _ => tree.clone(),
    };
    let file = FileToAdd {
        file,
        name: Some("x".into()),
        method,
        algorithm: HashAlgorithm::Sha1,
    };
    let added = AddedFiles::read(&[file], StoreDir::default(), &Cancel::default()).unwrap();
    let paths = added.paths().map(ToString::to_string).collect();
    let target = resolve_store_uri(to, &UriContext::default()).unwrap();
    change(&tree);
    let paths = RequestedPaths::Named(paths);
    let request = CopyRequest::new(vec![Arc::new(added)], target, paths);
    let mut summary = request.open().unwrap().run().unwrap();
    assert_eq!((summary.copied, summary.failures.len()), (0, 1));
    summary.failures.remove(0)
}

/// Returns the names in a directory, which may be absent.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn file_that_changes_while_it_is_added_leaves_nothing() {
    for (message, change) in CHANGES {
        for method in [ContentAddressMethod::NixArchive, ContentAddressMethod::Flat] {
            let scratch = tempfile::tempdir().unwrap();
            let to = scratch.path().join("to");
            let uri = to.to_str().unwrap();
            let error = add_changing(scratch.path(), uri, method, change).to_string();
            assert!(error.contains(message), "{error}");
            assert!(error.contains("tree"), "{error}");
            // The new store is removed.
            assert!(!to.join("nix/store").exists() && !to.join("nix/var/nix/db").exists());

            let scratch = tempfile::tempdir().unwrap();
            let to = scratch.path().join("to");
            let uri = format!("file://{}", to.display());
            let error = add_changing(scratch.path(), &uri, method, change).to_string();
            assert!(error.contains(message), "{error}");
            let narinfos = names(&to)
                .into_iter()
                .filter(|name| name.ends_with(".narinfo"));
            assert_eq!(narinfos.count(), 0);
            assert_eq!(names(&to.join("nar")), [""; 0]);
        }
    }
}
