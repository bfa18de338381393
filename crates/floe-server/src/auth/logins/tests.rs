//! Decisions about requests with right and wrong logins, and across reloads.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_format::base64;
use tempfile::TempDir;

use super::super::secret_hash::SecretHash;
use super::super::secret_hash::tests::weak_argon2;
use super::*;
use crate::http::request::Parsed;

/// A login file, and a server's knowledge about one client.
struct Fixture {
    dir: TempDir,
    logins: Logins,
    state: ConnectionLogin,
    warnings: Arc<Mutex<Vec<String>>>,
}

const TOKEN: &str = "floe_0123456789abcdfghijklmnpqrsvwxyz";

fn alice(password: &str) -> String {
    format!("alice:{}\n", weak_argon2(password).to_text())
}

fn ci(fields: &str) -> String {
    format!("ci:{}{fields}\n", SecretHash::of_token(TOKEN).to_text())
}

impl Fixture {
    fn new(text: &str) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, text, 0o600);
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = warnings.clone();
        let warn: Warn = Arc::new(move |text| sink.lock().push(text.to_owned()));
        let logins = Logins::open(&dir.path().join("logins"), warn).unwrap();
        let state = ConnectionLogin::default();
        Fixture {
            dir,
            logins,
            state,
            warnings,
        }
    }

    fn check(&mut self, field: &str) -> Access {
        let head = format!("GET / HTTP/1.0\r\n{field}\r\n");
        let Parsed::Head(request, _) = Request::parse(head.as_bytes(), crate::config::HEAD_LEN_MAX)
        else {
            panic!("{head}");
        };
        let client = Client {
            state: &mut self.state,
            from: ClientId::Network([192, 0, 2, 1].into()),
        };
        self.logins.check(&request, &Route::CacheInfo, client)
    }

    /// Does what the thread for passwords does in between.
    fn check_and_verify(&mut self, field: &str) -> Access {
        match self.check(field) {
            Access::Verify(check) => {
                let verdict = self.logins.verify(&check);
                self.state.set_verdict(verdict);
                self.check(field)
            }
            decided => decided,
        }
    }

    fn counts(&self) -> [u64; 3] {
        let LoginCounters {
            accepted,
            failed,
            throttled,
            ..
        } = &*self.logins.counters;
        [accepted, failed, throttled].map(|counter| counter.load(Ordering::Relaxed))
    }
}

fn write(dir: &TempDir, text: &str, mode: u32) {
    let path = dir.path().join("logins");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn basic(name: &str, password: &str) -> String {
    let text = base64::encode(format!("{name}:{password}").as_bytes());
    format!("Authorization: Basic {text}\r\n")
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[track_caller]
fn assert_granted(access: &Access) {
    assert!(matches!(access, Access::Granted), "{access:?}");
}

#[track_caller]
fn assert_refused(access: &Access, expected: Refusal) {
    assert!(
        matches!(access, Access::Refused(refusal) if *refusal == expected),
        "{access:?}"
    );
}

#[test]
fn token_is_accepted_as_bearer_and_as_password_of_any_name() {
    let mut server = Fixture::new(&ci(""));
    for field in [bearer(TOKEN), basic("anyone", TOKEN), basic("", TOKEN)] {
        assert_granted(&server.check(&field));
        assert_eq!(server.state.user(), Some("ci"));
    }
    assert_eq!(server.counts(), [3, 0, 0]);
    // The same credentials again do not count.
    assert_granted(&server.check(&basic("", TOKEN)));
    assert_eq!(server.counts(), [3, 0, 0]);
    assert_refused(&server.check(&bearer("floe_no")), Refusal::LoginFailed);
    assert_eq!(server.state.user(), None);
    assert_refused(&server.check(""), Refusal::LoginRequired);
    assert_eq!(server.counts(), [3, 1, 0]);
}

#[test]
fn password_is_verified_once_and_then_known() {
    let mut server = Fixture::new(&alice("secret"));
    let right = basic("alice", "secret");
    assert!(matches!(server.check(&right), Access::Verify(_)));
    assert_granted(&server.check_and_verify(&right));
    assert_eq!(server.state.user(), Some("alice"));
    // Another connection with the same password.
    server.state = ConnectionLogin::default();
    assert_granted(&server.check(&right));
    for (name, password) in [("alice", "wrong"), ("bob", "secret"), ("alice", "")] {
        let access = server.check_and_verify(&basic(name, password));
        assert_refused(&access, Refusal::LoginFailed);
        assert_eq!(server.state.user(), Some(name));
    }
    // A verdict belongs to one request.
    assert!(matches!(
        server.check(&basic("alice", "wrong")),
        Access::Verify(_)
    ));
}

#[test]
fn expired_login_and_missing_scope_are_told_apart() {
    let mut server = Fixture::new(&(ci("::2020-01-01") + &alice("a")));
    assert_refused(&server.check(&bearer(TOKEN)), Refusal::LoginExpired);
    assert_eq!(server.state.user(), Some("ci"));
    let warnings = server.warnings.lock().join("\n");
    assert!(
        warnings.contains("ci") && warnings.contains("2020-01-01"),
        "{warnings}"
    );
    let mut server = Fixture::new(&ci(":metrics,status"));
    assert_refused(&server.check(&bearer(TOKEN)), Refusal::MissingScope);
    let mut server = Fixture::new(&ci(":read:2999-01-01"));
    assert_granted(&server.check(&bearer(TOKEN)));
}

#[test]
fn new_file_is_effective_and_broken_file_changes_nothing() {
    let mut server = Fixture::new(&alice("old"));
    let (old, new) = (basic("alice", "old"), basic("alice", "new"));
    assert_granted(&server.check_and_verify(&old));
    for (text, mode) in [
        (alice("new"), 0o644),
        (alice("new").trim_end().to_owned(), 0o600),
        (alice("new") + "bob\n", 0o600),
        (String::new(), 0o600),
    ] {
        write(&server.dir, &text, mode);
        let error = server.logins.reload(false).unwrap_err().to_string();
        assert!(error.starts_with("cannot use the login file /"), "{error}");
        assert_granted(&server.check(&old));
    }
    assert_eq!(
        server
            .logins
            .counters
            .reloads_failed
            .load(Ordering::Relaxed),
        4
    );
    write(&server.dir, &alice("new"), 0o600);
    server.logins.reload(false).unwrap();
    // Neither the connection nor the table of passwords remembers the old one.
    assert_refused(&server.check_and_verify(&old), Refusal::LoginFailed);
    assert_granted(&server.check_and_verify(&new));
    // The file is the same.
    server.logins.reload(false).unwrap();
    assert_granted(&server.check(&new));
    server.logins.reload(true).unwrap();
    assert!(matches!(server.check(&new), Access::Verify(_)));
}

#[test]
fn verdict_from_before_a_reload_is_not_used() {
    let mut server = Fixture::new(&alice("old"));
    let old = basic("alice", "old");
    let Access::Verify(check) = server.check(&old) else {
        panic!("the password is known");
    };
    let verdict = server.logins.verify(&check);
    write(&server.dir, &alice("new"), 0o600);
    server.logins.reload(false).unwrap();
    server.state.set_verdict(verdict);
    assert_refused(&server.check_and_verify(&old), Refusal::LoginFailed);
}

#[test]
fn failures_throttle_wrong_logins_and_not_known_ones() {
    let mut server = Fixture::new(&ci(""));
    for _ in 0..FAILURES_MAX {
        assert_refused(&server.check(&bearer("no")), Refusal::LoginFailed);
    }
    assert_refused(&server.check(&basic("x", "no")), Refusal::TooManyLogins);
    assert_granted(&server.check(&bearer(TOKEN)));
    assert_eq!(server.counts(), [1, u64::from(FAILURES_MAX), 1]);
    let warnings = server.warnings.lock();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("192.0.2.1") && warnings[0].contains("\"x\""));
}

#[test]
fn logged_name_is_short_and_no_token() {
    assert_eq!(logged_name("alice").as_deref(), Some("alice"));
    assert_eq!(logged_name(TOKEN), None);
    let long = logged_name(&"é".repeat(100)).unwrap();
    assert_eq!(long, format!("{}...", "é".repeat(32)));
}

#[test]
fn debug_output_has_no_secret() {
    let mut server = Fixture::new(&(ci("") + &alice("right")));
    let Access::Verify(check) = server.check(&basic("alice", "right")) else {
        panic!("the password is known");
    };
    assert_granted(&server.check(&bearer(TOKEN)));
    let table = server.logins.current();
    let all = format!("{check:?} {:?} {table:?} {:?}", server.logins, server.state);
    for secret in ["right", TOKEN, "$argon2id$", "sha256"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}
