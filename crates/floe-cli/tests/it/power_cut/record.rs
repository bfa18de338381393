//! The record of paths that may not have reached the disk: absent, lost, and read by a dry run.

use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::{corpus, nixes, run, scratch};

use super::{after_restart, boot_id, install};

const NONE: [&str; 0] = [];

fn record_file(root: &Path) -> PathBuf {
    root.join("nix/var/nix/db/floe-sync-record")
}

/// Returns the last row that is on disk according to the record.
fn synced_row(root: &Path) -> usize {
    let text = fs::read_to_string(record_file(root)).unwrap();
    let mut rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("synced-row "));
    rows.next().unwrap().parse().unwrap()
}

/// Empties a file of a store, as a power cut may do. Returns the store path's base name.
fn empty_a_file(root: &Path, path: &str) -> String {
    let name = path.strip_prefix("/nix/store/").unwrap().to_owned();
    let binary = root.join("nix/store").join(&name).join("usr/bin/jq");
    assert!(fs::metadata(&binary).unwrap().len() > 0);
    fs::write(&binary, "").unwrap();
    name
}

#[test]
fn lost_record_causes_a_warning_and_a_new_record() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let rows = corpus.paths.len();
    run(&mut install(&corpus, &root, NONE)).expect(0);
    let losses: [(&str, &dyn Fn()); 2] = [
        ("it was deleted", &|| {
            fs::remove_file(record_file(&root)).unwrap();
        }),
        ("it belongs to another database", &|| {
            let text = fs::read_to_string(record_file(&root)).unwrap();
            let text = text.replace("synced-row ", "synced-row 9");
            fs::write(record_file(&root), text).unwrap();
        }),
    ];
    for (reason, lose) in losses {
        lose();
        run(&mut install(&corpus, &root, NONE))
            .expect(0)
            .stderr_contains(&format!("not have reached the disk: {reason}"));
        assert_eq!(synced_row(&root), rows, "{reason}");
        let ran = run(&mut install(&corpus, &root, NONE)).expect(0);
        assert_only_outcome(&ran.stderr);
    }
}

/// Asserts that there is no warning.
#[track_caller]
fn assert_only_outcome(stderr: &str) {
    let is_outcome = stderr.starts_with("nothing to do: ") && stderr.lines().count() == 1;
    assert!(is_outcome, "{stderr}");
}

#[test]
fn store_of_nix_gets_a_record_without_a_check() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        let to = format!("local?root={}", root.display());
        let from = corpus.file_url("zstd");
        let copy = ["copy", "--no-check-sigs", "--from", &from, "--to", &to];
        run(nix.command("nix", copy).arg(&corpus.root)).expect(0);
        // floe would find this if it hashed the store.
        empty_a_file(&root, &corpus.root);
        let ran = run(&mut install(&corpus, &root, NONE)).expect(0);
        assert_only_outcome(&ran.stderr);
        assert_eq!(synced_row(&root), corpus.paths.len(), "{}", nix.version);
    }
}

#[test]
fn dry_run_after_restart_lists_damaged_paths() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    run(&mut install(&corpus, &root, NONE)).expect(0);
    assert_eq!(synced_row(&root), 0);
    let name = empty_a_file(&root, &corpus.root);
    let before = fs::read(record_file(&root)).unwrap();
    let boot_id = boot_id(&scratch);
    let dry_run = install(&corpus, &root, ["--dry-run"]);
    // In the boot of the install, the files are in the page cache.
    assert_eq!(
        run(&mut install(&corpus, &root, ["--dry-run"]))
            .expect(0)
            .stdout,
        ""
    );
    let ran = run(&mut after_restart(&dry_run, &boot_id)).expect(0);
    assert!(
        ran.stdout.starts_with(&format!("/nix/store/{name} ")),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
    let warning = format!("replacing {name}: its files in the store are damaged");
    let ran = ran.stderr_contains(&warning);
    assert_eq!(
        fs::read(record_file(&root)).unwrap(),
        before,
        "{}",
        ran.stderr
    );
    let repair = install(&corpus, &root, NONE);
    run(&mut after_restart(&repair, &boot_id))
        .expect(0)
        .stderr_contains("checking 6 paths whose files may not have reached the disk")
        .stderr_contains(&warning);
}
