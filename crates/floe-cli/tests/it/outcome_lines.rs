//! The last lines of installs and copies, and the options for less and more output.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{run, wait_until};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

fn install(cache: &FaultyCache, arguments: &[&str]) -> Command {
    let mut command = floe(["install", "--trusted-public-keys", &cache.corpus.key]);
    command
        .arg("--from")
        .arg(format!("file://{}", cache.cache.display()));
    command.arg("--root").arg(&cache.root).args(arguments);
    command.current_dir(cache.scratch.path());
    command
}

#[test]
fn last_line_tells_what_was_done_and_what_keeps_it() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (root, count) = (cache.corpus.root.clone(), cache.corpus.paths.len());
    let ran = run(&mut install(&cache, &["--dry-run", &root])).expect(0);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with(&format!("{count} paths (")), "{last}");
    assert!(last.contains("would be installed"), "{last}");

    let ran = run(&mut install(&cache, &[&root])).expect(0);
    let last = ran.stderr.lines().last().unwrap();
    let store = cache.root.join("nix/store");
    assert!(
        last.starts_with(&format!("installed {count} paths (")),
        "{last}"
    );
    assert!(
        last.contains(&format!("into {}", store.display())),
        "{last}"
    );
    assert!(last.contains("use --out-link or --profile"), "{last}");

    let ran = run(&mut install(&cache, &[&root])).expect(0);
    let present = format!("nothing to do: all {count} paths are present");
    assert_eq!(ran.stderr.lines().last(), Some(&*present));

    let dry_run = ["--dry-run", "--out-link", "result", &*root];
    let ran = run(&mut install(&cache, &dry_run)).expect(0);
    assert!(ran.stderr.contains("would change"), "{}", ran.stderr);
    let ran = run(&mut install(&cache, &["--out-link", "result", &root])).expect(0);
    let [present, link, last] = last_lines(&ran.stderr);
    assert_eq!(present, format!("all {count} paths are present"));
    let made = format!("result to {root}");
    assert!(
        link.starts_with("made the link ") && link.ends_with(&made),
        "{link}"
    );
    let place = cache.root.join(&root[1..]);
    assert!(last.contains(&place.display().to_string()), "{last}");
    // The path has no directory bin, so `floe run` finds no program.
    assert!(!last.contains("floe run"), "{last}");
    let again = run(&mut install(&cache, &["--out-link", "result", &root])).expect(0);
    assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
    let again = run(&mut install(&cache, &dry_run)).expect(0);
    assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
}

fn last_lines<const N: usize>(stderr: &str) -> [&str; N] {
    let lines: Vec<&str> = stderr.lines().collect();
    *lines.last_chunk().unwrap_or_else(|| panic!("{stderr}"))
}

#[test]
fn new_generation_is_reported_with_the_one_that_it_replaces() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let install_into_profile = |path: &str| {
        let ran = run(&mut install(&cache, &["--profile", "profile", path])).expect(0);
        let lines = ran.stderr.lines();
        let lines = lines.filter(|line| line.contains("generation") || line.contains("nothing"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (root, library) = (&cache.corpus.root, cache.path("libonig"));
    let profile = cache.scratch.join("profile");
    let profile = profile.display();
    // The line about the copy is enough.
    assert!(install_into_profile(library.as_str()).is_empty());
    let name = library.name();
    let replaces = "which takes the place of generation 1 with";
    let expected = format!("made generation 2 of {profile}, {replaces} {name}");
    assert_eq!(install_into_profile(root), [&*expected]);
    let again = install_into_profile(root);
    assert!(
        again.len() == 1 && again[0].starts_with("nothing to do"),
        "{again:?}"
    );
    let expected = format!(
        "made generation 3 of {profile}, which takes the place of generation 2 with {}",
        root.split_once('-').unwrap().1
    );
    assert_eq!(install_into_profile(library.as_str()), [&*expected]);
    // The path of a generation before it takes the place of itself.
    let mut rollback = floe(["profile", "rollback", "--profile", "profile", "--root"]);
    rollback.arg(&cache.root).current_dir(cache.scratch.path());
    run(&mut rollback).expect(0);
    let expected = format!("made generation 4 of {profile}");
    assert_eq!(install_into_profile(root), [&*expected]);
}

#[test]
fn present_path_gets_a_link_without_any_source() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let root = cache.corpus.root.clone();
    run(&mut install(&cache, &[&root])).expect(0);
    floe_store::tree::remove_tree(&cache.cache).unwrap();
    let ran = run(&mut install(&cache, &["-o", "result", &root])).expect(0);
    assert!(ran.stderr.contains("paths are present"), "{}", ran.stderr);
    let link = fs::read_link(cache.scratch.join("result")).unwrap();
    assert_eq!(link.to_str(), Some(&*root));
    // A path that is missing needs the cache.
    let absent = format!("/nix/store/{}-absent", "0".repeat(32));
    run(&mut install(&cache, &[&absent])).expect(4);
}

#[test]
fn failed_copy_ends_with_the_number_of_failures() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let nar = cache.nar(&cache.path("libc6"));
    fs::remove_file(nar).unwrap();
    let ran = run(&mut install(&cache, &[&cache.corpus.root]));
    assert_ne!(ran.code, Some(0));
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("floe: failed to copy"), "{}", ran.stderr);
    assert!(!last.contains("--out-link"), "{last}");
}

#[test]
fn quiet_verbose_and_color_change_only_stderr() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (root, count) = (cache.corpus.root.clone(), cache.corpus.paths.len());
    let stderr = |arguments: &[&str]| {
        floe_store::tree::remove_tree(&cache.root).unwrap_or(());
        let ran = run(&mut install(&cache, &[arguments, &[&root]].concat())).expect(0);
        assert_eq!(ran.stdout, format!("{root}\n"));
        ran.stderr
    };
    assert_eq!(stderr(&["-q"]), "");
    assert_eq!(stderr(&["-q", "--log-format", "json"]), "");
    let received = |text: &str| text.lines().filter(|line| line.starts_with('[')).count();
    assert_eq!(received(&stderr(&[])), 0);
    assert_eq!(received(&stderr(&["-v"])), count);
    let all = stderr(&["-vv"]);
    for word in ["querying ", "found ", "receiving ", "registered "] {
        let lines = all.lines().filter(|line| line.starts_with(word));
        assert!(lines.count() >= count, "{word}: {all}");
    }
    let colored = |arguments: &[&str], variable: Option<&str>| {
        let mut command = install(&cache, arguments);
        command.arg("./absent");
        command.envs(variable.map(|value| ("NO_COLOR", value)));
        run(&mut command).expect(2).stderr.contains("\u{1b}[")
    };
    // stderr is not a terminal here.
    assert!(!colored(&[], None));
    assert!(colored(&["--color", "always"], None));
    assert!(
        colored(&["--color", "always"], Some("1")),
        "the option comes first"
    );
    assert!(!colored(&["--color", "never"], None));
    run(&mut install(&cache, &["-q", "-v", &root])).expect(2);
    // The options may stand before the command too.
    let mut before = floe(["-q"]);
    run(before.args(install(&cache, &[&root]).get_args())).expect(0);
    assert_eq!(run(&mut before).expect(0).stderr, "");
}

#[test]
fn paths_come_from_stdin() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let paths = cache.corpus.paths.join("\n");
    let with_input = |arguments: &[&str], input: &str| {
        let mut command = install(&cache, arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let ran = with_input(&["-"], &format!("\n {paths} \r\n\n"));
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(printed.lines().count(), cache.corpus.paths.len());
    assert_verified(&cache.root, cache.corpus.paths.len());
    let ran = with_input(&["--stdin", &cache.corpus.root], "");
    assert!(ran.status.success());
    // An empty list is none, and not everything.
    let mut verify = floe(["verify", "--stdin", "--root"]);
    run(verify.arg(&cache.root))
        .expect(0)
        .stderr_contains("verified 0 paths");
    let ran = with_input(&["--stdin"], &"x".repeat(20_000));
    assert_eq!(ran.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(stderr.contains("put one path in each line"), "{stderr}");
}

#[test]
fn follow_copies_each_path_when_its_line_arrives() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let mut command = floe(["copy", "-", "--follow", "--trusted-public-keys"]);
    command.arg(&cache.corpus.key);
    command
        .arg("--from")
        .arg(format!("file://{}", cache.cache.display()));
    command.arg("--to").arg(&cache.root);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let is_valid = |path: &str| cache.root.join(&path[1..]).exists();
    for path in &cache.corpus.paths {
        writeln!(stdin, "{path}").unwrap();
        // stdin stays open.
        wait_until("the path is copied", || is_valid(path));
    }
    writeln!(stdin, "no path").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("failed to copy 1 path"), "{stderr}");
    let copied = format!("copied {} paths", cache.corpus.paths.len());
    assert!(stderr.contains(&copied), "{stderr}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), cache.corpus.paths);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn followed_lines_may_be_real_places() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let store = cache.corpus.store();
    let mut command = floe(["copy", "--stdin", "--follow", "--no-check-sigs", "--from"]);
    command.arg(&store).arg("--to").arg(&cache.root);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}{}", store.display(), cache.corpus.root).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim(), cache.corpus.root);
}

#[test]
fn progress_lines_come_every_few_seconds() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    let nar = cache.nar(&cache.path("libc6"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    server.fail(nar, Fault::Delayed(Duration::from_secs(6)));
    let mut command = floe(["install", "--trusted-public-keys", &cache.corpus.key]);
    command
        .args(["--from", &server.url()])
        .arg("--root")
        .arg(&cache.root);
    let ran = run(command.arg(&cache.corpus.root)).expect(0);
    let lines = ran
        .stderr
        .lines()
        .filter(|line| line.contains(" paths received"));
    let count = lines.count();
    assert!((1..=3).contains(&count), "{}", ran.stderr);
    assert!(server.fault_count() > 0);
}
