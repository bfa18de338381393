//! `floe hash` beside `nix hash` and `nix-hash`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{CommandOutput, Nix, nixes, run, scratch};
use serde_json::Value;

use crate::support::floe;

/// Makes a tree with every kind of file that a NAR may have. Returns the files of a test.
pub(crate) fn odd_tree(dir: &Path) -> Vec<PathBuf> {
    let tree = dir.join("tree with spaces");
    let below = tree.join("a/b/empty");
    fs::create_dir_all(&below).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("no bytes"), "").unwrap();
    fs::write(tree.join("a/large"), vec![7; 1 << 20]).unwrap();
    let program = tree.join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for name in [
        &b"\xff\xfe"[..],
        b".hidden",
        b"-r",
        b"\"quote'\\",
        b"new\nline",
        "é".as_bytes(),
    ] {
        fs::write(tree.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let (link, to_file) = (tree.join("link"), dir.join("link to program"));
    symlink("nowhere/at all", &link).unwrap();
    symlink(&program, &to_file).unwrap();
    vec![tree, below, program, link, to_file]
}

/// Runs a command of Nix with the features that it needs.
fn nix(nix: &Nix, words: &[&str], path: &Path) -> String {
    let features = ["--extra-experimental-features", "nix-command blake3-hashes"];
    let mut command = nix.command("nix", [&features, words].concat());
    run(command.arg(path)).expect(0).stdout
}

fn hash(words: &[&str], inputs: &[&OsStr]) -> CommandOutput {
    run(floe(["hash"]).args(words).args(inputs))
}

const ALGORITHMS: [&str; 4] = ["md5", "sha1", "sha256", "sha512"];

#[test]
fn hashes_of_trees_and_files_are_those_of_nix() {
    let scratch = scratch();
    let files = odd_tree(scratch.path());
    for theirs in nixes() {
        for algorithm in ALGORITHMS {
            for (format, word) in [
                ("sri", "--sri"),
                ("nix32", "--base32"),
                ("base16", "--base16"),
                ("base64", "--base64"),
            ] {
                let ours = ["--type", algorithm, "--format", format];
                let words = ["hash", "path", "--type", algorithm, word];
                for file in &files {
                    let expected = nix(&theirs, &words, file);
                    let ran = hash(&ours, &[file.as_os_str()]).expect(0);
                    assert_eq!(
                        ran.stdout, expected,
                        "{} {words:?} {file:?}",
                        theirs.version
                    );
                }
                // The program, and a link to it.
                for file in [&files[2], &files[4]] {
                    let words = ["hash", "file", "--type", algorithm, word];
                    let expected = nix(&theirs, &words, file);
                    let ran = hash(&[&ours[..], &["--flat"]].concat(), &[file.as_os_str()]);
                    assert_eq!(ran.expect(0).stdout, expected, "{words:?} {file:?}");
                }
            }
        }
        if !theirs.is_2_8() {
            let words = ["hash", "path", "--algo", "blake3", "--format", "nix32"];
            let expected = nix(&theirs, &words, &files[0]);
            let words = ["--algo", "blake3", "--format", "base32", "--mode", "nar"];
            assert_eq!(hash(&words, &[files[0].as_os_str()]).stdout, expected);
        }
    }
}

/// floe takes the words of `nix hash` if it is called as nix.
#[test]
fn words_of_nix_hash_have_its_results() {
    let scratch = scratch();
    let files = odd_tree(scratch.path());
    for theirs in nixes().iter().filter(|it| !it.is_2_8()) {
        for words in [
            &["hash", "path", "--algo", "sha1", "--format", "nix32"][..],
            &["hash", "file", "--type", "sha512"],
        ] {
            let expected = nix(theirs, words, &files[2]);
            let ran = run(floe(["nix"]).args(words).arg(&files[2])).expect(0);
            assert_eq!(ran.stdout, expected, "{words:?}");
        }
    }
}

#[test]
fn forms_of_hashes_convert_as_in_nix() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    fs::write(&file, "abc").unwrap();
    for theirs in nixes().iter().filter(|it| !it.is_2_8()) {
        for algorithm in ALGORITHMS {
            let mut forms: Vec<String> = Vec::new();
            for format in ["sri", "nix32", "base16", "base64"] {
                let bare = hash(
                    &["--flat", "--type", algorithm, "--format", format],
                    &[file.as_os_str()],
                );
                let bare = bare.expect(0).stdout.trim().to_owned();
                if format != "sri" {
                    forms.push(format!("{algorithm}:{bare}"));
                }
                forms.push(bare);
            }
            for to in ["sri", "nix32", "base16", "base64"] {
                let words = ["hash", "convert", "--hash-algo", algorithm, "--to", to];
                for form in &forms {
                    let expected = nix(theirs, &words, form.as_ref());
                    let ours = ["--convert", "--type", algorithm, "--to", to];
                    let ran = hash(&ours, &[form.as_ref()]).expect(0);
                    assert_eq!(ran.stdout, expected, "{form} as {to}");
                }
            }
        }
    }
    // The commands of Nix 2.8 are in every Nix.
    for theirs in nixes() {
        let sri = "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
        for (word, to) in [
            ("to-base32", "nix32"),
            ("to-base16", "base16"),
            ("to-base64", "base64"),
            ("to-sri", "sri"),
        ] {
            let expected = nix(&theirs, &["hash", word], sri.as_ref());
            let ran = hash(&["--convert", "--format", to], &[sri.as_ref()]);
            assert_eq!(ran.expect(0).stdout, expected, "{} {word}", theirs.version);
        }
    }
}

#[test]
fn hashes_as_json_name_their_files_and_forms() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    fs::write(&file, "abc").unwrap();
    let ran = hash(
        &["--json", "--flat", "--type", "md5", "--format", "base16"],
        &[file.as_os_str(), file.as_os_str()],
    );
    let json: Value = ran.expect(0).json();
    let expected = serde_json::json!({
        "file": file,
        "bytes": 3,
        "algorithm": "md5",
        "hash": "900150983cd24fb0d6963f7d28e17f72",
    });
    assert_eq!(
        json["hashes"],
        Value::from(vec![expected.clone(), expected])
    );
    let sri = "md5-kAFQmDzST7DWlj99KOF/cg==";
    let json: Value = hash(&["--json", "--convert", "--to", "base16"], &[sri.as_ref()])
        .expect(0)
        .json();
    assert_eq!(json["hashes"][0]["input"], sri);
    assert_eq!(
        json["hashes"][0]["hash"],
        "900150983cd24fb0d6963f7d28e17f72"
    );
}

#[test]
fn flat_hash_reads_a_pipe() {
    let program = env!("CARGO_BIN_EXE_floe");
    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        &format!("'{program}' hash --flat --type md5 --to base16 <(printf abc)"),
    ]);
    let ran = run(&mut shell).expect(0);
    assert_eq!(ran.stdout, "900150983cd24fb0d6963f7d28e17f72\n");
}

#[test]
fn files_that_no_nar_has_are_named() {
    let scratch = scratch();
    let dir = scratch.path();
    let socket = dir.join("tree/deep/socket");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let pipe = dir.join("pipe");
    run(Command::new("mkfifo").arg(&pipe)).expect(0);
    let refused = "it is not a file, directory or symbolic link";
    for (words, file, reason) in [
        (
            &[][..],
            dir.join("tree"),
            format!("{}: {refused}", socket.display()),
        ),
        (&[], socket.clone(), refused.to_owned()),
        (&[], pipe.clone(), refused.to_owned()),
        (&[], "/dev/null".into(), refused.to_owned()),
        (
            &["--flat"],
            socket.clone(),
            "it is neither a file nor a pipe".to_owned(),
        ),
        (
            &["--flat"],
            "/dev/zero".into(),
            "it is neither a file nor a pipe".to_owned(),
        ),
        (
            &["--flat"],
            dir.join("tree"),
            "it is a directory; leave out --flat".to_owned(),
        ),
        (&["--flat"], dir.join("absent"), "No such file".to_owned()),
        (&[], dir.join("absent"), "No such file".to_owned()),
    ] {
        let ran = hash(words, &[file.as_os_str()]).expect(1);
        assert!(ran.stderr.contains(&reason), "{file:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn texts_that_are_no_hashes_are_refused() {
    for (text, reason) in [
        (
            "1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s",
            "try --type sha256",
        ),
        ("sha224:00", "unknown algorithm"),
        ("sha256:00", "wrong length"),
    ] {
        hash(&["--convert"], &[text.as_ref()])
            .expect(2)
            .stderr_contains(reason);
    }
    // A word of nix hash that is a file is hashed.
    let scratch = scratch();
    let words: [OsString; 2] = ["path".into(), "x".into()];
    let mut command = floe(["hash"]);
    run(command.args(&words).current_dir(scratch.path()))
        .expect(2)
        .stderr_contains("try floe hash FILE");
    fs::write(scratch.path().join("path"), "").unwrap();
    let mut command = floe(["hash", "path"]);
    run(command.current_dir(scratch.path())).expect(0);
}
