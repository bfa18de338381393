//! `--optimise` creates the same hard links as `nix-store --optimise`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use floe_testkit::{
    CommandOutput, Corpus, Nix, corpora, corpus, nixes, ran_in_pid_namespace, run, scratch, tree,
};

use crate::support::floe;

fn install(corpus: &Corpus, root: &Path, options: &[&str]) -> CommandOutput {
    let mut command = floe(["install", "--from", &corpus.file_url("zstd"), "--json"]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    run(command.arg(root).args(options).arg(&corpus.root)).expect(0)
}

/// Lists `.links`.
fn links(root: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join("nix/store/.links")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Returns the inodes of all files and symlinks of a store, and the number of directory entries.
fn inodes(root: &Path) -> (BTreeSet<u64>, usize) {
    fn gather(at: &Path, found: &mut (BTreeSet<u64>, usize)) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            if stat.is_dir() {
                gather(&path, found);
            } else {
                found.0.insert(stat.ino());
                found.1 += 1;
            }
        }
    }
    let mut found = Default::default();
    gather(&root.join("nix/store"), &mut found);
    found
}

/// Runs `nix-store --optimise` and returns its stderr.
fn optimise(nix: &Nix, root: &Path) -> String {
    let mut command = nix.command("nix-store", ["--store"]);
    run(command.arg(root).arg("--optimise")).expect(0).stderr
}

#[test]
fn links_equal_those_of_nix_store_optimise() {
    if ran_in_pid_namespace() {
        return;
    }
    let mut compared = 0;
    for nix in nixes() {
        for corpus in corpora() {
            let scratch = scratch();
            let [plain, ours, theirs] = ["plain", "ours", "theirs"].map(|name| scratch.join(name));
            install(&corpus, &plain, &[]);
            install(&corpus, &ours, &["--optimise"]);
            let from = corpus.file_url("zstd");
            let copy = ["copy", "--no-check-sigs", "--from", &from, "--to"];
            run(nix.command("nix", copy).arg(&theirs).arg(&corpus.root)).expect(0);
            assert!(links(&plain).is_empty() && links(&theirs).is_empty());
            optimise(&nix, &theirs);

            assert_eq!(links(&ours), links(&theirs), "{}", nix.version);
            let ((ours_distinct, ours_all), (theirs_distinct, theirs_all)) =
                (inodes(&ours), inodes(&theirs));
            assert_eq!(ours_distinct.len(), theirs_distinct.len());
            assert_eq!(ours_all, theirs_all);
            // Every file is linked, and some files share an inode.
            assert_eq!(ours_distinct.len(), links(&ours).len());
            assert!(
                ours_distinct.len() < inodes(&plain).0.len(),
                "no files share an inode"
            );
            assert_eq!(tree(&ours), tree(&plain));
            assert_eq!(tree(&ours), tree(&theirs));
            compared += ours_distinct.len();

            nix.verify(&ours, corpus.paths.len());
            let verified = run(floe(["verify", "--json", "--root"]).arg(&ours))
                .expect(0)
                .json();
            assert_eq!(verified["links"], links(&ours).len());
            let stderr = optimise(&nix, &ours);
            assert!(stderr.contains("freed by hard-linking 0 files"), "{stderr}");
            assert_eq!(inodes(&ours).0, ours_distinct);
            // Garbage collection also deletes unused links.
            nix.store(&ours, ["--gc"]);
            assert!(links(&ours).is_empty());
        }
    }
    assert!(compared > 0 || nixes().is_empty(), "no store was compared");
}

#[test]
fn optimising_installs_survive_concurrent_nix_gc_and_optimise() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root, &["--optimise"]);
        let done = AtomicBool::new(false);
        let collections = thread::scope(|scope| {
            let nix_thread = scope.spawn(|| {
                let mut collections = 0;
                while !done.load(Ordering::Relaxed) {
                    nix.store(&root, ["--gc"]);
                    nix.store(&root, ["--optimise"]);
                    collections += 1;
                }
                collections
            });
            let installs = (0..INSTALLS).map(|_| {
                let mut command = floe(["install", "--optimise", "--no-check-sigs", "--root"]);
                command
                    .arg(&root)
                    .args(["--from", &corpus.file_url("zstd")]);
                run(command.arg(&corpus.root))
            });
            let installs: Vec<CommandOutput> = installs.collect();
            done.store(true, Ordering::Relaxed);
            let collections = nix_thread.join().unwrap();
            for ran in installs {
                ran.expect(0);
            }
            collections
        });
        assert!(collections > 1, "{collections} collections");
        install(&corpus, &root, &["--optimise"]);
        nix.verify(&root, corpus.paths.len());
        run(floe(["verify", "--root"]).arg(&root)).expect(0);
    }
}

#[test]
fn auto_optimise_store_enables_linking_for_stores_only() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let links_after_install = |name: &str, options: &[&str]| {
        let root = scratch.join(name);
        install(&corpus, &root, options);
        links(&root)
    };
    let expected = links_after_install("expected", &["--optimise"]);
    assert!(!expected.is_empty());
    let setting = ["--option", "auto-optimise-store"];
    assert_eq!(
        links_after_install("set", &[&setting[..], &["true"]].concat()),
        expected
    );
    assert!(links_after_install("unset", &[&setting[..], &["false"]].concat()).is_empty());
    assert!(links_after_install("default", &[]).is_empty());

    // The same for a copy between stores. A cache cannot be optimised.
    let from = scratch.join("default").display().to_string();
    let copy = |to: &str, options: &[&str]| {
        let mut command = floe(["copy", "--no-check-sigs", "--from", &from, "--to", to]);
        command.env("NIX_CONFIG", "auto-optimise-store = true");
        run(command.args(options).arg(&corpus.root))
    };
    let to = scratch.join("copy");
    copy(&to.display().to_string(), &[]).expect(0);
    assert_eq!(links(&to), expected);
    let cache = format!(
        "file://{}?compression=none",
        scratch.join("cache").display()
    );
    copy(&cache, &[]).expect(0);
    copy(&cache, &["--optimise"])
        .expect(2)
        .stderr_contains("optimise or reuse");
}

#[test]
fn damaged_link_is_replaced_with_warning() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let whole = scratch.join("whole");
    install(&corpus, &whole, &["--optimise"]);
    let link_path = |root: &Path, name: &str| root.join("nix/store/.links").join(name);
    let sizes = links(&whole).into_iter().filter_map(|name| {
        let stat = fs::symlink_metadata(link_path(&whole, &name)).unwrap();
        stat.is_file().then_some((stat.len(), name))
    });
    let (len, name) = sizes.max().unwrap();
    // A crash can leave a link of the right name with half of its contents.
    let damaged = |name_of_root: &str| {
        let root = scratch.join(name_of_root);
        fs::create_dir_all(root.join("nix/store/.links")).unwrap();
        let half = usize::try_from(len / 2).unwrap();
        fs::write(link_path(&root, &name), vec![0; half]).unwrap();
        root
    };
    let root = damaged("root");
    install(&corpus, &root, &["--optimise"])
        .stderr_contains("warning")
        .stderr_contains(&name);
    assert_eq!(links(&root), links(&whole));
    let verified = run(floe(["verify", "--json", "--root"]).arg(&root))
        .expect(0)
        .json();
    assert_eq!(verified["links"], links(&root).len());
    let logged = install(
        &corpus,
        &damaged("json"),
        &["--optimise", "--log-format", "json"],
    );
    let line = logged.stderr.lines().find(|line| line.contains(&name));
    assert!(line.unwrap().contains("\"event\":\"warning\""), "{line:?}");
}

/// Enough for some collections to run between two installs and some during one.
const INSTALLS: usize = 20;
