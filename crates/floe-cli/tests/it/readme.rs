//! The session at the top of README.md, run for real.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{Hydra, Nix, Scratch, nixes, run, scratch};

use crate::support::floe;

/// Returns the commands of the session, and the lines that follow each of them.
fn session() -> Vec<(String, Vec<String>)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let block = readme.split("```\n").nth(1).unwrap().to_owned();
    let mut session: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), session.last_mut()) {
            (Some(command), _) => session.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push(line.to_owned()),
            (None, None) => panic!("{line:?} follows no command"),
        }
    }
    session
}

/// Replaces what differs between two runs: hashes, numbers, units and directories.
fn without_figures(line: &str, home: &str) -> String {
    let words = line.replace(home, "/home/me");
    let words = words.split(' ').map(|word| {
        let is_path = word.contains("/nix/store/");
        let is_unit = ["KiB", "MiB", "s", "ms", "B"].contains(&word.trim_end_matches([',', ')']));
        match (is_path, is_unit) {
            (true, _) => "PATH".to_owned(),
            (_, true) => "UNIT".to_owned(),
            _ => word.replace(|c: char| c.is_ascii_digit() || c == '.', ""),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Makes a signed cache with a program `hello` and the four paths that it needs. Returns the path
/// of the program and the public key.
fn hello_cache(nix: &Nix, scratch: &Scratch) -> (String, String) {
    let root = scratch.join("origin");
    let store = root.join("nix/store");
    let mut paths: Vec<String> = Vec::new();
    for number in 0..5 {
        let hash_part = number.to_string().repeat(32);
        let name = ["libidn2", "libunistring", "glibc", "xgcc", "hello-2.12.1"][number];
        let real = store.join(format!("{hash_part}-{name}"));
        fs::create_dir_all(real.join("bin")).unwrap();
        let file = real.join("bin/hello");
        fs::write(&file, "#!/bin/sh\necho 'Hello, world!'\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("/nix/store/{hash_part}-{name}");
        let hash = nix
            .command("nix-hash", ["--type", "sha256"])
            .arg(&real)
            .output();
        let hash = String::from_utf8(hash.unwrap().stdout).unwrap();
        let nar = nix.command("nix-store", ["--dump"]).arg(&real).output();
        let nar_size = nar.unwrap().stdout.len();
        let references: String = paths.iter().map(|path| format!("{path}\n")).collect();
        let count = paths.len();
        let registration = format!("{path}\n{hash}{nar_size}\n\n{count}\n{references}");
        // Nix 2.8 finds the files of such a store only if the hash is given.
        let mut load = nix.command("nix-store", ["--load-db", "--store"]);
        let mut load = load.arg(&root).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = load.stdin.take().unwrap();
        stdin.write_all(registration.as_bytes()).unwrap();
        drop(stdin);
        assert!(load.wait().unwrap().success());
        paths.push(path);
    }
    let key = scratch.join("key");
    let generated = run(&mut floe(["key", "generate", "hello-1"])).expect(0);
    fs::write(&key, &generated.stdout).unwrap();
    let public = run(floe(["key", "public"]).arg(&key)).expect(0);
    let cache = format!("file://{}", scratch.join("cache").display());
    let mut push = floe(["push", "--to", &cache, "--secret-key-file"]);
    push.arg(&key).arg("--root").arg(&root).arg(&paths[4]);
    run(&mut push).expect(0);
    (paths.remove(4), public.stdout.trim().to_owned())
}

#[test]
fn session_in_readme_is_real() {
    for nix in nixes() {
        session_is_real(&nix);
    }
}

fn session_is_real(nix: &Nix) {
    let scratch = scratch();
    let (hello, key) = hello_cache(nix, &scratch);
    let hydra = Hydra::start();
    hydra.add_build("hello", 7, Some(0), &[("out", &hello)]);
    let home = scratch.join("home");
    fs::create_dir(&home).unwrap();
    let floe = Path::new(env!("CARGO_BIN_EXE_floe"));
    let session = session();
    assert!(session.len() >= 3, "{session:?}");
    for (command, expected) in session {
        assert!(command.starts_with("floe "), "{command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} 2>&1")]);
        shell.env("HOME", &home).current_dir(&home);
        // The store of an ordinary user on a machine without Nix, also for root and beside Nix.
        shell.env("NIX_REMOTE", home.join(".local/share/nix/root"));
        // The default is a Hydra that no test may ask.
        let cache = scratch.join("cache");
        let settings = format!(
            "names = nixpkgs={}\nsubstituters = file://{}\ntrusted-public-keys = {key}",
            hydra.source(),
            cache.display()
        );
        shell.env("NIX_CONFIG", settings);
        let path = std::env::var("PATH").unwrap();
        shell.env(
            "PATH",
            format!("{}:{path}", floe.parent().unwrap().display()),
        );
        let ran = run(&mut shell).expect(0);
        let home = home.to_str().unwrap();
        let shape = |lines: Vec<&str>| -> Vec<String> {
            let shapes = lines.iter().map(|line| without_figures(line, home));
            shapes.collect()
        };
        let printed = shape(ran.stdout.lines().collect());
        let written = shape(expected.iter().map(String::as_str).collect());
        assert_eq!(printed, written, "{command}: {}", ran.stdout);
    }
    assert!(!hydra.server.requests().is_empty());
}
