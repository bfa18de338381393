//! Old generations of profiles, which a collection deletes first.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{Corpus, corpus, ran_in_pid_namespace, run, scratch};

use super::{floe_in, gc, names};
use crate::support::floe;

/// Makes a profile, a day between its generations. Each has fewer paths than the one before.
fn make_profile(corpus: &Corpus, root: &Path, profile: &Path, generations: usize) {
    for (number, path) in corpus.paths.iter().rev().take(generations).enumerate() {
        let mut install = floe(["install", "--from", &corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &corpus.key, "--root"]);
        run(install.arg(root).arg("--profile").arg(profile).arg(path)).expect(0);
        let days = generations - number;
        let link = format!("{}-{}-link", profile.display(), number + 1);
        let time = format!("{days} days ago");
        run(Command::new("touch").args(["-h", "-d", &time, &link])).expect(0);
    }
}

#[test]
fn old_generations_of_all_profiles_are_deleted_first() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let profiles = root.join("nix/var/nix/profiles");
    let nested = profiles.join("per-user/other");
    fs::create_dir_all(&nested).unwrap();
    make_profile(&corpus, &root, &profiles.join("system"), 5);
    make_profile(&corpus, &root, &nested.join("own"), 2);
    let system = |numbers: &[u32]| {
        let links = numbers.iter().map(|number| format!("system-{number}-link"));
        links.chain(["system".into(), "per-user".into()]).collect()
    };
    assert_eq!(names(&profiles), system(&[1, 2, 3, 4, 5]));

    // A dry run counts the paths of the generations, and keeps them.
    let dead = |arguments: &[&str]| {
        let ran = gc(&root, &[arguments, &["--dry-run", "--json"]].concat()).expect(0);
        ran.json()["dead"].as_array().unwrap().len()
    };
    let without = dead(&[]);
    let with = dead(&["--keep-generations", "1"]);
    assert!(with > without, "{with} {without}");
    assert_eq!(names(&profiles), system(&[1, 2, 3, 4, 5]));

    // Generation 1 was current until 4 days ago, generation 2 until 3 days ago.
    let ran = gc(&root, &["--delete-older-than", "3d"]).expect(0);
    assert!(
        ran.stderr.contains("deleted generation 1"),
        "{}",
        ran.stderr
    );
    assert_eq!(names(&profiles), system(&[3, 4, 5]), "{}", ran.stderr);
    // Both rules must allow a deletion.
    gc(
        &root,
        &["--delete-older-than", "1d", "--keep-generations", "2"],
    )
    .expect(0);
    assert_eq!(names(&profiles), system(&[4, 5]));
    gc(&root, &["--keep-generations", "1"]).expect(0);
    assert_eq!(names(&profiles), system(&[5]));
    assert_eq!(names(&nested), ["own".into(), "own-2-link".into()].into());
    assert_eq!(dead(&[]), 0);
    run(&mut floe_in(&root, &["verify"])).expect(0);
    let listed = run(&mut floe_in(&root, &["list"])).expect(0).stdout;
    assert!(
        listed.contains("system") && listed.contains("own"),
        "{listed}"
    );
}
