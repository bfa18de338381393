//! Login files that cannot be used, at the start and at SIGHUP.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::{corpus, run, scratch, wait_until};
use rustix::process::Signal;

use super::{Logins, PASSWORD, auth, basic, bearer};
use crate::serve_options::serve;

/// Files that cannot be used: text, mode, and a part of the error.
fn bad_files(good: &str) -> Vec<(String, u32, &'static str)> {
    let half_hash = good.split(",t=").next().unwrap();
    vec![
        (good.to_owned(), 0o644, "other users can use it (mode 0644)"),
        (good.to_owned(), 0o620, "other users can use it (mode 0620)"),
        (
            String::new(),
            0o600,
            "it is empty, so it may be half-written",
        ),
        (
            good.trim_end().to_owned(),
            0o600,
            "line 3: the line does not end",
        ),
        (format!("{half_hash}\n"), 0o600, "line 2: the argon2id hash"),
        (
            format!("{good}bob\n"),
            0o600,
            "line 4: the line has no colon",
        ),
        (
            format!("{good}bob:secret-text\n"),
            0o600,
            "line 4: the hash is of an unknown kind",
        ),
    ]
}

#[test]
fn bad_login_file_stops_the_start_and_is_named() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let good = fs::read_to_string(&logins.file).unwrap();
    let start = |args: &[&str]| {
        let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
        command.arg(corpus.store()).args(args);
        run(command.arg("--auth-file").arg(&logins.file))
    };
    for (text, mode, part) in bad_files(&good) {
        fs::write(&logins.file, &text).unwrap();
        fs::set_permissions(&logins.file, fs::Permissions::from_mode(mode)).unwrap();
        for args in [&[][..], &["--check"]] {
            let ran = start(args).expect(2);
            let named = format!(
                "cannot use the login file {}: {part}",
                logins.file.display()
            );
            let ran = ran.stderr_contains(&named);
            for secret in ["$argon2id$v", "secret-text"] {
                assert!(!ran.stderr.contains(secret), "{}", ran.stderr);
            }
        }
    }
    fs::remove_file(&logins.file).unwrap();
    start(&[])
        .expect(2)
        .stderr_contains("there is no such file");
    fs::create_dir(&logins.file).unwrap();
    start(&[]).expect(2).stderr_contains("not a regular file");
    fs::remove_dir(&logins.file).unwrap();
    fs::write(&logins.file, &good).unwrap();
    fs::set_permissions(&logins.file, fs::Permissions::from_mode(0o600)).unwrap();
    let checked = start(&["--check"]).expect(0).stdout;
    assert!(checked.contains("auth-file "), "{checked}");
}

#[test]
fn sighup_reads_the_file_and_keeps_logins_if_it_is_bad() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &[]);
    let mut client = server.connect();
    let mut get = |field: &str| client.request("GET", "/nix-cache-info", field).status;
    let (alice, ci) = (basic("alice", PASSWORD), bearer(&logins.token));
    assert_eq!([get(&alice), get(&ci)], [200, 200]);
    let good = fs::read_to_string(&logins.file).unwrap();
    for (text, mode, part) in bad_files(&good) {
        let before = server.stderr().len();
        fs::write(&logins.file, text).unwrap();
        fs::set_permissions(&logins.file, fs::Permissions::from_mode(mode)).unwrap();
        server.signal(Signal::HUP);
        wait_until("the failure is not logged", || {
            let stderr = server.stderr();
            stderr[before..].contains("keeping the earlier") && stderr[before..].contains(part)
        });
        assert_eq!([get(&alice), get(&ci)], [200, 200]);
    }
    fs::write(&logins.file, &good).unwrap();
    fs::set_permissions(&logins.file, fs::Permissions::from_mode(0o600)).unwrap();
    auth(&logins.file, "remove", &["alice"]).expect(0);
    assert_eq!(get(&alice), 200, "the server reads the file only at SIGHUP");
    server.signal(Signal::HUP);
    wait_until("the file is not read", || {
        server
            .stderr()
            .contains("reloaded certificates, keys and logins")
    });
    // The same connection, which has logged in before.
    assert_eq!([get(&alice), get(&ci)], [401, 200]);
    let stderr = server.stop();
    assert!(
        !stderr.contains("$argon2id$v") && !stderr.contains("secret-text"),
        "{stderr}"
    );
}
