//! The session at the top of README.md, run for real.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{corpus, run, scratch};

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

#[test]
fn session_in_readme_is_real() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let home = scratch.join("home");
    fs::create_dir(&home).unwrap();
    let floe = Path::new(env!("CARGO_BIN_EXE_floe"));
    let session = session();
    assert!(session.len() >= 3, "{session:?}");
    for (command, expected) in session {
        assert!(command.starts_with("floe "), "{command}");
        let command = command.replace("file:///srv/cache", &corpus.file_url("zstd"));
        let mut shell = Command::new("sh");
        // In the environment, the path would be a root for the collections of other tests.
        shell.args(["-c", &format!("JQ={}; {command} 2>&1", corpus.root)]);
        shell.env("HOME", &home);
        // The store of an ordinary user on a machine without Nix, also for root and beside Nix.
        shell.env("NIX_REMOTE", home.join(".local/share/nix/root"));
        shell.env("KEY", &corpus.key).current_dir(&home);
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
}
