//! `floe serve auth`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{corpus, find_tool, run, scratch};

use super::{Logins, PASSWORD, add_token, add_user, auth, basic, bearer};

#[test]
fn commands_add_list_and_remove_logins() {
    let scratch = scratch();
    let file = scratch.join("logins");
    add_user(&file, PASSWORD, &["alice", "--scope", "read,status"]).expect(0);
    let token = add_token(&file, &["ci", "--expires", "2999-01-31"]);
    assert!(token.starts_with("floe_") && token.len() == 57, "{token}");
    assert_ne!(token, add_token(&file, &["other"]));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(PASSWORD) && !text.contains(&token[5..]));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let list = auth(&file, "list", &[]).expect(0).stdout;
    let expected = "alice argon2id read,status never\nci token read 2999-01-31\n\
                    other token read never\n";
    assert_eq!(list, expected);

    for command in ["add-token", "add-user"] {
        let ran = auth(&file, command, &["alice"]).expect(2);
        ran.stderr_contains("has it already");
    }
    auth(&file, "remove", &["nobody"])
        .expect(2)
        .stderr_contains("nobody");
    auth(&file, "remove", &["ci"]).expect(0);
    let list = auth(&file, "list", &[]).expect(0).stdout;
    assert!(!list.contains("ci token"), "{list}");
    auth(&file, "add-token", &["a b"])
        .expect(2)
        .stderr_contains("\"a b\"");
    auth(&file, "add-token", &["x", "--expires", "2020-01-01"])
        .expect(2)
        .stderr_contains("past");
    add_user(&file, "", &["bob"])
        .expect(2)
        .stderr_contains("empty");
    let absent = scratch.join("absent");
    auth(&absent, "remove", &["x"])
        .expect(2)
        .stderr_contains("no such file");
    assert!(!absent.exists());
}

#[test]
fn line_of_htpasswd_is_a_login() {
    let Some(htpasswd) = find_tool("htpasswd", "apache2-utils") else {
        return;
    };
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    run(Command::new(&htpasswd)
        .arg("-Bb")
        .arg(&logins.file)
        .args(["bob", "pass-of-bob"]))
    .expect(0);
    let server = logins.serve(&corpus, &[]);
    let get = |field: &str| server.get_with("/nix-cache-info", field).status;
    assert_eq!(get(&basic("bob", "pass-of-bob")), 200);
    assert_eq!(get(&basic("bob", "pass-of-bo")), 401);
    assert_eq!(get(&basic("alice", PASSWORD)), 200);
    assert_eq!(get(&bearer(&logins.token)), 200);
    // htpasswd writes a hash of MD5 by default.
    run(Command::new(&htpasswd)
        .arg("-mb")
        .arg(&logins.file)
        .args(["carol", "x"]))
    .expect(0);
    let ran = auth(&logins.file, "list", &[]).expect(2);
    let ran = ran
        .stderr_contains("unknown kind")
        .stderr_contains("htpasswd -B");
    assert!(!ran.stderr.contains("$apr1"), "{}", ran.stderr);
}

/// Types two passwords at a terminal, and returns exit code and everything that it shows.
fn type_passwords(file: &Path, passwords: [&str; 2]) -> (Option<i32>, String) {
    let floe = env!("CARGO_BIN_EXE_floe");
    let line = format!(
        "{floe} serve auth add-user --auth-file {} bob",
        file.display()
    );
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    for (prompt, password) in ["Password of bob: ", "again: "].into_iter().zip(passwords) {
        // The echo is off as soon as the prompt is there.
        while !shown.ends_with(prompt.as_bytes()) {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            shown.extend(byte);
        }
        writeln!(stdin, "{password}").unwrap();
    }
    stdout.read_to_end(&mut shown).unwrap();
    let code = child.wait().unwrap().code();
    (code, String::from_utf8(shown).unwrap())
}

#[test]
fn password_is_typed_twice_and_not_shown() {
    if find_tool("script", "bsdutils").is_none() {
        return;
    }
    let scratch = scratch();
    let file = scratch.join("logins");
    let (code, shown) = type_passwords(&file, ["typed-one", "typed-two"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(
        shown.contains("differ") && !shown.contains("typed"),
        "{shown}"
    );
    assert!(!file.exists());
    let (code, shown) = type_passwords(&file, ["typed-one", "typed-one"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("typed"), "{shown}");
    let list = auth(&file, "list", &[]).expect(0).stdout;
    assert_eq!(list, "bob argon2id read never\n");
}
