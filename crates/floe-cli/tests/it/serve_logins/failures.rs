//! Wrong logins: responses, limits, and the log.

use std::fs;
use std::thread;

use floe_testkit::http_client::narinfo_of;
use floe_testkit::{corpus, scratch};

use super::{Logins, PASSWORD, add_token, basic, bearer};

/// A wrong password. The test for secrets searches the output for it.
const WRONG: &str = "wrong-Passw0rd";

#[test]
fn responses_tell_why_a_login_is_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let metrics = add_token(&logins.file, &["prometheus", "--scope", "metrics"]);
    let text = fs::read_to_string(&logins.file).unwrap();
    let expire = |line: &str| match line.strip_prefix("ci:") {
        Some(rest) => format!("late:{rest}:2020-01-01\n"),
        None => format!("{line}\n"),
    };
    fs::write(&logins.file, text.lines().map(expire).collect::<String>()).unwrap();
    let server = logins.serve(&corpus, &[]);
    for target in ["/nix-cache-info", &narinfo_of(&corpus.root), "/", "/absent"] {
        let refused = server.get(target);
        assert_eq!(refused.status, 401, "{target}");
        assert!(
            refused
                .head
                .contains("WWW-Authenticate: Basic realm=\"floe\"")
        );
        assert!(refused.head.contains("WWW-Authenticate: Bearer"));
        assert_eq!(refused.body, b"login required\n");
    }
    assert_eq!(server.head("/nix-cache-info").status, 401);
    let granted = server.get_with("/nix-cache-info", &basic("alice", PASSWORD));
    assert_eq!(granted.status, 200);
    assert!(
        granted.head.contains("Cache-Control: private\r\n"),
        "{}",
        granted.head
    );
    let nar = server.get_with(&narinfo_of(&corpus.root), &basic("alice", PASSWORD));
    let nar = format!("/{}", nar.narinfo_field("URL"));
    let granted = server.get_with(&nar, &basic("alice", PASSWORD));
    assert_eq!(granted.status, 200);
    // A shared cache must not keep it for clients without a login.
    assert!(!granted.head.contains("public"), "{}", granted.head);
    assert!(granted.head.contains("private"), "{}", granted.head);
    for (field, status, body) in [
        (basic("alice", WRONG), 401, "wrong login\n"),
        (basic("carol", PASSWORD), 401, "wrong login\n"),
        (bearer("floe_no"), 401, "wrong login\n"),
        ("Authorization: Basic ?\r\n".into(), 401, "wrong login\n"),
        (bearer(&logins.token), 401, "the login has expired\n"),
        (bearer(&metrics), 403, "the login does not allow this\n"),
    ] {
        let refused = server.get_with("/nix-cache-info", &field);
        assert_eq!((refused.status, refused.text()), (status, body));
    }
    let stderr = server.stop();
    assert!(
        stderr.contains("late") && stderr.contains("2020-01-01"),
        "{stderr}"
    );
}

#[test]
fn monitoring_routes_need_scopes_of_their_own() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let metrics = add_token(&logins.file, &["prometheus", "--scope", "metrics"]);
    let status = add_token(&logins.file, &["watch", "--scope", "status"]);
    let server = logins.serve(&corpus, &[]);
    let get = |target: &str, field: &str| server.get_with(target, field).status;
    let fields = [
        "".to_owned(),
        bearer("no"),
        bearer(&metrics),
        bearer(&status),
        bearer(&logins.token),
    ];
    for (target, expected) in [
        ("/health", [200, 200, 200, 200, 200]),
        ("/ready", [200, 200, 200, 200, 200]),
        ("/version", [401, 401, 403, 200, 200]),
        ("/metrics", [401, 401, 200, 403, 403]),
        ("/nix-cache-info", [401, 401, 403, 403, 200]),
    ] {
        assert_eq!(
            fields.each_ref().map(|field| get(target, field)),
            expected,
            "{target}"
        );
    }
    let text = server.get_with("/metrics", &bearer(&metrics));
    let has = |sample: &str| text.text().lines().any(|line| line == sample);
    assert!(has("floe_login_failures_total 3"), "{}", text.text());
    assert!(
        has("floe_http_refusals_total{reason=\"missingScope\"} 5"),
        "{}",
        text.text()
    );
}

#[test]
fn connection_stays_open_after_a_wrong_login() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &["--threads", "1"]);
    let mut client = server.connect();
    let target = narinfo_of(&corpus.root);
    let mut get = |field: &str| client.request("GET", &target, field).status;
    let statuses = [
        get(""),
        get(&basic("alice", WRONG)),
        get(&basic("alice", PASSWORD)),
        get(&bearer(&logins.token)),
        get(&basic("alice", PASSWORD)),
        get(""),
    ];
    assert_eq!(statuses, [401, 401, 200, 200, 200, 401]);
    // A whole pipeline: the requests behind a password wait for its verification.
    let nar = server.get_with(&target, &bearer(&logins.token));
    let nar = format!("/{}", nar.narinfo_field("URL"));
    let mut client = server.connect();
    let head =
        |target: &str, field: &str| format!("GET {target} HTTP/1.1\r\nHost: floe\r\n{field}\r\n");
    let pipeline = [
        head(&target, &bearer(&logins.token)),
        head(&target, &basic("alice", "another")),
        head(&nar, &basic("alice", PASSWORD)),
        head(&target, &basic("bob", "another")),
        head(&target, &bearer(&logins.token)),
    ];
    client.send(pipeline.concat().as_bytes());
    let statuses = [200, 401, 200, 401, 200];
    for expected in statuses {
        assert_eq!(client.read_response(false).unwrap().status, expected);
    }
}

#[test]
fn wrong_passwords_in_a_loop_do_not_delay_others() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &[]);
    let target = narinfo_of(&corpus.root);
    let get = |from: u8, field: &str| server.connect_from(from).request("GET", &target, field);
    assert_eq!(get(2, &basic("alice", PASSWORD)).status, 200);
    let attack = |prefix: &str| {
        let mut refused = [0, 0];
        for number in 0..60 {
            let response = get(2, &basic("alice", &format!("{prefix}{number}")));
            match response.status {
                401 => refused[0] += 1,
                429 => {
                    assert_eq!(response.field("retry-after"), Some("6"));
                    refused[1] += 1;
                }
                other => panic!("status {other}"),
            }
        }
        refused
    };
    thread::scope(|scope| {
        let prefixes = ["a", "b", "c", "d"];
        let attacks = prefixes.map(|prefix| scope.spawn(move || attack(prefix)));
        for _ in 0..50 {
            assert_eq!(get(3, &bearer(&logins.token)).status, 200);
            // The address of the attacker is that of a proxy, which other clients have too.
            assert_eq!(get(2, &basic("alice", PASSWORD)).status, 200);
        }
        let refused = attacks.into_iter().map(|attack| attack.join().unwrap());
        let [wrong, late] = refused.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        // Ten at once, and one for each six seconds that the loop has taken.
        assert!((10..20).contains(&wrong), "{wrong} attempts were verified");
        assert_eq!(wrong + late, 240);
    });
    assert_eq!(get(4, &basic("alice", PASSWORD)).status, 200);
    let stderr = server.stop();
    assert_eq!(
        stderr.matches("refusing further logins").count(),
        1,
        "{stderr}"
    );
    assert!(
        stderr.contains("127.0.0.2") && stderr.contains("alice"),
        "{stderr}"
    );
}

#[test]
fn requests_with_the_same_password_are_verified_together() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &[]);
    // More connections than an address may have failures.
    let mut clients: Vec<_> = (0..25).map(|_| server.connect()).collect();
    let field = basic("alice", PASSWORD);
    let head = format!("GET /nix-cache-info HTTP/1.1\r\nHost: floe\r\n{field}\r\n");
    clients
        .iter_mut()
        .for_each(|client| client.send(head.as_bytes()));
    for client in &mut clients {
        assert_eq!(client.read_response(false).unwrap().status, 200);
    }
}

#[test]
fn no_output_of_the_server_has_a_secret() {
    let Some(corpus) = corpus("jq") else { return };
    for format in ["combined", "real-ip", "verbose", "json"] {
        let scratch = scratch();
        let logins = Logins::new(&scratch);
        let log = scratch.join("access.log");
        let log_file = log.display().to_string();
        let args = ["--access-log", &log_file, "--access-log-format", format];
        let server = logins.serve(&corpus, &[&args[..], &["--log-format", "text"]].concat());
        let token = &logins.token;
        let forms = [
            basic("alice", PASSWORD),
            basic("alice", WRONG),
            basic("any", token),
            basic(token, "x"),
            bearer(token),
            bearer(PASSWORD),
        ];
        for field in forms.iter().chain(&forms).chain(&forms) {
            server.get_with(&narinfo_of(&corpus.root), field);
            server.get_with(&format!("/x?token={token}"), field);
            server.get_with(&format!("http://alice:{PASSWORD}@floe/x"), field);
            let referer = format!("Referer: http://alice:{WRONG}@floe/{token}\r\n{field}");
            server.get_with("/nix-cache-info", &referer);
        }
        server.exchange(format!("FOO http://alice:{PASSWORD}@floe/{token}\r\n\r\n").as_bytes());
        let stderr = server.stop();
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.contains("alice") || format == "verbose", "{lines}");
        for secret in [PASSWORD, WRONG, token, &token[20..40], "$argon2id"] {
            assert!(!lines.contains(secret), "{format}: {secret} is in {lines}");
            assert!(!stderr.contains(secret), "{secret} is in {stderr}");
        }
        assert!(
            format != "json" || lines.contains("\"reason\":\"loginFailed\""),
            "{lines}"
        );
    }
}

#[test]
fn each_wrong_password_uses_the_same_memory() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let server = Logins::new(&scratch).serve(&corpus, &[]);
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib / 1024
    };
    let before = resident();
    for number in 0..9 {
        let field = basic("alice", &format!("wrong{number}"));
        assert_eq!(server.get_with("/nix-cache-info", &field).status, 401);
    }
    // One verification needs 19 MiB.
    let grown = resident().saturating_sub(before);
    assert!((10..40).contains(&grown), "{grown} MiB");
}

#[test]
fn request_that_waits_for_its_password_counts_once() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &["--max-requests-per-connection", "2"]);
    let field = basic("alice", PASSWORD);
    let mut client = server.connect();
    for expected in [None, Some("close")] {
        let response = client.request("GET", "/nix-cache-info", &field);
        assert_eq!(response.status, 200);
        assert_eq!(response.field("Connection"), expected);
    }
    server.stop();
}
