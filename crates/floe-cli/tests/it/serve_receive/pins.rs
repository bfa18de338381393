//! Pins that clients write to a receiving server.

use std::process::Command;

use floe_format::pin::Pin;
use floe_testkit::http_client::Response;
use floe_testkit::{Corpus, corpus, nixes, run, wait_until};
use rustix::process::Signal;

use super::into_store::IntoStore;
use super::{Receiving, put, serve_with};
use crate::push::key;
use crate::serve_logins::{add_token, bearer};
use crate::support::floe;

impl Receiving {
    fn pin(&self, name: &str, path: &str, secret: &str) -> Command {
        let url = self.server.url();
        let mut pin = floe(["pin", name, path, "--to", &url, "--secret-key-file", secret]);
        pin.args(["--option", "netrc-file", &self.netrc()]);
        pin
    }

    fn unpin(&self, name: &str) -> Command {
        let mut unpin = floe(["unpin", name, "--to", &self.server.url()]);
        unpin.args(["--option", "netrc-file", &self.netrc()]);
        unpin
    }

    /// Installs a pin with its name.
    fn install(&self, name: &str, (root, key): (&str, &str)) -> Command {
        let mut install = floe(["install", "--from", &self.server.url(), "--root"]);
        install
            .arg(self.scratch.join(root))
            .args([name, "--trusted-public-keys", key]);
        install.args(["--option", "netrc-file", &self.netrc()]);
        // Names are enabled, and those of the pins are the only ones.
        let names = self.scratch.join("empty.toml");
        std::fs::write(&names, "").unwrap();
        install.env("NIX_CONFIG", format!("names = file:{}", names.display()));
        install.env("XDG_STATE_HOME", self.scratch.join("state"));
        install
    }

    fn delete(&self, target: &str, token: &str, fields: &str) -> Response {
        let fields = bearer(token) + fields;
        self.server.connect().request("DELETE", target, &fields)
    }
}

/// A second path of a corpus, beside its root.
fn other_path(corpus: &Corpus) -> &str {
    corpus
        .paths
        .iter()
        .find(|path| **path != corpus.root)
        .unwrap()
}

#[test]
fn pins_of_clients_are_those_of_the_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&[]);
    let (secret, public) = key(&receiving.scratch);
    run(receiving
        .pin("web", &corpus.root, &secret)
        .arg("--no-check-path"))
    .expect(4)
    .stderr_contains("it is not here; push it first");
    let mut push = receiving.push(&corpus);
    run(push.args(["--secret-key-file", &secret])).expect(0);
    let other = other_path(&corpus);
    run(&mut receiving.pin("web", other, &secret)).expect(0);
    run(&mut receiving.pin("web", &corpus.root, &secret)).expect(0);
    run(&mut receiving.pin("libs", other, &secret)).expect(0);
    run(&mut receiving.install("web", ("root-1", &public))).expect(0);
    let mut pins = floe(["pins", "--json", "--from", &receiving.server.url()]);
    pins.args(["--option", "netrc-file", &receiving.netrc()]);
    let listed = run(&mut pins).expect(0).stdout;
    assert_eq!(listed.matches("\"serial\"").count(), 2, "{listed}");
    // A collection finds the pins and their generations.
    let uri = format!("file://{}", receiving.directory.display());
    let generations = std::fs::read_dir(receiving.directory.join("pin-generations"));
    assert_eq!(
        generations
            .unwrap()
            .filter(|entry| {
                !entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(b".")
            })
            .count(),
        3
    );
    let gc = || {
        let args = ["cache", "gc", &uri, "--keep-since", "0d", "--grace", "0s"];
        run(&mut floe(args)).expect(0)
    };
    gc();
    run(&mut receiving.install("web", ("root-2", &public))).expect(0);
    run(&mut receiving.unpin("web")).expect(0);
    run(&mut receiving.unpin("web"))
        .expect(1)
        .stderr_contains("no such pin");
    let absent = run(&mut receiving.install("web", ("root-3", &public)));
    assert_ne!(absent.code, Some(0), "{}", absent.stderr);
    gc();
    receiving.verify();
    let target = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    assert_eq!(receiving.get(&target).status, 404);
    assert_eq!(receiving.server.stop(), "");
}

#[test]
fn pins_of_the_store_are_roots() {
    let Some(corpus) = corpus("jq") else { return };
    let nix = nixes().remove(0);
    let store = IntoStore::start(&["--receive-keep", "1"]);
    run(&mut store.push(&corpus)).expect(0);
    let receiving = &store.receiving;
    run(&mut receiving.pin("web", &corpus.root, &store.secret)).expect(0);
    // Two times the time for which the server itself keeps the path.
    let other = floe_testkit::corpus("curl").unwrap();
    run(&mut store.push(&other)).expect(0);
    wait_until("the end of the roots", || {
        nix.store(&store.root, ["--gc"]);
        !store.has(&other.root)
    });
    assert!(store.has(&corpus.root));
    nix.verify(&store.root, corpus.paths.len());
    run(&mut receiving.install("web", ("root-1", &store.public))).expect(0);
    run(&mut receiving.unpin("web")).expect(0);
    wait_until("the end of the roots", || {
        nix.store(&store.root, ["--gc"]);
        !store.has(&corpus.root)
    });
    run(&mut receiving.pin("web", &corpus.root, &store.secret)).expect(1);
    assert_eq!(store.receiving.server.stop(), "");
}

/// A server that was killed between a pin and its root makes the roots those of the pins.
#[test]
fn roots_are_repaired_at_the_start() {
    let Some(corpus) = corpus("jq") else { return };
    let store = IntoStore::start(&[]);
    run(&mut store.push(&corpus)).expect(0);
    let receiving = &store.receiving;
    run(&mut receiving.pin("web", &corpus.root, &store.secret)).expect(0);
    run(&mut receiving.pin("lost", &corpus.root, &store.secret)).expect(0);
    let roots = receiving.directory.join("roots");
    let target = |name: &str| std::fs::read_link(roots.join(name)).ok();
    assert_eq!(target("web"), Some(corpus.root.clone().into()));
    std::fs::remove_file(roots.join("web")).unwrap();
    let other = other_path(&corpus);
    std::os::unix::fs::symlink(other, roots.join("web")).unwrap();
    std::fs::remove_file(roots.join("lost")).unwrap();
    std::os::unix::fs::symlink(other, roots.join("stale")).unwrap();
    let _server = serve_with(&receiving.scratch, "--receive-into-store", &[]);
    assert_eq!(target("web"), Some(corpus.root.clone().into()));
    assert_eq!(target("lost"), Some(corpus.root.clone().into()));
    assert_eq!(target("stale"), None);
}

#[test]
fn only_true_pins_are_written() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&[]);
    let (secret, _) = key(&receiving.scratch);
    let limited = add_token(&receiving.logins, &["web", "--scope", "read,push=web-"]);
    let reader = add_token(&receiving.logins, &["reader", "--scope", "read"]);
    receiving.server.signal(Signal::HUP);
    let mut push = receiving.push(&corpus);
    run(push.args(["--secret-key-file", &secret])).expect(0);
    run(&mut receiving.pin("web", &corpus.root, &secret)).expect(0);
    let current = receiving.get("/pins/web");
    let (text, etag) = (
        current.text().to_owned(),
        current.field("ETag").unwrap().to_owned(),
    );
    let pin = Pin::parse(text.as_bytes()).unwrap();
    let next = Pin {
        serial: pin.serial + 1,
        ..pin.clone()
    };
    let refuse = |status: u16, target: &str, pin: &str, reason: &str| {
        let response = receiving.put(target, pin.as_bytes());
        assert_eq!(
            response.status,
            status,
            "{target} {pin}: {}",
            response.text()
        );
        assert!(response.text().contains(reason), "{}", response.text());
        assert_eq!(receiving.get("/pins/web").text(), text);
    };
    refuse(400, "/pins/web", "FloePin: 2\n", "FloePin: 1");
    refuse(400, "/pins/other", &next.to_string(), "that of web");
    refuse(409, "/pins/web", &text, "newer pin");
    let unsigned = Pin {
        signatures: Default::default(),
        ..next.clone()
    };
    refuse(400, "/pins/web", &unsigned.to_string(), "no signature");
    let foreign = Pin {
        cache_id: "0".repeat(32),
        ..next.clone()
    };
    refuse(409, "/pins/web", &foreign.to_string(), "another cache");
    let ahead = Pin {
        serial: u64::MAX,
        ..next.clone()
    };
    refuse(400, "/pins/web", &ahead.to_string(), "set the clock");
    refuse(
        412,
        "/pins-info",
        &format!("CacheId: {}\n", "1".repeat(32)),
        "another version",
    );
    refuse(400, "/pins-info", "CacheId: x\n", "CacheId");
    refuse(403, "/pins/.web", &text, "no such object");
    for token in [&limited, &reader] {
        wait_until("the logins", || {
            receiving
                .server
                .get_with("/pins/web", &bearer(token))
                .status
                == 200
        });
        let response = put(
            &mut receiving.server.connect(),
            token,
            "/pins/web",
            next.to_string().as_bytes(),
        );
        assert_eq!(response.status, 403, "{}", response.text());
        assert_eq!(receiving.delete("/pins/web", token, "").status, 403);
    }
    // Conditions of writers that were too slow.
    for (fields, status) in [
        ("If-None-Match: *\r\n", 412),
        ("If-Match: \"x\"\r\n", 412),
        (&*format!("If-Match: {etag}\r\n"), 201),
    ] {
        let login = bearer(&receiving.token);
        let body = next.to_string();
        let len = body.len();
        let head = format!(
            "PUT /pins/web HTTP/1.1\r\nHost: h\r\n{login}{fields}Content-Length: {len}\r\n\r\n{body}"
        );
        let mut client = receiving.server.connect();
        client.send(head.as_bytes());
        assert_eq!(
            client.read_response(false).unwrap().status,
            status,
            "{fields}"
        );
    }
    // A damaged pin, or a cache without identifier, gives a limited login no further rights.
    let place = receiving.directory.join("pins/web");
    std::fs::write(&place, "damaged").unwrap();
    for target in ["/pins/web", "/pins-info"] {
        let body = format!("CacheId: {}\n", "1".repeat(32));
        let body = if target == "/pins/web" {
            next.to_string()
        } else {
            body
        };
        let mut client = receiving.server.connect();
        let response = put(&mut client, &limited, target, body.as_bytes());
        assert_eq!(response.status, 403, "{target}: {}", response.text());
    }
    assert_eq!(receiving.delete("/pins/web", &limited, "").status, 403);
    std::fs::write(&place, next.to_string()).unwrap();
    let delete = |target: &str, fields: &str| receiving.delete(target, &receiving.token, fields);
    assert_eq!(
        delete("/pins/web", &format!("If-Match: {etag}\r\n")).status,
        412
    );
    let narinfo = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    assert_eq!(delete(&narinfo, "").status, 403);
    assert_eq!(delete("/pins-info", "").status, 403);
    assert_eq!(receiving.get(&narinfo).status, 200);
    assert_eq!(delete("/pins/web", "").status, 200);
    assert_eq!(delete("/pins/web", "").status, 404);
    assert_eq!(delete("/pins/web", "If-Match: *\r\n").status, 404);
    assert_eq!(
        receiving.server.stop(),
        "reloaded certificates, keys and logins\n"
    );
}
