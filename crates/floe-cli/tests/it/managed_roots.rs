//! `floe roots`, `list` and `uninstall`: the roots are those that Nix finds.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_testkit::{
    Corpus, Nix, Scratch, copy_program, corpus, nixes, ran_in_pid_namespace, run, scratch,
    setpriv_to_nobody,
};

use crate::support::floe;

/// A store with all kinds of roots.
struct Rooted {
    corpus: Corpus,
    scratch: Scratch,
    root: PathBuf,
    /// A process whose environment and working directory name store paths.
    process: Child,
}

impl Drop for Rooted {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn floe_in(root: &Path, arguments: &[&str]) -> Command {
    let mut command = floe([arguments[0]]);
    command.arg("--root").arg(root).args(&arguments[1..]);
    command
}

fn rooted() -> Option<Rooted> {
    if ran_in_pid_namespace() {
        return None;
    }
    let corpus = corpus("jq")?;
    let scratch = scratch();
    let root = scratch.join("root");
    let install = |arguments: &[&str], path: &str| {
        let mut command = floe(["install", "--from", &corpus.file_url("zstd")]);
        command.args(["--trusted-public-keys", &corpus.key, "--root"]);
        run(command.arg(&root).args(arguments).arg(path)).expect(0);
    };
    let link = |name: &str| scratch.join(name).display().to_string();
    install(&["-o", &link("result")], &corpus.root);
    for path in &corpus.paths[..3] {
        install(&["--profile", &link("profile")], path);
    }
    let roots = root.join("nix/var/nix/gcroots");
    fs::create_dir_all(roots.join("nested")).unwrap();
    symlink(&corpus.paths[1], roots.join("nested/direct")).unwrap();
    symlink(format!("{}/bin", corpus.paths[2]), roots.join("file")).unwrap();
    let base_name = corpus.paths[3].rsplit('/').next().unwrap();
    fs::write(roots.join(base_name), "").unwrap();
    // Junk.
    fs::write(roots.join("junk"), "").unwrap();
    symlink("/nowhere", roots.join("dangling")).unwrap();
    symlink("circle", roots.join("circle")).unwrap();
    symlink("/etc", roots.join("elsewhere")).unwrap();
    symlink(
        format!("/nix/store/{}-absent", "0".repeat(32)),
        roots.join("absent"),
    )
    .unwrap();
    symlink("/nix/store/short", roots.join("short")).unwrap();
    // For Nix, the first name in the store counts, and no other spelling of the store.
    let dots = format!("{}/../{base_name}", corpus.paths[2]);
    symlink(dots, roots.join("dots")).unwrap();
    symlink(format!("/nix//store/{base_name}"), roots.join("slashes")).unwrap();
    let process = Command::new("sleep")
        .arg("1000")
        .env("NAMED", format!("x:{}/lib", corpus.paths[4]))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Some(Rooted {
        corpus,
        scratch,
        root,
        process,
    })
}

/// Returns the lines of `--print-roots` without the roots of other processes.
fn own_roots(lines: &str, process: &Child) -> BTreeSet<String> {
    let own = format!("/proc/{}/", process.id());
    // The newest Nix quotes the places.
    let lines = lines.lines().map(|line| line.replace('"', ""));
    lines
        .filter(|line| line.contains(" -> "))
        .filter(|line| !line.starts_with("/proc/") || line.starts_with(&own))
        .filter(|line| !line.starts_with("{"))
        .collect()
}

fn roots_of_nix(rooted: &Rooted, nix: &Nix) -> BTreeSet<String> {
    let printed = nix.store(&rooted.root, ["--gc", "--print-roots"]);
    own_roots(&printed, &rooted.process)
}

#[test]
fn roots_equal_those_of_nix() {
    let Some(rooted) = rooted() else { return };
    let ran = run(&mut floe_in(&rooted.root, &["roots"])).expect(0);
    let without_sizes = ran.stdout.lines().map(|line| match line.split_once(" (") {
        Some((root, _)) => format!("{root}\n"),
        None => panic!("{line}"),
    });
    let ours = own_roots(&without_sizes.collect::<String>(), &rooted.process);
    // One link, three generations, four files of `gcroots`, and one process.
    assert_eq!(ours.len(), 9, "{ours:#?}");
    for nix in nixes() {
        assert_eq!(ours, roots_of_nix(&rooted, &nix), "{}", nix.version);
    }
}

#[test]
fn temporary_roots_of_live_processes_are_listed() {
    let Some(rooted) = rooted() else { return };
    let temporary = rooted.root.join("nix/var/nix/temproots");
    let dead = temporary.join("4000000-floe-1");
    fs::write(&dead, format!("{}\0", rooted.corpus.paths[0])).unwrap();
    let live = temporary.join("4000001-floe-1");
    fs::write(&live, format!("{}\0", rooted.corpus.paths[5])).unwrap();
    let file = fs::File::open(&live).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // Opening a pipe would wait for ever.
    let pipe = temporary.join("4000002");
    run(Command::new("mkfifo").arg(&pipe)).expect(0);
    let listed = |printed: &str| -> Vec<String> {
        let lines = printed.lines().map(|line| line.replace('"', ""));
        let lines = lines.filter(|line| line.starts_with("{temp:400000"));
        lines
            .map(|line| line.split(" (").next().unwrap().to_owned())
            .collect()
    };
    let ran = run(&mut floe_in(&rooted.root, &["roots"])).expect(0);
    let expected = [format!("{{temp:4000001}} -> {}", rooted.corpus.paths[5])];
    assert_eq!(listed(&ran.stdout), expected);
    fs::remove_file(pipe).unwrap();
    // floe changes nothing; a collector of Nix removes the file of the dead process.
    assert!(dead.exists());
    for nix in nixes() {
        let printed = nix.store(&rooted.root, ["--gc", "--print-roots"]);
        assert_eq!(listed(&printed), expected, "{}", nix.version);
    }
}

#[test]
fn chains_lead_from_roots_to_the_path() {
    let Some(rooted) = rooted() else { return };
    let corpus = &rooted.corpus;
    let libc = corpus
        .paths
        .iter()
        .find(|path| path.contains("libc6"))
        .unwrap();
    let ran = run(&mut floe_in(
        &rooted.root,
        &["roots", "--why", libc, "--json"],
    ))
    .expect(0);
    let json = ran.json();
    let chains = json["paths"][0]["chains"].as_array().unwrap();
    let result = rooted.scratch.join("result").display().to_string();
    let chain = chains.iter().find(|it| it["root"] == *result).unwrap();
    let paths: Vec<&str> = chain["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert_eq!((paths[0], *paths.last().unwrap()), (&*corpus.root, &**libc));
    for pair in paths.windows(2) {
        let nix = &nixes()[0];
        let references = nix.store(&rooted.root, ["--query", "--references", pair[0]]);
        assert!(references.contains(pair[1]), "{pair:?}: {references}");
    }
}

#[test]
fn list_and_uninstall_agree_with_nix_about_sizes() {
    let Some(rooted) = rooted() else { return };
    let ran = run(&mut floe_in(&rooted.root, &["list", "--json"])).expect(0);
    let json = ran.json();
    let rows = json["paths"].as_array().unwrap();
    let row = |link: &str, generation: Option<u64>| {
        let link = rooted.scratch.join(link).display().to_string();
        let found = rows
            .iter()
            .find(|row| row["keptBy"] == *link && row["generation"].as_u64() == generation);
        found.unwrap_or_else(|| panic!("{link}: {json}"))
    };
    let result = row("result", None);
    assert_eq!(result["path"], *rooted.corpus.root);
    assert_eq!(row("profile", Some(3))["isCurrent"], true);
    assert_eq!(row("profile", Some(1))["isCurrent"], false);
    let nix = &nixes()[0];
    let store = rooted.root.display().to_string();
    let args = ["path-info", "-S", "--store", &store, &rooted.corpus.root];
    let size = run(&mut nix.command("nix", args)).expect(0).stdout;
    let size: u64 = size.split_whitespace().last().unwrap().parse().unwrap();
    assert_eq!(result["closureNarBytes"], size);
    let text = run(&mut floe_in(&rooted.root, &["list"])).expect(0).stdout;
    assert!(text.contains("profile (generation 3, current)"), "{text}");

    let before = run(&mut floe_in(&rooted.root, &["list", "--all", "--json"]))
        .expect(0)
        .json();
    let unrooted = |json: &serde_json::Value| {
        let rows = json["paths"].as_array().unwrap();
        rows.iter().filter(|row| row["keptBy"].is_null()).count()
    };
    assert_eq!(unrooted(&before), 0);
    // The process keeps this path.
    let process = format!("/proc/{}/environ", rooted.process.id());
    let rows = before["paths"].as_array().unwrap();
    let kept = rows.iter().find(|row| row["keptBy"] == *process);
    assert_eq!(kept.unwrap()["path"], *rooted.corpus.paths[4]);
    let mut uninstall = floe_in(&rooted.root, &["uninstall", "./result", "--json"]);
    let ran = run(uninstall.current_dir(rooted.scratch.path()));
    let ran = ran.expect(0).json();
    let freed = ran["unreferencedPaths"].as_u64().unwrap();
    assert!(freed > 0, "{ran}");
    assert!(fs::symlink_metadata(rooted.scratch.join("result")).is_err());
    let after = run(&mut floe_in(&rooted.root, &["list", "--all", "--json"]))
        .expect(0)
        .json();
    assert_eq!(unrooted(&after) as u64, freed);
    let valid = || {
        run(nix
            .command("nix", ["path-info", "--all", "--store", &store])
            .arg("--"))
        .stdout
        .lines()
        .count() as u64
    };
    let present = valid();
    nix.store(&rooted.root, ["--gc"]);
    assert_eq!(present - valid(), freed);
}

#[test]
fn names_of_uninstall_are_exact_or_refused() {
    let Some(rooted) = rooted() else { return };
    let uninstall = |name: &str| {
        let mut command = floe_in(&rooted.root, &["uninstall", name]);
        run(command.current_dir(rooted.scratch.path()))
    };
    uninstall("nothing")
        .expect(1)
        .stderr_contains("no root or profile keeps");
    // The current generation of a profile with others.
    uninstall("./profile")
        .expect(1)
        .stderr_contains("floe profile rollback");
    // A link that leads to the same path is not a reason to remove others.
    symlink("result", rooted.scratch.join("alias")).unwrap();
    for other in ["./alias", "./result/usr/bin/jq"] {
        uninstall(other)
            .expect(1)
            .stderr_contains("it is not a root of this store");
    }
    uninstall("").expect(2);
    // A failure that removed nothing prints nothing else.
    let failed = uninstall("./profile");
    assert!(!failed.stderr.contains("would free"), "{}", failed.stderr);
    // The real place of a path stands for the path.
    let real = format!("{}{}", rooted.root.display(), rooted.corpus.paths[0]);
    let mut dry = floe_in(&rooted.root, &["uninstall", "--dry-run", &real]);
    let dry = run(&mut dry).expect(0).stdout;
    assert!(dry.contains("would remove"), "{dry}");
    let absent = format!("/nix/store/{}-absent", "0".repeat(32));
    assert_ne!(uninstall(&absent).code, Some(0));
    // All links to the path of generation 1.
    let first = &rooted.corpus.paths[0];
    uninstall(first).expect(0);
    assert!(fs::symlink_metadata(rooted.scratch.join("profile-1-link")).is_err());
    assert!(fs::symlink_metadata(rooted.scratch.join("profile-2-link")).is_ok());
    let mut dry = floe_in(&rooted.root, &["uninstall", "--dry-run", "./result"]);
    let dry = run(dry.current_dir(rooted.scratch.path())).expect(0);
    assert!(!dry.stderr.contains("the profile"), "{}", dry.stderr);
    // A link to its directory does not matter.
    symlink(rooted.scratch.path(), rooted.scratch.join("here")).unwrap();
    uninstall("here/result").expect(0);
    assert!(fs::symlink_metadata(rooted.scratch.join("result")).is_err());
    for nix in nixes() {
        let printed = roots_of_nix(&rooted, &nix);
        assert!(
            !printed.iter().any(|line| line.contains("/result ")),
            "{printed:?}"
        );
    }
}

#[test]
fn uninstall_of_the_only_generation_names_the_profile() {
    let Some(rooted) = rooted() else { return };
    let mut wipe = floe([
        "profile",
        "wipe-history",
        "--profile",
        "./profile",
        "--root",
    ]);
    wipe.arg(&rooted.root).current_dir(rooted.scratch.path());
    run(&mut wipe).expect(0);
    for (option, verb) in [(Some("--dry-run"), "would remove"), (None, "removed")] {
        let mut uninstall = floe_in(&rooted.root, &["uninstall", "./profile"]);
        let ran = run(uninstall.args(option).current_dir(rooted.scratch.path()));
        let line = format!(
            "{verb} the profile {}",
            rooted.scratch.join("profile").display()
        );
        ran.expect(0).stderr_contains(&line);
    }
    assert!(fs::symlink_metadata(rooted.scratch.join("profile")).is_err());
}

#[test]
fn list_of_a_store_without_roots_says_so() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let mut install = floe(["install", "--from", &corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &corpus.key, "--root"]);
    run(install.arg(&root).arg(&corpus.root)).expect(0);
    let listed = run(&mut floe_in(&root, &["list"])).expect(0);
    let expected = format!("--all shows the {} valid ones", corpus.paths.len());
    assert!(listed.stderr.contains(&expected), "{}", listed.stderr);
    // A file in place of the directory may have replaced roots.
    let roots = root.join("nix/var/nix/gcroots");
    floe_store::tree::remove_tree(&roots).unwrap();
    fs::write(&roots, "").unwrap();
    run(&mut floe_in(&root, &["list"]))
        .expect(0)
        .stderr_contains("gcroots: a root there would be missing here");
}

#[test]
fn control_characters_of_links_do_not_reach_the_terminal() {
    let Some(rooted) = rooted() else { return };
    let link = rooted.scratch.join("e\u{1b}[31m\nred");
    let mut install = floe(["install", "--from", &rooted.corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &rooted.corpus.key, "-o"]);
    install.arg(&link).arg("--root").arg(&rooted.root);
    run(install.arg(&rooted.corpus.root)).expect(0);
    let why = ["roots", "--why", &rooted.corpus.root];
    for arguments in [&["list"][..], &["roots"], &why] {
        let ran = run(&mut floe_in(&rooted.root, arguments)).expect(0);
        assert!(ran.stdout.contains(r"e\u{1b}[31m\nred"), "{}", ran.stdout);
        assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    }
}

#[test]
fn unreadable_roots_are_named() {
    let Some(rooted) = rooted() else { return };
    let Some(mut command) = as_nobody(&rooted, &["roots"]) else {
        return;
    };
    let ran = run(&mut command).expect(0);
    assert!(ran.stderr.contains("only root sees all"), "{}", ran.stderr);
    assert!(ran.stderr.contains("processes"), "{}", ran.stderr);
    let link = format!(
        "{} -> {}",
        rooted.scratch.join("result").display(),
        rooted.corpus.root
    );
    assert!(ran.stdout.contains(&link), "{}", ran.stdout);
    // The paths of processes do not matter for the link to remove.
    let uninstall = ["uninstall", "--dry-run", &*rooted.corpus.paths[0]];
    for (option, is_named) in [(None, false), (Some("-v"), true)] {
        let mut command = as_nobody(&rooted, &uninstall).unwrap();
        let ran = run(command.args(option)).expect(0);
        let has_name = ran.stderr.contains("processes");
        assert_eq!(has_name, is_named, "{}", ran.stderr);
    }
}

#[test]
fn store_behind_a_closed_directory_is_not_called_absent() {
    let Some(rooted) = rooted() else { return };
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&rooted.root, closed).unwrap();
    for arguments in [&["list"][..], &["run", &rooted.corpus.root]] {
        let Some(mut command) = as_nobody(&rooted, arguments) else {
            return;
        };
        run(&mut command)
            .expect(1)
            .stderr_contains("db.sqlite: Permission denied");
    }
}

/// Returns a command as [`floe_in`] does, which runs as the user `nobody`. Returns `None` if this
/// process cannot switch to another user.
fn as_nobody(rooted: &Rooted, arguments: &[&str]) -> Option<Command> {
    let mut command = setpriv_to_nobody()?;
    // The user may have no access to the build directory.
    let program = rooted.scratch.join("floe");
    if !program.exists() {
        copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    }
    command.arg(&program);
    command.args(floe_in(&rooted.root, arguments).get_args());
    command.env("HOME", rooted.scratch.path());
    Some(command)
}
