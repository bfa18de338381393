//! Names of packages as arguments: from files and from a Hydra, with all commands that take them.

mod following;
mod lists;
mod locked;
mod pins;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, Hydra, Nix, Scratch, copy_program, nixes, run, scratch};
use serde_json::json;

use crate::support::floe;

/// A signed cache with two versions of a package that has one program, and an empty home.
struct Packages {
    scratch: Scratch,
    cache: PathBuf,
    key: String,
    /// The path of version 1.0.
    old: String,
    /// The path of version 2.0.
    new: String,
    nix: Nix,
}

fn packages() -> Option<Packages> {
    let nix = nixes().into_iter().next()?;
    let scratch = scratch();
    let root = scratch.join("origin");
    let add = |version: &str| {
        let directory = scratch.join(&format!("greet-{version}"));
        fs::create_dir_all(directory.join("bin")).unwrap();
        // echo is the program of a shell that needs no other path.
        copy_program(Path::new("/bin/echo"), &directory.join("bin/greet"));
        fs::write(
            directory.join("version"),
            format!("{version} {}", scratch.path().display()),
        )
        .unwrap();
        let added = nix.store(&root, ["--add".as_ref(), directory.as_os_str()]);
        added.trim().to_owned()
    };
    let (old, new) = (add("1.0"), add("2.0"));
    let secret = scratch.join("key");
    let generated = run(&mut floe(["key", "generate", "names-1"])).expect(0);
    fs::write(&secret, &generated.stdout).unwrap();
    let public = run(floe(["key", "public"]).arg(&secret)).expect(0).stdout;
    let cache = scratch.join("cache");
    let mut push = floe(["push", "--secret-key-file"]);
    push.arg(&secret).arg("--root").arg(&root);
    push.args(["--to", &format!("file://{}", cache.display()), &old, &new]);
    run(&mut push).expect(0);
    Some(Packages {
        key: public.trim().to_owned(),
        scratch,
        cache,
        old,
        new,
        nix,
    })
}

impl Packages {
    fn cache_url(&self) -> String {
        format!("file://{}", self.cache.display())
    }

    /// Returns a command with the name sources, the key and a home of its own.
    fn floe(&self, words: &[&str], names: &str) -> Command {
        let mut command = floe(words);
        command.args(["--names", names]);
        self.set_home(&mut command);
        command
    }

    fn set_home_of(&self, mut command: Command) -> Command {
        self.set_home(&mut command);
        command
    }

    fn set_home(&self, command: &mut Command) {
        for (name, directory) in [
            ("HOME", "home"),
            ("XDG_CACHE_HOME", "home/cache"),
            ("XDG_DATA_HOME", "home/data"),
            ("XDG_STATE_HOME", "home/state"),
        ] {
            command.env(name, self.scratch.join(directory));
        }
        command.current_dir(self.scratch.path());
        command.env("NIX_CONFIG", format!("trusted-public-keys = {}", self.key));
    }

    /// `floe install NAME`, as JSON, into a root directory of its own.
    fn install(&self, root: &str, name: &str, names: &str) -> CommandOutput {
        let url = self.cache_url();
        let words = ["install", name, "--json", "--from", &url, "--root", root];
        run(&mut self.floe(&words, names))
    }
}

#[test]
fn names_of_a_file_stand_for_paths_in_all_commands() {
    let Some(packages) = packages() else { return };
    let file = packages.scratch.join("names.toml");
    let text = format!(
        "greet = '{}'\n'old.greet' = '{}'\n",
        packages.new, packages.old
    );
    fs::write(&file, text).unwrap();
    let names = format!("team=file:{}", file.display());
    let url = packages.cache_url();
    let root = packages.scratch.join("root").display().to_string();

    let installed = packages.install(&root, "greet", &names).expect(0);
    let object = installed.json();
    assert_eq!(object["paths"], json!([packages.new]));
    assert_eq!(object["names"][0]["path"], json!(packages.new));
    assert_eq!(object["names"][0]["name"], "greet");
    assert_eq!(
        object["names"][0]["source"],
        json!(format!("file:{}", file.display()))
    );
    installed.stderr_contains(&format!("greet is {} (team)", packages.new));
    let verified = packages
        .nix
        .store(Path::new(&root), ["--verify", "--check-contents"]);
    assert!(!verified.contains("error"), "{verified}");

    // A file in a present path is named by the path's name, whatever the sources have.
    let link = packages.scratch.join("link").display().to_string();
    let file_in_path = ["install", "greet/bin/greet", "-o", &link, "--root", &root];
    run(&mut packages.floe(&file_in_path, &names)).expect(0);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(&packages.new));

    let info = run(&mut packages.floe(&["info", "team#old.greet", "--from", &url], &names));
    assert!(info.expect(0).stdout.contains(&packages.old));
    let other = packages.scratch.join("other").display().to_string();
    let copy = ["copy", "old.greet", "--from", &url, "--root", &other];
    run(&mut packages.floe(&copy, &names)).expect(0);
    let to = format!("file://{}/second", packages.scratch.path().display());
    let push = ["push", "old.greet", "--root", &other, "--to", &to];
    run(&mut packages.floe(&push, &names)).expect(0);
    let shell = ["shell", "greet", "--root", &other, "--from", &url];
    let mut shell = packages.floe(&shell, &names);
    let shell = run(shell.args(["--", "greet", "from the shell"])).expect(0);
    assert_eq!(shell.stdout, "from the shell\n");
    // The dry run says what the name means, and copies nothing.
    let third = packages.scratch.join("third").display().to_string();
    let dry = [
        "install",
        "greet",
        "--dry-run",
        "--from",
        &url,
        "--root",
        &third,
    ];
    let dry = run(&mut packages.floe(&dry, &names)).expect(0);
    dry.stderr_contains(&format!("greet is {}", packages.new));
    assert!(!Path::new(&third).exists());
}

#[test]
fn names_are_refused_where_they_are_forbidden_or_ambiguous() {
    let Some(packages) = packages() else { return };
    let file = packages.scratch.join("names.toml");
    fs::write(
        &file,
        format!("greet = '{}'\nforeign = '/other/store/x'\n", packages.new),
    )
    .unwrap();
    let names = format!("team=file:{}", file.display());
    let root = packages.scratch.join("root").display().to_string();
    let url = packages.cache_url();
    let mut forbidden = floe([
        "install",
        "greet",
        "--no-names",
        "--from",
        &url,
        "--root",
        &root,
    ]);
    packages.set_home(&mut forbidden);
    run(&mut forbidden)
        .expect(2)
        .stderr_contains("cannot use greet: --no-names forbids names of packages");
    for (name, code, part) in [
        ("absent", 1, "no package of this name"),
        (
            "other#greet",
            2,
            "no name source is called \"other\"; there are team",
        ),
        (
            "greet.dev",
            1,
            "it has no output \"dev\"; its outputs are out",
        ),
        ("greet@1.0", 1, "it has version \"2.0\", not \"1.0\""),
        ("foreign", 1, "it is not in /nix/store"),
        ("../greet", 2, ""),
        ("gruß", 2, ""),
        (&"x".repeat(4096), 2, ""),
    ] {
        let refused = packages.install(&root, name, &names).expect(code);
        assert!(refused.stderr.len() < 6000, "{}", refused.stderr);
        refused.stderr_contains(part);
    }
    fs::write(packages.scratch.join("greet"), "").unwrap();
    packages
        .install(&root, "greet", &names)
        .expect(2)
        .stderr_contains("write ./greet for the file, or team#greet for the package");
    assert!(!Path::new(&root).exists());
    packages.install(&root, "team#greet", &names).expect(0);
    for (names, part) in [
        (
            "nonsense",
            "a source begins with file:, list:, list+https://, hydra+https:// or pins+",
        ),
        ("team=file:/nonexistent", "cannot read /nonexistent"),
    ] {
        let refused = packages.install(&root, "team#greet", names);
        assert_ne!(refused.code, Some(0));
        refused.stderr_contains(part);
    }
}

/// The path of the newest build of `greet`.
const LATEST: &str = "/latest";

#[test]
fn program_of_a_name_runs_and_then_needs_no_request() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    hydra.add_build(
        "greet",
        7,
        Some(0),
        &[("out", &packages.new), ("dev", &packages.old)],
    );
    let cache = FaultServer::start(&packages.cache);
    // The store of this machine may have the package of another test.
    let root = packages.scratch.join("own").display().to_string();
    let greet = |word: &str| {
        let words = ["run", "greet", "--from", &cache.url(), "--root", &root];
        let mut command = packages.floe(&words, &hydra.source());
        run(command.args(["--", word])).expect(0)
    };
    let first = greet("first");
    assert_eq!(first.stdout, "first\n");
    first.stderr_contains(&format!("greet is {} (hydra+http://", packages.new));
    let requests = hydra.server.requests();
    let paths: Vec<&str> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(
        paths[0].ends_with(LATEST) && paths[1] == "/build/7",
        "{paths:?}"
    );
    for request in &requests {
        assert_eq!(request.fields["accept"], "application/json");
    }
    // The pin that is not there, nix-cache-info, the narinfo and the NAR.
    assert_eq!(cache.requests().len(), 4, "{:?}", cache.requests());
    let second = greet("second");
    assert_eq!(second.stdout, "second\n");
    assert_eq!(hydra.server.requests().len(), 2);
    assert_eq!(cache.requests().len(), 4);
    // --refresh asks again.
    hydra.add_build("greet", 8, Some(0), &[("out", &packages.old)]);
    let words = ["run", "greet", "--refresh", "--from", &cache.url()];
    let mut command = packages.floe(&words, &hydra.source());
    let refreshed = run(command.args(["--", "third"])).expect(0);
    let refreshed = refreshed.stderr_contains(&format!("greet is {}", packages.old));
    assert_eq!(refreshed.stdout, "third\n");
    // Everything is there now but a pin, and the program starts after a lookup, too.
    let fetched = cache.requests().len();
    let mut command = packages.floe(&words, &hydra.source());
    let again = run(command.args(["--", "fourth"])).expect(0);
    assert_eq!(again.stdout, "fourth\n");
    assert_eq!(cache.requests().len(), fetched + 1);
}

#[test]
fn many_names_are_looked_up_at_once() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    let names: Vec<String> = (0..20).map(|number| format!("greet{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let id = 100 + number as u64;
        hydra.add_build(name, id, Some(0), &[("out", &packages.new)]);
        let slow = Fault::Delayed(Duration::from_millis(200));
        hydra.server.fail(&format!("/build/{id}"), slow);
    }
    let url = packages.cache_url();
    let mut info = packages.floe(&["info", "--from", &url], &hydra.source());
    let began = Instant::now();
    run(info.args(&names)).expect(0);
    let elapsed = began.elapsed();
    assert_eq!(hydra.server.requests().len(), 40);
    assert!(
        hydra.server.max_in_flight() > 10,
        "{}",
        hydra.server.max_in_flight()
    );
    // One after another, they take 4 s.
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}

#[test]
fn newest_successful_build_counts() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    hydra.add_build("greet", 5, Some(0), &[("out", &packages.old)]);
    hydra.add_build("greet", 6, Some(2), &[]);
    hydra.add_build("greet", 7, None, &[]);
    hydra.add_build("bad", 9, Some(1), &[]);
    let root = packages.scratch.join("root").display().to_string();
    let installed = packages.install(&root, "greet", &hydra.source()).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
    packages
        .install(&root, "bad", &hydra.source())
        .expect(1)
        .stderr_contains("has succeeded; the newest one, build 9, failed");
}

#[test]
fn wrong_replies_of_a_hydra_are_refused() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    hydra.add_build("greet", 7, Some(0), &[("out", &packages.new)]);
    let root = packages.scratch.join("root").display().to_string();
    let elsewhere = FaultServer::start(packages.scratch.path());
    let page = || Fault::OtherBody(b"<!DOCTYPE html><html>".to_vec());
    for (fault, code, part) in [
        (page(), 1, "the server sent a web page in place of JSON"),
        (Fault::Status(404), 1, "no package of this name"),
        (Fault::Status(403), 4, "403"),
        (Fault::OtherBody(b"{}".to_vec()), 1, "it is not a build"),
        (
            Fault::OtherBody(vec![b'7'; 2 << 20]),
            4,
            "more than 1048576 bytes",
        ),
        (
            Fault::Redirect("file:///etc/passwd".into()),
            4,
            "which floe cannot fetch",
        ),
        (
            Fault::Redirect(elsewhere.url()),
            1,
            "no package of this name",
        ),
    ] {
        hydra.server.set_fault(LATEST, fault.clone());
        let refused = packages
            .install(&root, "greet", &hydra.source())
            .expect(code);
        refused.stderr_contains(part);
    }
    assert_eq!(elsewhere.requests().len(), 1);
    hydra.server.clear_faults();
    hydra.add_build("greet", 8, Some(0), &[("out", "/other/store/x-greet")]);
    packages
        .install(&root, "greet", &hydra.source())
        .expect(1)
        .stderr_contains("it is not in /nix/store");
    assert!(!Path::new(&root).exists());
}

#[test]
fn remembered_name_is_used_while_its_source_is_away() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    hydra.add_build("greet", 7, Some(0), &[("out", &packages.new)]);
    let root = packages.scratch.join("root").display().to_string();
    packages.install(&root, "greet", &hydra.source()).expect(0);
    let asked = hydra.server.requests().len();
    // Without --refresh, the name is new enough.
    packages.install(&root, "greet", &hydra.source()).expect(0);
    assert_eq!(hydra.server.requests().len(), asked);
    for fault in [
        Fault::Status(500),
        Fault::Reset,
        Fault::OtherBody(b"<html>".to_vec()),
    ] {
        hydra.server.set_fault(LATEST, fault.clone());
        let url = packages.cache_url();
        let words = [
            "install",
            "greet",
            "--refresh",
            "--from",
            &url,
            "--root",
            &root,
        ];
        let began = Instant::now();
        let installed = run(&mut packages.floe(&words, &hydra.source())).expect(0);
        installed.stderr_contains("using the path of greet that was looked up ");
        assert!(began.elapsed() < Duration::from_secs(60));
        let unknown = packages.install(&root, "absent", &hydra.source());
        assert_ne!(unknown.code, Some(0), "{fault:?}");
    }
    let requests = hydra.server.requests();
    let faults = requests.iter().filter_map(|request| request.fault.as_ref());
    let faults = faults.filter(|fault| !matches!(fault, Fault::Redirect(_)));
    assert!(faults.count() >= 3);
}

#[test]
fn two_sources_that_disagree_are_shown_with_verbose() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    hydra.add_build("greet", 7, Some(0), &[("out", &packages.new)]);
    let file = packages.scratch.join("names.json");
    fs::write(&file, json!({ "greet": packages.old }).to_string()).unwrap();
    let names = format!("file:{} {}", file.display(), hydra.source());
    let root = packages.scratch.join("root").display().to_string();
    let installed = packages.install(&root, "greet", &names).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
    assert!(hydra.server.requests().is_empty());
    let url = packages.cache_url();
    let words = ["install", "-v", "greet", "--from", &url, "--root", &root];
    let verbose = run(&mut packages.floe(&words, &names)).expect(0);
    verbose.stderr_contains("greet-2.0, and the first source counts");
}

#[test]
fn deleted_path_is_replaced_by_an_earlier_build() {
    let Some(packages) = packages() else { return };
    let hydra = Hydra::start();
    let deleted = format!("/nix/store/{}-greet-3.0", "1".repeat(32));
    hydra.add_build("greet", 5, Some(0), &[("out", &packages.old)]);
    hydra.add_build("greet", 6, Some(1), &[]);
    hydra.add_build("greet", 7, Some(0), &[("out", &deleted)]);
    let root = packages.scratch.join("root").display().to_string();
    let installed = packages.install(&root, "greet", &hydra.source()).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
    installed.stderr_contains(&format!(
        "no source has {deleted}, the newest build of greet"
    ));
    let url = packages.cache_url();
    let ran = packages.floe(&["run", "greet", "--from", &url], &hydra.source());
    let mut ran = ran;
    let ran = run(ran.args(["--", "word"])).expect(0);
    assert_eq!(ran.stdout, "word\n");
    let absent = Hydra::start();
    absent.add_build("greet", 7, Some(0), &[("out", &deleted)]);
    let refused = packages.install(&root, "greet", &absent.source()).expect(1);
    refused.stderr_contains("cannot find ");
}
