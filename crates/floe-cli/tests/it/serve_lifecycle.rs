//! Settings that a running server takes over, and its end.

mod service_manager;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::{Scratch, corpus, create_certificates, find_tool, scratch, wait_until};
use rustix::process::Signal;

use crate::push::key_named;
use crate::serve_logins::add_token;
use crate::serve_options::serve;
use crate::server_process::ServerProcess;

/// A server with a configuration file.
struct Configured {
    scratch: Scratch,
    file: PathBuf,
    server: ServerProcess,
}

impl Configured {
    /// Serves the closure of jq with the settings of a text; `None` without the closure.
    #[track_caller]
    fn start(scratch: Scratch, text: &str) -> Option<Configured> {
        let corpus = corpus("jq")?;
        let file = scratch.join("floe.toml");
        fs::write(&file, text).unwrap();
        let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
        command.arg(corpus.store()).arg("--config").arg(&file);
        Some(Configured {
            server: ServerProcess::spawn(&mut command),
            scratch,
            file,
        })
    }

    /// Changes the file, sends SIGHUP, and waits for a message.
    #[track_caller]
    fn reload(&self, text: &str, message: &str) {
        let before = self.server.stderr().len();
        fs::write(&self.file, text).unwrap();
        self.server.signal(Signal::HUP);
        wait_until(message, || self.server.stderr()[before..].contains(message));
    }

    fn priority(&self) -> String {
        let info = self.server.get("/nix-cache-info").text().to_owned();
        let line = info.lines().find(|line| line.starts_with("Priority"));
        line.unwrap_or_default().to_owned()
    }
}

#[test]
fn reload_takes_over_settings() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let keys = ["one-1", "two-1"].map(|name| key_named(&scratch, name).0);
    let text = |key: &str, priority: u32, more: &str| {
        format!("secret_key_file = '{key}'\npriority = {priority}\n{more}")
    };
    let first = text(&keys[0], 20, "");
    let Some(configured) = Configured::start(scratch, &first) else {
        return;
    };
    let server = &configured.server;
    let target = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    let signer = || {
        let text = server.get(&target).text().to_owned();
        let is_by = |name: &str| text.contains(&format!("Sig: {name}:"));
        (
            is_by("one-1"),
            is_by("two-1"),
            server.get("/").text().contains("two-1:"),
        )
    };
    assert_eq!(configured.priority(), "Priority: 20");
    assert_eq!(signer(), (true, false, false));
    // A connection that is open stays, and gets the new narinfo.
    let mut client = server.connect();
    assert_eq!(client.request("GET", &target, "").status, 200);
    let second = text(&keys[1], 30, "max_requests_per_connection = 2\n");
    let message = "changed secret_key_file, priority, max_requests_per_connection\n";
    configured.reload(&second, message);
    assert_eq!(configured.priority(), "Priority: 30");
    assert_eq!(signer(), (false, true, true));
    assert!(
        client
            .request("GET", &target, "")
            .text()
            .contains("Sig: two-1:")
    );
    let mut client = server.connect();
    let closes = |client: &mut floe_testkit::http_client::Client| {
        client
            .request("GET", "/nix-cache-info", "")
            .field("Connection")
            .is_some()
    };
    assert!(!closes(&mut client) && closes(&mut client));
    // The address and the threads are those of the start.
    let third = text(
        &keys[1],
        30,
        "max_requests_per_connection = 2\nthreads = 7\n",
    );
    configured.reload(
        &third,
        "cannot change threads while the server runs; restart it\n",
    );
    configured.reload(
        &third,
        "cannot change threads while the server runs; restart it\n",
    );
    // The same settings again are no change.
    configured.reload(&second, "reloaded certificates, keys and logins\n");
    configured.server.stop();
}

/// A server that runs without TLS cannot begin to use it.
#[test]
fn reload_does_not_begin_tls() {
    let (Some(openssl), Some(configured)) = (
        find_tool("openssl", "openssl"),
        Configured::start(scratch(), "priority = 20\n"),
    ) else {
        return;
    };
    let [certificate, key] = create_certificates(&openssl, configured.scratch.path()).server_files;
    let text = format!("priority = 30\ntls_cert = '{certificate}'\ntls_key = '{key}'\n");
    let message = "cannot change tls_cert, tls_key while the server runs; restart it\n";
    configured.reload(&text, message);
    let stderr = configured.server.stderr();
    assert!(stderr.contains("changed priority\n"), "{stderr}");
    assert_eq!(configured.priority(), "Priority: 30");
    configured.server.stop();
}

/// Nothing changes with a broken file, and no client notices.
#[test]
fn broken_settings_change_nothing_under_load() {
    let scratch = scratch();
    let (key, _) = key_named(&scratch, "one-1");
    let logins = scratch.join("logins");
    add_token(&logins, &["ci"]);
    let good = format!(
        "secret_key_file = '{key}'\nauth_file = '{}'\npublic_read = true\npriority = 20\n",
        logins.display()
    );
    let Some(configured) = Configured::start(scratch, &good) else {
        return;
    };
    let (is_over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = configured.server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    let response = client.request("GET", "/nix-cache-info", "");
                    assert_eq!(response.status, 200);
                    assert!(
                        response.text().contains("Priority: 20"),
                        "{}",
                        response.text()
                    );
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let place = |name: &str| configured.scratch.join(name).display().to_string();
        fs::write(place("bad-key"), "no key\n").unwrap();
        let changed = |from: &str, to: &str| {
            // Another priority shows that the settings count as a whole.
            good.replace("priority = 20", "priority = 10")
                .replace(from, to)
        };
        for (text, part) in [
            ("priority = ".to_owned(), "floe.toml"),
            (changed("public_read", "publicread"), "publicread"),
            (changed("public_read = true", "min_rate = 'x'"), "min_rate"),
            (changed(&key, &place("absent")), "absent"),
            (changed(&key, &place("bad-key")), "bad-key"),
            (
                changed("public_read", "tls_cert = '/c'\npublic_read"),
                "--tls-key",
            ),
            (
                changed("public_read", "max_header_size = 1\npublic_read"),
                "max-header-size",
            ),
        ] {
            let before = configured.server.stderr().len();
            configured.reload(&text, "keeping the earlier settings");
            let said = configured.server.stderr()[before..].to_owned();
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
        let token = fs::read_to_string(&logins).unwrap();
        fs::write(&logins, "broken\n").unwrap();
        configured.reload(&changed("x", "x"), "keeping the earlier settings");
        fs::write(&logins, token).unwrap();
        let done = requests.load(Ordering::Relaxed);
        wait_until("further requests", || {
            requests.load(Ordering::Relaxed) > done + 100
        });
        is_over.store(true, Ordering::Relaxed);
    });
    configured.reload(&good, "reloaded");
    assert_eq!(configured.priority(), "Priority: 20");
    configured.server.stop();
}

/// A client that does not read its response does not delay the end for longer than the operator
/// wants.
#[test]
fn stop_has_a_deadline() {
    let Some(corpus) = corpus("curl") else { return };
    let server = ServerProcess::start(corpus.store(), &["--stop-timeout", "1"]);
    let largest = corpus.paths.iter().max_by_key(|path| {
        let target = format!("/{}.narinfo", &path["/nix/store/".len()..][..32]);
        let narinfo = server.get(&target).text().to_owned();
        let size = narinfo
            .lines()
            .find_map(|line| line.strip_prefix("NarSize: "));
        size.unwrap().parse::<u64>().unwrap()
    });
    let hash = &largest.unwrap()["/nix/store/".len()..][..32];
    let mut client = server.connect();
    // More than the buffers of the socket take.
    let requests = format!("GET /nar/{hash}.nar HTTP/1.1\r\nHost: h\r\n\r\n").repeat(20);
    client.send(requests.as_bytes());
    client.read_head().unwrap();
    let began = Instant::now();
    server.signal(Signal::TERM);
    server.wait(Duration::from_secs(8));
    assert!(began.elapsed() >= Duration::from_secs(1));
}
