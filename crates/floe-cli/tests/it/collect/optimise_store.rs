//! `floe optimise`: the same hard links as those of `nix-store --optimise`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use floe_testkit::{Nix, corpora, corpus, nixes, run, scratch, setpriv_to_nobody, tree};

use super::{floe_in, install, names};

/// The groups of files of a store that share an inode, `.links` included.
fn shared(root: &Path) -> BTreeSet<BTreeSet<PathBuf>> {
    fn gather(at: &Path, root: &Path, found: &mut BTreeMap<u64, BTreeSet<PathBuf>>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            if stat.is_dir() {
                gather(&path, root, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_path_buf();
                found.entry(stat.ino()).or_default().insert(name);
            }
        }
    }
    let mut found = BTreeMap::new();
    gather(&root.join("nix/store"), root, &mut found);
    found.into_values().collect()
}

fn optimise_by_nix(nix: &Nix, root: &Path) -> String {
    let mut command = nix.command("nix-store", ["--store"]);
    run(command.arg(root).arg("--optimise")).expect(0).stderr
}

#[test]
fn optimised_store_equals_that_of_nix_file_by_file() {
    let mut compared = 0;
    for nix in nixes() {
        for corpus in corpora() {
            let scratch = scratch();
            let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
            install(&corpus, &ours);
            install(&corpus, &theirs);
            let before = tree(&ours);
            let none = shared(&ours);
            let planned = run(floe_in(&ours, &["optimise"]).args(["--dry-run", "--json"]));
            let planned = planned.expect(0).json();
            assert_eq!(shared(&ours), none, "a dry run linked files");
            let done = run(floe_in(&ours, &["optimise"]).arg("--json"))
                .expect(0)
                .json();
            let said = optimise_by_nix(&nix, &theirs);
            assert_eq!(shared(&ours), shared(&theirs), "{}", nix.version);
            assert_ne!(shared(&ours), none);
            assert_eq!(tree(&ours), before);
            assert_eq!(planned["filesLinked"], done["filesLinked"]);
            assert_eq!(planned["bytesFreed"], done["bytesFreed"]);
            let count = format!("freed by hard-linking {} files", done["filesLinked"]);
            assert!(said.contains(&count), "{count}: {said}");
            compared += shared(&ours).len();
            nix.verify(&ours, corpus.paths.len());
            let again = run(floe_in(&ours, &["optimise"]).arg("--json"))
                .expect(0)
                .json();
            assert_eq!(again["filesLinked"], 0);
        }
    }
    assert!(compared > 0 || nixes().is_empty());
}

#[test]
fn ordinary_user_optimises_a_store() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(mut nobody) = setpriv_to_nobody() else {
        return;
    };
    let scratch = scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (root, copy) = (scratch.join("root"), scratch.join("floe"));
    floe_testkit::copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &copy);
    let script = "set -e; \"$0\" install --root \"$1\" --no-check-sigs --from \"$2\" \"$3\"; \
                  \"$0\" optimise --root \"$1\"; \"$0\" verify --root \"$1\"; \
                  \"$0\" gc --root \"$1\"";
    nobody.args(["sh", "-c", script]).arg(&copy).arg(&root);
    let ran = run(nobody
        .args([&corpus.file_url("zstd"), &corpus.root])
        .env("HOME", "/nonexistent"));
    let ran = ran.expect(0);
    assert!(ran.stderr.contains("linked"), "{}", ran.stderr);
    assert!(ran.stderr.contains("deleted"), "{}", ran.stderr);
    assert_eq!(
        names(&root.join("nix/store")),
        BTreeSet::from([".links".into()])
    );
    assert_eq!(names(&root.join("nix/store/.links")), BTreeSet::new());
}

#[test]
fn writable_and_damaged_files_are_reported() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let path = root.join(corpus.root.trim_start_matches('/'));
    let writable = path.join("share/writable");
    fs::create_dir_all(path.join("share")).unwrap();
    fs::write(&writable, "x").unwrap();
    let ran = run(&mut floe_in(&root, &["optimise"])).expect(0);
    assert!(ran.stderr.contains("skipping"), "{}", ran.stderr);
    assert!(ran.stderr.contains("share/writable"), "{}", ran.stderr);
    // A link with other contents than its name tells.
    let links = root.join("nix/store/.links");
    let link = names(&links).into_iter().map(|name| links.join(name));
    let link = link
        .max_by_key(|link| fs::symlink_metadata(link).unwrap().len())
        .unwrap();
    let len = fs::metadata(&link).unwrap().len();
    fs::remove_file(&link).unwrap();
    fs::write(&link, vec![0; usize::try_from(len / 2).unwrap()]).unwrap();
    // Two names of one file need no link from one to the other.
    let own = root
        .join(corpus.paths[0].trim_start_matches('/'))
        .join("own");
    fs::write(&own, "own").unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o444)).unwrap();
    fs::hard_link(&own, own.with_file_name("own-too")).unwrap();
    let planned = run(floe_in(&root, &["optimise"]).args(["--dry-run", "--json"]));
    let planned = planned.expect(0).json();
    let ran = run(floe_in(&root, &["optimise"]).arg("--json")).expect(0);
    for count in ["filesLinked", "bytesFreed", "writableFiles"] {
        assert_eq!(ran.json()[count], planned[count], "{count}");
    }
    assert!(
        ran.stderr
            .contains("replaced 1 file in .links whose contents did not match"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::metadata(&link).unwrap().len(), len);
}
