//! Files modified without a database change. The server must report an error and never send a
//! wrong NAR.

use std::fs;
use std::io::{Error, ErrorKind, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use floe_testkit::http_client::narinfo_of;
use floe_testkit::{corpus, nixes, skip};

use super::{NixStore, assert_all, remove, targets};
use crate::server_process::ServerProcess;

/// Returns the request target of a path's NAR.
fn nar_of(serve: &ServerProcess, path: &str) -> String {
    format!("/{}", serve.get(&narinfo_of(path)).narinfo_field("URL"))
}

/// Makes a file or directory and its parent writable.
fn unseal(path: &Path) {
    for path in [path.parent().unwrap(), path] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o200)).unwrap();
    }
}

/// Asserts that a NAR is either correct or not sent completely. Returns which.
#[track_caller]
fn assert_never_wrong(serve: &ServerProcess, what: &str, url: &str, nar: &[u8]) -> &'static str {
    let response = serve.connect().try_request("GET", url, "");
    let outcome = match response {
        Err(_) => "truncated",
        Ok(response) if response.status == 200 => {
            assert!(response.body == nar, "{what}: a wrong NAR");
            "right"
        }
        Ok(response) => {
            assert!(
                [404, 500].contains(&response.status),
                "{what}: {}",
                response.head
            );
            "refused"
        }
    };
    assert_eq!(serve.get("/nix-cache-info").status, 200, "{what}");
    outcome
}

#[test]
fn path_with_missing_files_is_404_and_server_survives() {
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        for (name, is_known) in [("a", true), ("b", false)] {
            let (file, tree) = (
                store.add(name, b"x"),
                store.add_tree(&format!("tree-{name}")),
            );
            let serve = store.serve();
            for path in [&file, &tree] {
                let targets = targets(&serve, path);
                for _ in 0..if is_known { 3 } else { 0 } {
                    assert_all(&serve, name, &targets, 200);
                }
                remove(&store.real(path));
                // nix-serve-ng aborts on this request.
                assert_all(&serve, name, &targets[1..], 404);
                assert_all(&serve, name, &targets, 404);
            }
            assert_eq!(serve.get("/nix-cache-info").status, 200);
            assert!(!serve.stop().contains("panic"));
        }
    }
}

#[test]
fn modified_files_never_produce_a_wrong_nar() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 9] = [
        ("truncated", |tree| {
            fs::write(tree.join("deep/er/large-7"), "short").unwrap()
        }),
        ("emptied", |tree| {
            fs::write(tree.join("deep/small-3"), "").unwrap()
        }),
        ("grown", |tree| {
            fs::write(tree.join("deep/er/large-0"), vec![0; 999_999]).unwrap()
        }),
        ("removed", |tree| {
            fs::remove_file(tree.join("deep/er/large-19")).unwrap()
        }),
        ("renamed", |tree| {
            fs::rename(
                tree.join("deep/er/large-1"),
                tree.join("deep/er/large-with-another-name"),
            )
            .unwrap();
        }),
        ("added", |tree| {
            fs::write(tree.join("deep/new"), "new").unwrap()
        }),
        ("linked", |tree| {
            let file = tree.join("deep/er/large-2");
            fs::rename(&file, tree.join("deep/other")).unwrap();
            symlink("../other", file).unwrap();
        }),
        ("made executable", |tree| {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(tree.join("deep/er/large-4"), mode).unwrap();
        }),
        ("made a directory", |tree| {
            fs::remove_file(tree.join("deep/er/large-5")).unwrap();
            fs::create_dir(tree.join("deep/er/large-5")).unwrap();
        }),
    ];
    let Some(nix) = &nixes().pop() else { return };
    let store = NixStore::new(nix, "");
    // Modify the files before the first request, after it, and after so many requests that the
    // server has packed them.
    for requests in [0, 1, 4] {
        for (number, (what, change)) in changes.iter().enumerate() {
            let path = store.add_tree(&format!("tree-{requests}-{number}"));
            let real = store.real(&path);
            let nar = nix
                .command("nix-store", ["--dump"])
                .arg(&real)
                .output()
                .unwrap()
                .stdout;
            let serve = store.serve();
            let url = nar_of(&serve, &path);
            for _ in 0..requests {
                assert!(serve.get(&url).body == nar);
            }
            for name in ["deep/er/x", "deep/x"] {
                unseal(real.join(name).parent().unwrap());
            }
            for number in 0..20 {
                unseal(&real.join(format!("deep/er/large-{number}")));
                unseal(&real.join(format!("deep/small-{number}")));
            }
            change(&real);
            let what = format!("{what} after {requests}");
            let first = assert_never_wrong(&serve, &what, &url, &nar);
            if requests == 0 {
                assert_eq!(
                    first, "refused",
                    "{what}: sent although modified before the first request"
                );
            }
            assert_never_wrong(&serve, &what, &url, &nar);
            assert!(!serve.stop().contains("panic"), "{what}");
        }
    }
}

#[test]
fn modified_small_path_is_500_for_any_length() {
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        for contents in ["0123456780", "x", ""] {
            let path = store.add("small", b"0123456789");
            let serve = store.serve();
            let url = nar_of(&serve, &path);
            assert_eq!(serve.get(&url).status, 200);
            unseal(&store.real(&path));
            fs::write(store.real(&path), contents).unwrap();
            assert_eq!(serve.get(&url).status, 500, "{contents:?}");
            let stderr = serve.stop();
            assert!(
                stderr.contains("differ from the registered NAR"),
                "{stderr}"
            );
            assert!(stderr.contains("small"), "{stderr}");
            remove(&store.real(&path));
            store.run(&["--delete", &path]);
        }
    }
}

#[test]
fn unreadable_file_is_500_before_the_response_begins() {
    let Some(nix) = &nixes().pop() else { return };
    if !super::unprivileged_readers::is_root() {
        skip("another user", "only root may switch to another user");
        return;
    }
    let store = NixStore::new(nix, "");
    let (small, tree) = (store.add("small", b"x"), store.add_tree("tree"));
    let serve = super::unprivileged_readers::as_nobody(&store);
    let urls = [nar_of(&serve, &small), nar_of(&serve, &tree)];
    for url in &urls {
        assert_eq!(serve.get(url).status, 200);
    }
    let closed = || fs::Permissions::from_mode(0o000);
    fs::set_permissions(store.real(&small), closed()).unwrap();
    fs::set_permissions(store.real(&tree).join("deep/er/large-0"), closed()).unwrap();
    assert_eq!(serve.get(&urls[0]).status, 500);
    drop(serve);
    let serve = super::unprivileged_readers::as_nobody(&store);
    for url in &urls {
        assert_eq!(serve.get(url).status, 500, "{url}");
    }
    // An unreadable file in the middle of the NAR is detected only when it is sent.
    let other = store.add_tree("other");
    let url = nar_of(&serve, &other);
    fs::set_permissions(store.real(&other).join("deep/er/large-9"), closed()).unwrap();
    let response = serve.connect().try_request("GET", &url, "");
    assert!(response.is_err() || response.unwrap().status == 500);
    assert_eq!(serve.get("/nix-cache-info").status, 200);
    let stderr = serve.stop();
    assert!(stderr.contains("ermission denied"), "{stderr}");
}

#[test]
fn path_deleted_during_response_is_complete_or_truncated() {
    let Some(corpus) = corpus("jq") else { return };
    let path = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        store.copy(&corpus);
        let serve = store.serve();
        let url = nar_of(&serve, path);
        let whole = serve.get(&url);
        let mut client = serve.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(client.stream.get_ref(), SMALL_WINDOW)
            .unwrap();
        client.send(format!("GET {url} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
        let head = client.read_head().unwrap();
        assert_eq!(head.status, 200);
        let mut body = vec![0; 100_000];
        client.stream.read_exact(&mut body).unwrap();
        store.run(&["--gc"]);
        assert!(!store.real(path).exists());
        assert_eq!(serve.get(&url).status, 404, "{}", nix.version);
        // Most of the NAR was not sent yet and is deleted now. The server may reset the
        // connection.
        let mut rest = Vec::new();
        let end = client.stream.read_to_end(&mut rest);
        let is_reset = |error: &Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(end.as_ref().map_or_else(is_reset, |_| true), "{end:?}");
        body.extend_from_slice(&rest);
        assert!(
            body.len() < whole.body.len() && whole.body.starts_with(&body),
            "{}: wrong bytes",
            nix.version
        );
        drop(client);
        let stderr = serve.stop();
        assert!(
            stderr.contains("aborting a response"),
            "{}: {stderr}",
            nix.version
        );
    }
}

/// A receive buffer so small that most of a large NAR is still unsent, without slowing down the
/// reader.
const SMALL_WINDOW: usize = 64 * 1024;
