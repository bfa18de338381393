//! `--out-link` and `--profile`: GC roots equal those of Nix, and its collector respects them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{Corpus, Nix, Scratch, corpus, nixes, ran_in_pid_namespace, run, scratch, skip};

use crate::support::floe;

/// Returns a command that installs these paths of a corpus.
fn install(corpus: &Corpus, root: &Path, paths: &[&str]) -> Command {
    let mut command = floe(["install", "--from", &corpus.file_url("zstd")]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).args(paths);
    command
}

/// Returns the target of a symlink.
fn target(link: &Path) -> String {
    let target = fs::read_link(link).unwrap_or_else(|error| panic!("{}: {error}", link.display()));
    target.to_str().unwrap().to_owned()
}

/// Returns the indirect roots of a store as pairs of name and target.
fn indirect_roots(root: &Path) -> BTreeSet<(String, String)> {
    let Ok(entries) = fs::read_dir(root.join("nix/var/nix/gcroots/auto")) else {
        return BTreeSet::new();
    };
    let entries = entries.map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, target(&entry.path()))
        })
        .collect()
}

/// Collects garbage. Returns the number of remaining paths.
fn paths_after_gc(nix: &Nix, root: &Path) -> usize {
    nix.store(root, ["--gc"]);
    let args = ["path-info", "--all", "--store"];
    let ran = run(nix.command("nix", args).arg(root)).expect(0);
    ran.stdout.lines().count()
}

#[test]
fn out_link_equals_that_of_nix_build_and_protects_closure() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let mut compared = 0;
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        let second = corpus.paths.iter().find(|path| **path != corpus.root);
        let paths = [corpus.root.as_str(), second.unwrap()];
        // The link name contains dots, and its directory does not exist yet.
        let dots = scratch.join("./links/../links/of/result");
        let link = scratch.join("links/of/result");
        let ran = run(install(&corpus, &root, &paths).arg("-o").arg(&dots)).expect(0);
        assert_eq!(ran.stdout, format!("{}\n{}\n", paths[0], paths[1]));
        let links = [link.clone(), scratch.join("links/of/result-1")];
        let ours: Vec<String> = links.iter().map(|link| target(link)).collect();
        assert_eq!(ours, paths);
        let ours = indirect_roots(&root);
        assert_eq!(ours.len(), 2, "{ours:?}");

        // The newest Nix quotes the names.
        let listed = nix.store(&root, ["--gc", "--print-roots"]).replace('"', "");
        for (link, path) in links.iter().zip(paths) {
            let line = format!("{} -> {path}", link.display());
            assert!(listed.contains(&line), "{}: {listed}", nix.version);
        }
        assert_eq!(paths_after_gc(&nix, &root), corpus.paths.len());
        nix.verify(&root, corpus.paths.len());

        // Nix creates the same links and root names.
        for link in &links {
            fs::remove_file(link).unwrap();
        }
        fs::remove_dir_all(root.join("nix/var/nix/gcroots/auto")).unwrap();
        let mut build = nix.command("nix", ["build", "--store"]);
        run(build.arg(&root).arg("--out-link").arg(&dots).args(paths)).expect(0);
        assert_eq!(indirect_roots(&root), ours, "{}", nix.version);
        // floe numbers links in command-line order, like `nix copy`. `nix build` orders them by
        // name.
        let theirs: BTreeSet<String> = links.iter().map(|link| target(link)).collect();
        assert_eq!(theirs, paths.map(String::from).into(), "{}", nix.version);
        compared += 1;

        // Without the links, the closure is garbage.
        run(install(&corpus, &root, &paths).arg("--out-link").arg(&dots)).expect(0);
        for link in &links {
            fs::remove_file(link).unwrap();
        }
        assert_eq!(paths_after_gc(&nix, &root), 0, "{}", nix.version);
        assert_eq!(indirect_roots(&root).len(), 0, "stale roots remain");
    }
    assert!(compared > 0 || nixes().is_empty(), "no root was compared");
}

#[test]
fn copy_creates_out_link_and_replaces_old_one() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, link) = (scratch.join("root"), scratch.join("result"));
    symlink("/nix/store/00000000000000000000000000000000-old", &link).unwrap();
    let ran = run(floe(["copy", "--no-check-sigs", "--from"])
        .arg(corpus.store())
        .arg("--to")
        .arg(&root)
        .arg("--out-link")
        .arg(&link)
        .arg(&corpus.root))
    .expect(0);
    assert_eq!(ran.stdout.trim(), corpus.root);
    assert_eq!(target(&link), corpus.root);
    let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "unexpected files: {names:?}");
}

/// Something that must not be overwritten: a description and a function that creates it.
type Obstacle = (&'static str, fn(&Path));

#[test]
fn foreign_file_at_link_name_is_rejected_before_fetching() {
    let Some(corpus) = corpus("jq") else { return };
    let server = FaultServer::start(&corpus.cache("zstd"));
    let obstacles: [Obstacle; 4] = [
        ("a file", |place| fs::write(place, "mine").unwrap()),
        ("a directory", |place| fs::create_dir(place).unwrap()),
        ("a link elsewhere", |place| symlink("/etc", place).unwrap()),
        ("a link to the store itself", |place| {
            symlink("/nix/store", place).unwrap();
        }),
    ];
    for option in ["--out-link", "--profile"] {
        for (name, make) in obstacles {
            let scratch = scratch();
            let (root, link) = (scratch.join("root"), scratch.join("result"));
            make(&link);
            let before = fs::symlink_metadata(&link).unwrap();
            run(floe(["install", "--from", &server.url(), "--root"])
                .arg(&root)
                .args(["--trusted-public-keys", &corpus.key, option])
                .arg(&link)
                .arg(&corpus.root))
            .expect(1)
            .stderr_contains("cannot replace");
            assert_eq!(server.requests().len(), 0, "{option}, {name}");
            assert!(!root.exists(), "{option}, {name}");
            let after = fs::symlink_metadata(&link).unwrap();
            assert_eq!(before.file_type(), after.file_type(), "{option}, {name}");
        }
    }
    // The second of two links is checked as well.
    let scratch = scratch();
    let (root, link) = (scratch.join("root"), scratch.join("result"));
    fs::write(scratch.join("result-1"), "mine").unwrap();
    let paths = [corpus.paths[0].as_str(), &corpus.paths[1]];
    run(install(&corpus, &root, &paths).arg("--out-link").arg(&link))
        .expect(1)
        .stderr_contains("result-1: it is not a link into the store");
    assert!(!root.exists() && !link.exists());
}

#[test]
fn root_inside_the_store_or_for_a_cache_is_rejected() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    for place in [
        PathBuf::from("/nix/store/result"),
        root.join("nix/store/result"),
    ] {
        for option in ["--out-link", "--profile"] {
            run(install(&corpus, &root, &[&corpus.root])
                .arg(option)
                .arg(&place))
            .expect(1)
            .stderr_contains("it is in the store");
        }
    }
    let file = scratch.join("file");
    fs::write(&file, "").unwrap();
    run(install(&corpus, &root, &[&corpus.root])
        .arg("--out-link")
        .arg(file.join("x")))
    .expect(1);
    assert!(!root.exists());
    let to = format!("file://{}", scratch.join("cache").display());
    run(floe(["copy", "--from"])
        .arg(corpus.store())
        .args(["--to", &to, "--out-link"])
        .arg(scratch.join("result"))
        .arg(&corpus.root))
    .expect(2)
    .stderr_contains("links on this machine keep nothing in file:");
    assert!(!scratch.join("cache").exists());
}

#[test]
fn dry_run_and_failed_install_create_no_link() {
    let Some(faulty) = crate::faulty_cache::faulty_cache("zstd") else {
        return;
    };
    let link = faulty.scratch.join("result");
    let with = |option: &str| {
        let mut command = floe(["install", "--from", &faulty.file_url(), option, "--root"]);
        command.arg(&faulty.root).arg("--out-link").arg(&link);
        command.arg("--profile").arg(faulty.scratch.join("profile"));
        command.args([
            "--trusted-public-keys",
            &faulty.corpus.key,
            &faulty.corpus.root,
        ]);
        command
    };
    run(&mut with("--dry-run")).expect(0);
    fs::write(faulty.nar(&faulty.path("libc6")), "damaged").unwrap();
    run(&mut with("--json")).expect(3);
    assert!(link.symlink_metadata().is_err());
    assert!(faulty.scratch.join("profile").symlink_metadata().is_err());
    assert_eq!(indirect_roots(&faulty.root).len(), 0);
}

/// Returns two profile locations: in the store's profile directory, which Nix scans for roots, and
/// outside it.
fn profiles(scratch: &Scratch, root: &Path) -> [PathBuf; 2] {
    [
        root.join("nix/var/nix/profiles/per-user/me/tools"),
        scratch.join("of/my/own"),
    ]
}

#[test]
fn profile_generations_interoperate_with_nix_env() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(jq) = corpus("jq") else { return };
    let Some(curl) = corpus("curl") else { return };
    for nix in nixes() {
        if !nix.has("nix-env") {
            skip(
                "nix-env",
                &format!("not among the tools of {}", nix.version),
            );
            continue;
        }
        let scratch = scratch();
        let root = scratch.join("root");
        for profile in profiles(&scratch, &root) {
            let name = profile.file_name().unwrap().to_str().unwrap();
            let set = |corpus: &Corpus| {
                run(install(corpus, &root, &[&corpus.root])
                    .arg("--profile")
                    .arg(&profile))
                .expect(0);
                target(&profile)
            };
            let nix_env = |args: &[&str]| {
                let mut command = nix.command("nix-env", ["--store"]);
                command.arg(&root).arg("-p").arg(&profile).args(args);
                run(&mut command).expect(0).stdout
            };
            assert_eq!(set(&jq), format!("{name}-1-link"));
            assert_eq!(set(&curl), format!("{name}-2-link"));
            // Setting the current generation again creates no new one.
            assert_eq!(set(&curl), format!("{name}-2-link"));
            let generation = |number: u64| profile.with_file_name(format!("{name}-{number}-link"));
            assert_eq!(target(&generation(1)), jq.root);
            assert_eq!(target(&generation(2)), curl.root);
            assert!(!profile.with_file_name(format!("{name}.lock")).exists());

            let listed = nix_env(&["--list-generations"]);
            let lines: Vec<&str> = listed.lines().collect();
            assert_eq!(lines.len(), 2, "{}: {listed}", nix.version);
            assert!(lines[1].contains("(current)"), "{}: {listed}", nix.version);
            let both: BTreeSet<&String> = jq.paths.iter().chain(&curl.paths).collect();
            assert_eq!(paths_after_gc(&nix, &root), both.len(), "{}", nix.version);

            nix_env(&["--rollback"]);
            assert_eq!(target(&profile), format!("{name}-1-link"));
            // As in Nix, setting the path of the newest generation switches back to it.
            assert_eq!(set(&curl), format!("{name}-2-link"));
            // floe and Nix continue each other's numbering.
            nix_env(&["--set", &jq.root]);
            assert_eq!(
                target(&profile),
                format!("{name}-3-link"),
                "{}",
                nix.version
            );
            assert_eq!(set(&jq), format!("{name}-3-link"));
            assert_eq!(set(&curl), format!("{name}-4-link"));
            nix_env(&["--delete-generations", "1", "2", "3"]);
            assert_eq!(
                paths_after_gc(&nix, &root),
                curl.paths.len(),
                "{}",
                nix.version
            );
            nix.verify(&root, curl.paths.len());
            for generation in [profile.clone(), generation(4)] {
                fs::remove_file(generation).unwrap();
            }
            assert_eq!(paths_after_gc(&nix, &root), 0, "{}", nix.version);
        }
    }
}

#[test]
fn profile_roots_equal_those_of_nix_build() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        for profile in profiles(&scratch, &root) {
            run(install(&corpus, &root, &[&corpus.root])
                .arg("--profile")
                .arg(&profile))
            .expect(0);
            let (ours, link) = (indirect_roots(&root), target(&profile));
            assert!(!ours.is_empty());
            let generation = profile.with_file_name(&link);
            fs::remove_file(&profile).unwrap();
            fs::remove_file(&generation).unwrap();
            fs::remove_dir_all(root.join("nix/var/nix/gcroots/auto")).unwrap();
            let mut build = nix.command("nix", ["build", "--store"]);
            build
                .arg(&root)
                .arg("--profile")
                .arg(&profile)
                .arg(&corpus.root);
            run(build.current_dir(scratch.path()).arg("--no-link")).expect(0);
            assert_eq!(indirect_roots(&root), ours, "{}", nix.version);
            assert_eq!(
                (target(&profile), target(&generation)),
                (link, corpus.root.clone())
            );
            fs::remove_dir_all(root.join("nix/var/nix/gcroots/auto")).unwrap();
        }
    }
}

#[test]
fn profile_takes_exactly_one_path() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, profile) = (scratch.join("root"), scratch.join("profile"));
    let paths = [corpus.paths[0].as_str(), &corpus.paths[1]];
    run(install(&corpus, &root, &paths)
        .arg("--profile")
        .arg(&profile))
    .expect(2)
    .stderr_contains("cannot set a profile to 2 paths: it takes one");
    assert!(!root.exists() && !profile.exists());
    // Two names of the same path count as one.
    let base = corpus.root.strip_prefix("/nix/store/").unwrap();
    run(install(&corpus, &root, &[&corpus.root, base])
        .arg("--profile")
        .arg(&profile))
    .expect(0);
    run(floe(["copy", "--all", "--no-check-sigs", "--from"])
        .arg(&root)
        .arg("--to")
        .arg(scratch.join("other"))
        .arg("--profile")
        .arg(scratch.join("other-profile")))
    .expect(2)
    .stderr_contains("it takes one");
}
