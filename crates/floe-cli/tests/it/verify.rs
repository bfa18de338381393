//! `floe verify` finds the same faults as `nix-store --verify --check-contents`, and changes
//! nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use floe_testkit::{Corpus, corpus, find_tool, nixes, run, scratch, skip, tree};

use crate::support::floe;

fn writable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn modified_and_missing_paths_are_found_by_floe_and_nix() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        run(floe(["copy", "--no-check-sigs", "--from"])
            .arg(corpus.store())
            .arg("--to")
            .arg(&root)
            .arg(&corpus.root))
        .expect(0);
        let on_disk = |path: &str| root.join(&path[1..]);

        // Modify a byte in a file of the root path, and the mode of a file of another path.
        let program = on_disk(&corpus.root).join("usr/bin/jq");
        writable(&program);
        let mut bytes = fs::read(&program).unwrap();
        bytes[100] ^= 1;
        fs::write(&program, bytes).unwrap();
        let other = corpus
            .paths
            .iter()
            .find(|path| path.contains("-libc6-"))
            .unwrap();
        let copyright = on_disk(other).join("usr/share/doc/libc6/copyright");
        assert!(
            copyright.exists(),
            "the corpus has changed: no {}",
            copyright.display()
        );
        fs::set_permissions(&copyright, fs::Permissions::from_mode(0o555)).unwrap();
        // Remove a path that others depend on.
        let lost = corpus
            .paths
            .iter()
            .find(|path| path.contains("-libonig"))
            .unwrap();
        floe_store::tree::remove_tree(&on_disk(lost)).unwrap();

        let before = fs::read(root.join("nix/var/nix/db/db.sqlite")).unwrap();
        let ours = run(floe(["verify", "--json", "--root"]).arg(&root))
            .expect(3)
            .json();
        let mut faults: Vec<(&str, &str)> = ours["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| {
                (
                    fault["path"].as_str().unwrap(),
                    fault["kind"].as_str().unwrap(),
                )
            })
            .collect();
        faults.sort_unstable();
        let mut expected = vec![
            (corpus.root.as_str(), "modified"),
            (other.as_str(), "modified"),
            (lost.as_str(), "disappeared"),
        ];
        expected.sort_unstable();
        assert_eq!(faults, expected);
        assert_eq!(
            fs::read(root.join("nix/var/nix/db/db.sqlite")).unwrap(),
            before
        );

        let theirs = run(nix
            .command("nix-store", ["--store"])
            .arg(&root)
            .args(["--verify", "--check-contents"]))
        .expect(1)
        .stderr;
        for (path, kind) in expected {
            let said = theirs
                .lines()
                .any(|line| line.contains(path) && line.contains(kind));
            assert!(
                said,
                "{} does not report that {path} {kind}: {theirs}",
                nix.version
            );
        }
    }
}

#[test]
fn single_paths_are_verified_and_unknown_ones_are_faults() {
    let Some(corpus) = corpus("jq") else { return };
    let ran = run(floe(["verify", "--json", "--store"])
        .arg(corpus.store())
        .arg(&corpus.root));
    assert_eq!(ran.expect(0).json()["paths"], 1);
    let unknown = "/nix/store/00000000000000000000000000000000-unknown";
    let ran = run(floe(["verify", "--store"]).arg(corpus.store()).arg(unknown)).expect(3);
    assert!(ran.stdout.contains("is not valid"), "{}", ran.stdout);
}

/// A later Nix may divide the links among directories.
#[test]
fn directory_among_the_links_is_no_problem() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--optimise"]);
    install.args(["--trusted-public-keys", &corpus.key, "--root"]);
    run(install.arg(&root).arg(&corpus.root)).expect(0);
    let shard = root.join("nix/store/.links/0a");
    fs::create_dir(&shard).unwrap();
    fs::write(shard.join("file"), "contents").unwrap();
    for command in ["verify", "gc", "optimise", "verify"] {
        run(floe([command, "--root"]).arg(&root)).expect(0);
    }
    assert!(shard.join("file").exists());
}

#[test]
fn directory_without_store_is_named() {
    let scratch = scratch();
    run(floe(["verify", "--root"]).arg(scratch.path()))
        .expect(4)
        .stderr_contains("cannot open the Nix store");
}

/// Damages the store of the jq corpus: changes a file, removes a path on which others depend, and
/// empties a file.
fn damaged_store(corpus: &Corpus, root: &Path) {
    run(floe(["copy", "--no-check-sigs", "--from"])
        .arg(corpus.store())
        .arg("--to")
        .arg(root)
        .arg(&corpus.root))
    .expect(0);
    let on_disk = |path: &str| root.join(&path[1..]);
    let program = on_disk(&corpus.root).join("usr/bin/jq");
    writable(&program);
    fs::write(&program, "").unwrap();
    let lost = corpus.paths.iter().find(|path| path.contains("-libonig"));
    floe_store::tree::remove_tree(&on_disk(lost.unwrap())).unwrap();
}

#[test]
fn repair_replaces_damaged_and_missing_paths() {
    let Some(corpus) = corpus("jq") else { return };
    let from = corpus.file_url("zstd");
    let root_option = |root: &Path| root.display().to_string();
    for install in [false, true] {
        let scratch = scratch();
        let root = scratch.join("root");
        damaged_store(&corpus, &root);
        let root_option = root_option(&root);
        let mut command = if install {
            floe(["install", "--repair", "--from", &from])
        } else {
            floe(["verify", "--repair", "--json", "--from", &from])
        };
        command.args(["--trusted-public-keys", &corpus.key, "--root", &root_option]);
        if install {
            command.arg(&corpus.root);
        }
        let ran = run(&mut command).expect(0);
        if !install {
            assert_eq!(ran.json()["repaired"], 2);
        }
        run(&mut floe(["verify", "--root", &root_option])).expect(0);
        assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
    }
}

#[test]
fn repair_of_a_kept_path_does_not_say_that_nothing_keeps_it() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let install = |more: &[&str]| {
        let mut command = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
        command
            .arg(&root)
            .args(["--trusted-public-keys", &corpus.key, &corpus.root]);
        run(command.args(more)).expect(0)
    };
    let said = "nothing protects them";
    assert!(install(&[]).stderr.contains(said));
    let link = scratch.join("link").display().to_string();
    install(&["-o", &link]);
    let place = format!("{}{}", root.display(), corpus.root);
    floe_store::tree::remove_tree(Path::new(&place)).unwrap();
    let repaired = install(&["--repair"]);
    assert!(
        repaired.stderr.contains("installed 1 path"),
        "{}",
        repaired.stderr
    );
    assert!(!repaired.stderr.contains(said), "{}", repaired.stderr);
}

#[test]
fn repair_without_a_source_of_the_path_fails_and_is_repeated_by_install() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, empty) = (scratch.join("root"), scratch.join("empty"));
    damaged_store(&corpus, &root);
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let from = format!("file://{}", empty.display());
    run(floe(["verify", "--repair", "--from", &from, "--root"]).arg(&root))
        .expect(3)
        .stderr_contains("0 repaired");
    // The store remembers what was damaged.
    let from = corpus.file_url("zstd");
    run(floe(["install", "--from", &from, "--root"])
        .arg(&root)
        .args(["--trusted-public-keys", &corpus.key, &corpus.root]))
    .expect(0)
    .stderr_contains("its files in the store are damaged");
    run(floe(["verify", "--root"]).arg(&root)).expect(0);
}

/// Returns the command that repairs the store below `root`.
fn repair(corpus: &Corpus, root: &Path) -> Command {
    let mut command = floe(["verify", "--repair", "--json"]);
    command.args(["--from", &corpus.file_url("zstd")]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root);
    command
}

/// Adds differences that change the kinds of files to a damaged store.
fn exchange_kinds(corpus: &Corpus, root: &Path) {
    let place = root.join(&corpus.root[1..]);
    writable(&place);
    let usr = place.join("usr");
    writable(&usr);
    writable(&usr.join("share"));
    fs::rename(usr.join("share"), usr.join("other")).unwrap();
    fs::write(usr.join("share"), "file").unwrap();
    fs::create_dir(place.join("new")).unwrap();
}

#[test]
fn repair_replaces_files_where_trees_cannot_be_exchanged() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(strace) = find_tool("strace", "strace") else {
        return;
    };
    for error in ["EXDEV", "EINVAL"] {
        let scratch = scratch();
        let root = scratch.join("root");
        damaged_store(&corpus, &root);
        exchange_kinds(&corpus, &root);
        let mut traced = Command::new(&strace);
        traced.args(["-f", "-qq", "-o", "/dev/null"]);
        traced
            .arg("-e")
            .arg(format!("inject=renameat2:error={error}"));
        let repair = repair(&corpus, &root);
        traced.arg(repair.get_program()).args(repair.get_args());
        assert_eq!(run(&mut traced).expect(0).json()["repaired"], 2, "{error}");
        run(floe(["verify", "--root"]).arg(&root)).expect(0);
        assert!(tree(&root) == tree(&corpus.store()), "{error}");
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
    }
}

#[test]
fn repair_replaces_a_path_of_a_lower_overlay_layer() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(unshare) = find_tool("unshare", "util-linux") else {
        return;
    };
    let scratch = scratch();
    let lower = scratch.join("lower");
    damaged_store(&corpus, &lower);
    exchange_kinds(&corpus, &lower);
    let root = scratch.join("root");
    fs::create_dir(&root).unwrap();
    // A directory of an overlay cannot be the upper layer of another one.
    let mount = format!(
        "set -e; mount -t tmpfs floe-test '{0}'; mkdir '{0}/upper' '{0}/work' '{0}/root'; \
         mount -t overlay overlay -o 'lowerdir={1},upperdir={0}/upper,workdir={0}/work' '{0}/root'",
        root.display(),
        lower.display()
    );
    let probe = run(Command::new(&unshare).args(["--mount", "/bin/sh", "-c", &mount]));
    if probe.code != Some(0) {
        skip("overlay", "mounting an overlay is not permitted");
        return;
    }
    let repair = repair(&corpus, &root.join("root"));
    let mut mounted = Command::new(unshare);
    let script = format!(
        "{mount}; \"$@\"; \"$0\" verify --root '{}'",
        root.join("root").display()
    );
    mounted.args(["--mount", "/bin/sh", "-c", &script]);
    mounted.arg(repair.get_program());
    mounted.arg(repair.get_program()).args(repair.get_args());
    run(&mut mounted).expect(0);
}
