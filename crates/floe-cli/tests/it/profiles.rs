//! `floe profile`: generations as nix-env shows, switches and deletes them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use floe_testkit::{Corpus, Nix, Scratch, corpus, nixes, ran_in_pid_namespace, run, scratch};

use crate::support::floe;

struct Profiles {
    corpus: Corpus,
    scratch: Scratch,
    root: PathBuf,
}

impl Profiles {
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name).join("profile")
    }

    /// Makes a profile with a generation for each of the first paths.
    fn make(&self, name: &str, generations: usize) {
        fs::create_dir_all(self.scratch.join(name)).unwrap();
        for path in &self.corpus.paths[..generations] {
            let mut command = floe(["install", "--from", &self.corpus.file_url("zstd")]);
            command.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
            command
                .arg(&self.root)
                .arg("--profile")
                .arg(self.path(name));
            run(command.arg(path)).expect(0);
        }
        // Ten days between two generations, the last one a day ago.
        for number in 1..=generations {
            let days = 1 + 10 * (generations - number);
            let link = self
                .scratch
                .join(name)
                .join(format!("profile-{number}-link"));
            let mut touch = Command::new("touch");
            touch
                .args(["-h", "-d", &format!("{days} days ago")])
                .arg(link);
            run(&mut touch).expect(0);
        }
    }

    fn floe(&self, profile: &str, arguments: &[&str]) -> Command {
        let mut command = floe(["profile", arguments[0], "--profile"]);
        command
            .arg(self.path(profile))
            .arg("--root")
            .arg(&self.root);
        command.args(&arguments[1..]);
        command
    }

    fn nix_env(&self, nix: &Nix, profile: &str, arguments: &[&str]) -> Command {
        let mut command = nix.command("nix-env", ["--store"]);
        command
            .arg(&self.root)
            .arg("--profile")
            .arg(self.path(profile));
        command.args(arguments);
        command
    }

    /// Returns the names and targets of the links of a profile.
    fn links(&self, name: &str) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.scratch.join(name)).unwrap();
        let links = entries.filter_map(|entry| {
            let entry = entry.unwrap();
            let target = fs::read_link(entry.path()).ok()?;
            let name = entry.file_name().into_string().unwrap();
            Some((name, target.display().to_string()))
        });
        let mut links: Vec<_> = links.collect();
        links.sort();
        links
    }
}

fn profiles() -> Option<Profiles> {
    let scratch = scratch();
    Some(Profiles {
        corpus: corpus("jq")?,
        root: scratch.join("root"),
        scratch,
    })
}

#[test]
fn generations_equal_those_of_nix_env() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(profiles) = profiles() else { return };
    profiles.make("listed", 4);
    for zone in ["UTC", "Asia/Kathmandu", "America/St_Johns"] {
        let mut list = profiles.floe("listed", &["list"]);
        let ours = run(list.env("TZ", zone)).expect(0).stdout;
        assert_eq!(ours.lines().count(), 4, "{ours}");
        for nix in nixes() {
            let mut list = profiles.nix_env(&nix, "listed", &["--list-generations"]);
            let theirs = run(list.env("TZ", zone)).expect(0).stdout;
            assert_eq!(ours, theirs, "{} {zone}", nix.version);
        }
    }
}

/// Each step with floe on one profile, and with Nix on another one.
#[test]
fn switches_and_deletions_equal_those_of_nix_env() {
    let Some(profiles) = profiles() else { return };
    let mut compared = 0;
    let steps: [(&[&str], &[&str]); 8] = [
        (&["rollback"], &["--rollback"]),
        (&["switch", "2"], &["--switch-generation", "2"]),
        (&["rollback", "--to", "5"], &["--switch-generation", "5"]),
        (
            &["delete-generations", "1", "3"],
            &["--delete-generations", "1", "3"],
        ),
        (
            &["delete-generations", "25d"],
            &["--delete-generations", "25d"],
        ),
        (
            &["delete-generations", "+2"],
            &["--delete-generations", "+2"],
        ),
        (
            &["wipe-history", "--older-than", "5d"],
            &["--delete-generations", "5d"],
        ),
        (&["wipe-history"], &["--delete-generations", "old"]),
    ];
    for (number, nix) in nixes().into_iter().enumerate() {
        let [ours, theirs] = ["ours", "theirs"].map(|name| format!("{name}-{number}"));
        for name in [&ours, &theirs] {
            profiles.make(name, 6);
        }
        for (own, of_nix) in steps {
            run(&mut profiles.floe(&ours, own)).expect(0);
            run(&mut profiles.nix_env(&nix, &theirs, of_nix)).expect(0);
            let links = profiles.links(&ours);
            assert_eq!(links, profiles.links(&theirs), "{} {own:?}", nix.version);
            assert!(links.len() >= 2);
            compared += 1;
        }
        assert_eq!(
            profiles.links(&ours).len(),
            2,
            "the profile and its last generation"
        );
    }
    assert!(compared > 0 || nixes().is_empty());
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(profiles) = profiles() else { return };
    profiles.make("kept", 3);
    let before = profiles.links("kept");
    for (arguments, message) in [
        (&["switch", "9"][..], "no generation 9"),
        (&["rollback", "--to", "9"], "no generation 9"),
        (&["delete-generations", "3"], "it is the current one"),
        (&["delete-generations", "9"], "no generation 9"),
        (
            &["delete-generations", "x"],
            "cannot delete the generations",
        ),
        (&["delete-generations", "1", "old"], "several rules"),
        (
            &["delete-generations", "+0"],
            "the current one always stays",
        ),
        (&["wipe-history", "--older-than", "x"], "it is not a time"),
    ] {
        let ran = run(&mut profiles.floe("kept", arguments));
        assert_ne!(ran.code, Some(0), "{arguments:?}");
        assert!(ran.stderr.contains(message), "{message}: {}", ran.stderr);
        assert_eq!(profiles.links("kept"), before, "{arguments:?}");
    }
    run(&mut profiles.floe("kept", &["switch", "1"])).expect(0);
    run(&mut profiles.floe("kept", &["rollback"]))
        .expect(1)
        .stderr_contains("no generation is older than the current one (1)");
    run(&mut profiles.floe("absent", &["list"]))
        .expect(1)
        .stderr_contains("there is none");
    let before = profiles.links("kept");
    run(&mut profiles.floe("kept", &["wipe-history", "--older-than", "1000d"]))
        .expect(0)
        .stderr_contains("nothing to delete");
    for arguments in [
        &["wipe-history", "--dry-run"][..],
        &["delete-generations", "--dry-run", "2"],
    ] {
        let ran = run(&mut profiles.floe("kept", arguments)).expect(0);
        assert!(
            ran.stderr.contains("would delete generation 2"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(profiles.links("kept"), before);
    run(&mut profiles.floe("kept", &["wipe-history"])).expect(0);
    run(&mut profiles.floe("kept", &["wipe-history"]))
        .expect(0)
        .stderr_contains("has no other generation");
}

#[test]
fn last_possible_generation_is_never_overwritten() {
    let Some(profiles) = profiles() else { return };
    profiles.make("full", 1);
    let last = format!("full/profile-{}-link", u32::MAX);
    let last = profiles.scratch.join(&last);
    symlink(&profiles.corpus.paths[1], &last).unwrap();
    let mut install = floe(["install", "--from", &profiles.corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &profiles.corpus.key, "--profile"]);
    install.arg(profiles.path("full"));
    install.arg("--root").arg(&profiles.root);
    run(install.arg(&profiles.corpus.paths[2]))
        .expect(1)
        .stderr_contains("its number is the highest possible");
    let target = fs::read_link(&last).unwrap();
    assert_eq!(target.to_str(), Some(&*profiles.corpus.paths[1]));
}

#[test]
fn switch_replaces_no_file_and_leads_to_no_deleted_path() {
    let Some(profiles) = profiles() else { return };
    profiles.make("switched", 2);
    let gone = format!("/nix/store/{}-gone-1", "0".repeat(32));
    symlink(&gone, profiles.scratch.join("switched/profile-3-link")).unwrap();
    run(&mut profiles.floe("switched", &["switch", "3"]))
        .expect(1)
        .stderr_contains(&format!("the store does not have {gone}"));
    let profile = profiles.path("switched");
    assert_eq!(
        fs::read_link(&profile).unwrap(),
        Path::new("profile-2-link")
    );
    fs::remove_file(&profile).unwrap();
    fs::write(&profile, "a file of the user").unwrap();
    for arguments in [&["switch", "1"][..], &["rollback"]] {
        run(&mut profiles.floe("switched", arguments))
            .expect(1)
            .stderr_contains("it is not a symbolic link");
    }
    assert_eq!(fs::read_to_string(&profile).unwrap(), "a file of the user");
}

#[test]
fn changes_of_an_invalid_generation_are_unknown() {
    let Some(profiles) = profiles() else { return };
    profiles.make("broken", 1);
    let gone = format!("/nix/store/{}-gone-1", "0".repeat(32));
    symlink(gone, profiles.scratch.join("broken/profile-2-link")).unwrap();
    let history = run(&mut profiles.floe("broken", &["history"])).expect(0);
    assert!(
        history.stderr.contains("changes are unknown"),
        "{}",
        history.stderr
    );
    assert!(!history.stdout.contains("\n  "), "{}", history.stdout);
    let json = run(&mut profiles.floe("broken", &["history", "--json"])).expect(0);
    assert!(json.json()["generations"][1]["changes"].is_null());
}

#[test]
fn history_names_the_packages_that_changed() {
    let Some(profiles) = profiles() else { return };
    profiles.make("changed", 2);
    let history = run(&mut profiles.floe("changed", &["history"]))
        .expect(0)
        .stdout;
    let heads = history
        .lines()
        .filter(|line| line.starts_with("generation "));
    assert_eq!(heads.count(), 2, "{history}");
    let diff = run(&mut profiles.floe("changed", &["diff-closures"]))
        .expect(0)
        .stdout;
    for nix in nixes() {
        let store = profiles.root.display().to_string();
        let [before, after] = [&profiles.corpus.paths[0], &profiles.corpus.paths[1]];
        let args = ["store", "diff-closures", "--store", &store, before, after];
        let theirs = run(&mut nix.command("nix", args)).expect(0).stdout;
        let name = |line: &str| line.trim().split(':').next().unwrap().to_owned();
        let theirs: Vec<String> = theirs.lines().map(name).collect();
        let ours = diff.lines().filter(|line| line.starts_with("  ")).map(name);
        assert_eq!(ours.collect::<Vec<_>>(), theirs, "{}: {diff}", nix.version);
        assert!(!theirs.is_empty());
    }
}

#[test]
fn killed_switches_leave_a_profile() {
    let Some(profiles) = profiles() else { return };
    profiles.make("killed", 3);
    let mut killed = 0;
    for seed in 0..20_u64 {
        let number = 1 + seed % 3;
        let mut switch = profiles.floe("killed", &["switch", &number.to_string()]);
        let mut child = switch.spawn().unwrap();
        // The kills come at different steps of a switch.
        thread::sleep(Duration::from_micros(seed * 700));
        child.kill().unwrap();
        killed += usize::from(child.wait().unwrap().code().is_none());
        let links = profiles.links("killed");
        let current = links.iter().find(|(name, _)| name == "profile").unwrap();
        assert!(
            current.1.starts_with("profile-") && current.1.ends_with("-link"),
            "{current:?}"
        );
        let generations = links.iter().filter(|(name, _)| name.ends_with("-link"));
        assert_eq!(generations.count(), 3, "{links:?}");
    }
    assert!(killed > 0, "no process was killed");
    run(&mut profiles.floe("killed", &["switch", "2"])).expect(0);
    for nix in nixes() {
        let list = &mut profiles.nix_env(&nix, "killed", &["--list-generations"]);
        assert_eq!(run(list).expect(0).stdout.lines().count(), 3);
    }
}

/// The profile of nix-env: `~/.nix-profile` leads to it.
#[test]
fn default_profile_is_that_of_nix_env() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(profiles) = profiles() else { return };
    profiles.make("default", 2);
    let home = profiles.scratch.join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(profiles.path("default"), home.join(".nix-profile")).unwrap();
    let list = |variables: &[(&str, &Path)]| {
        let mut command = floe(["profile", "list", "--root"]);
        command
            .arg(&profiles.root)
            .env("HOME", &home)
            .env_remove("NIX_PROFILE");
        run(command.envs(variables.iter().copied()))
    };
    assert_eq!(list(&[]).expect(0).stdout.lines().count(), 2);
    let named = profiles.scratch.join("absent");
    list(&[("NIX_PROFILE", &named)])
        .expect(1)
        .stderr_contains("absent");
}

/// Nix and floe make the default profile at the same place, with the same link to it.
#[test]
fn default_profile_is_made_as_nix_env_makes_it() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(profiles) = profiles() else { return };
    let (home, root) = (profiles.scratch.join("home"), &profiles.root);
    fs::create_dir(&home).unwrap();
    let link = home.join(".nix-profile");
    let install = |profile: &[&Path], path: &str| {
        let mut command = floe(["install", "--from", &profiles.corpus.file_url("zstd")]);
        command.args(["--trusted-public-keys", &profiles.corpus.key, "--root"]);
        command.arg(root).arg(path).arg("--profile").args(profile);
        run(command.env("HOME", &home)).expect(0)
    };
    install(&[&link], &profiles.corpus.paths[0]);
    let place = fs::read_link(&link).unwrap();
    let expected = if rustix::process::geteuid().is_root() {
        root.join("nix/var/nix/profiles/per-user/root/profile")
    } else {
        home.join(".local/state/nix/profiles/profile")
    };
    assert_eq!(place, expected);
    install(&[], &profiles.corpus.paths[1]);
    install(&[&link], &profiles.corpus.paths[2]);
    let mut list = floe(["profile", "list", "--root"]);
    let list = run(list.arg(root).env("HOME", &home)).expect(0).stdout;
    assert_eq!(list.lines().count(), 3, "{list}");
    for nix in nixes() {
        let mut theirs = nix.command("nix-env", ["--list-generations", "--profile"]);
        let theirs = run(theirs.arg(&place).arg("--store").arg(root)).expect(0);
        assert_eq!(theirs.stdout, list, "{}", nix.version);
    }
}

#[test]
fn link_without_generations_is_no_profile() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(profiles) = profiles() else { return };
    profiles.make("listed", 1);
    let link = profiles.path("listed").with_file_name("profile-1-link");
    for command in ["list", "history", "rollback", "wipe-history"] {
        let mut command = floe(["profile", command, "--profile"]);
        let ran = run(command.arg(&link).arg("--root").arg(&profiles.root)).expect(1);
        let ran = ran.stderr_contains("has no generations");
        ran.stderr_contains(&format!("cannot read the profile {}", link.display()));
    }
}

/// The command fails before it makes a generation to which no link would lead.
#[test]
fn default_profile_needs_a_place_for_its_link() {
    let Some(profiles) = profiles() else { return };
    let home = profiles.scratch.join("home");
    fs::create_dir_all(home.join(".nix-profile")).unwrap();
    let install = |home: &Path| {
        let mut command = floe(["install", "--from", &profiles.corpus.file_url("zstd")]);
        command.args(["--trusted-public-keys", &profiles.corpus.key, "--root"]);
        command.arg(&profiles.root).arg(&profiles.corpus.root);
        run(command.arg("--profile").env("HOME", home))
    };
    install(&home).expect(1).stderr_contains("is no link");
    install(Path::new("")).expect(2).stderr_contains("HOME");
    assert!(!profiles.root.join("nix/var/nix/profiles/per-user").exists());
}

/// `~/.nix-profile` leads to something else, or to a profile of another store.
#[test]
fn default_profile_of_another_store_is_refused() {
    let Some(profiles) = profiles() else { return };
    let home = profiles.scratch.join("home");
    fs::create_dir(&home).unwrap();
    let link = home.join(".nix-profile");
    let install = |root: &Path, path: &str| {
        let mut command = floe(["install", "--from", &profiles.corpus.file_url("zstd")]);
        command.args(["--trusted-public-keys", &profiles.corpus.key, "--root"]);
        command.arg(root).arg(path).arg("--profile");
        run(command.env("HOME", &home))
    };
    symlink("/etc", &link).unwrap();
    let named = format!("to which {} leads: it is no profile", link.display());
    let [first, second] = [&profiles.corpus.paths[0], &profiles.corpus.paths[1]];
    install(&profiles.root, first)
        .expect(1)
        .stderr_contains(&named);

    fs::remove_file(&link).unwrap();
    let of_store = profiles.root.join("nix/var/nix/profiles/mine");
    symlink(&of_store, &link).unwrap();
    install(&profiles.root, first).expect(0);
    let other = profiles.scratch.join("other");
    let refused = install(&other, second).expect(1);
    refused.stderr_contains("it belongs to another store");
    let target = fs::read_link(profiles.root.join("nix/var/nix/profiles/mine-1-link")).unwrap();
    assert_eq!(target.to_str(), Some(&**first));
    assert!(!of_store.with_file_name("mine-2-link").exists());
}
