//! SIGINT ends a push or an install within two seconds, whatever request it waits for. The program
//! does not repeat this request.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{corpus, hide_nix_conf, nginx, s3_server, scratch, wait_until};
use parking_lot::Mutex;

use super::{floe_with_keys, source_root};
use crate::support::floe;
use crate::support::interrupt::assert_ends_at_sigint;

/// The requests of a push to a bucket. A request of another kind fails the test below, so that it
/// gets a row.
const BUCKET_OPERATIONS: [&str; 14] = [
    "GET nix-cache-info",
    "PUT lease",
    "GET plan",
    "HEAD nix-cache-info",
    "PUT nix-cache-info",
    "list",
    "GET narinfo",
    "PUT nar",
    "begin upload",
    "PUT part",
    "complete upload",
    "abort upload",
    "PUT ls",
    "PUT narinfo",
];

/// The requests of a push to a web server.
const HTTP_OPERATIONS: [&str; 7] = [
    "GET nix-cache-info",
    "HEAD nix-cache-info",
    "PUT nix-cache-info",
    "GET narinfo",
    "PUT nar",
    "PUT ls",
    "PUT narinfo",
];

/// The requests of an install.
const INSTALL_OPERATIONS: [&str; 3] = ["GET nix-cache-info", "GET narinfo", "GET nar"];

/// Returns the operation of a request by its first line.
fn operation(line: &str) -> String {
    let mut words = line.split(' ');
    let (method, url) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let name = match method {
        "POST" if query.contains("uploads") => "begin upload",
        "POST" if query.contains("uploadId=") => "complete upload",
        "DELETE" if query.contains("uploadId=") => "abort upload",
        "PUT" if query.contains("partNumber=") => "PUT part",
        "GET" if query.contains("list-type=2") => "list",
        _ if path.contains("/nar/") => return format!("{method} nar"),
        _ if path.contains("/leases/") => return format!("{method} lease"),
        _ if path.ends_with("/gc/plan") => return format!("{method} plan"),
        _ => match path.rsplit(['/', '.']).next().unwrap() {
            "narinfo" => return format!("{method} narinfo"),
            "nix-cache-info" => return format!("{method} nix-cache-info"),
            "ls" => return format!("{method} ls"),
            _ => return line.to_owned(),
        },
    };
    name.to_owned()
}

/// The requests that a proxy has seen: operation, URL and time.
type Seen = Arc<Mutex<Vec<(String, String, Instant)>>>;

/// Starts a proxy that is silent for one operation.
fn proxy(server: SocketAddr, silent: &'static str) -> (FaultProxy, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let proxy = FaultProxy::start(server, move |_, line| {
        let operation = operation(line);
        let request = (operation.clone(), line.to_owned(), Instant::now());
        record.lock().push(request);
        if operation == silent {
            ProxyFault::Silent
        } else if silent == "abort upload" && operation == "PUT part" {
            // Otherwise no upload is aborted.
            ProxyFault::StatusBefore(400)
        } else {
            ProxyFault::None
        }
    });
    (proxy, seen)
}

/// Interrupts a command in each of its operations. `command` gets the URL of the proxy and the
/// operation.
fn interrupt_each(
    operations: &[&'static str],
    server: SocketAddr,
    command: impl Fn(&str, &str) -> Command,
) {
    let mut kinds = BTreeSet::new();
    for &operation in operations {
        let (proxy, seen) = proxy(server, operation);
        let mut command = command(&proxy.url(), operation);
        hide_nix_conf(&mut command);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let is_silent = || seen.lock().iter().any(|(name, ..)| name == operation);
        wait_until(operation, is_silent);
        let at = Instant::now();
        assert_ends_at_sigint(child, operation);
        let seen = seen.lock();
        let (before, after): (Vec<_>, Vec<_>) = seen.iter().partition(|request| request.2 < at);
        for (name, line, _) in after.into_iter().filter(|(name, ..)| name == operation) {
            let is_new = before.iter().all(|(_, earlier, _)| earlier != line);
            assert!(is_new, "{name} was repeated after SIGINT: {line}");
        }
        kinds.extend(seen.iter().map(|(name, ..)| name.clone()));
    }
    // The end of a lease, which follows each end of a push.
    kinds.remove("DELETE lease");
    let rows: BTreeSet<String> = operations.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(kinds, rows, "a kind of request has no row");
}

#[test]
fn push_to_bucket_ends_soon_after_sigint_in_each_request() {
    let (Some(corpus), Some(server)) = (corpus("curl"), s3_server("team")) else {
        return;
    };
    // The push sends large NARs in parts, and listings.
    let options = "compression=none&write-nar-listing=true";
    let root = source_root(&corpus);
    let libc = corpus.paths.iter().find(|path| path.contains("libc6"));
    interrupt_each(&BUCKET_OPERATIONS, server.address(), |url, operation| {
        // Each push has an empty cache.
        let prefix = operation.replace(' ', "-");
        let to = format!("s3://team/{prefix}?endpoint={url}&{options}");
        let mut command = floe_with_keys(&server, &["push", "--to", &to, "--root", &root]);
        command.arg(match operation {
            // Few paths are queried one by one.
            "GET narinfo" => libc.unwrap(),
            _ => &corpus.root,
        });
        command
    });
}

#[test]
fn push_to_web_server_ends_soon_after_sigint_in_each_request() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let methods = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let Some(server) = nginx(scratch.path(), methods) else {
        return;
    };
    let root = source_root(&corpus);
    interrupt_each(&HTTP_OPERATIONS, server.address(), |url, operation| {
        let prefix = operation.replace(' ', "-");
        let to = format!("{url}/{prefix}?write-nar-listing=true");
        let mut command = floe(["push", "--to", &to, "--root", &root]);
        command.arg(&corpus.root);
        command
    });
}

#[test]
fn install_ends_soon_after_sigint_in_each_request() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = nginx(&corpus.cache("zstd"), "") else {
        return;
    };
    let scratch = scratch();
    interrupt_each(&INSTALL_OPERATIONS, server.address(), |url, operation| {
        let root = scratch.join(&operation.replace(' ', "-"));
        let mut command = floe(["install", "--no-check-sigs", "--from", url, "--root"]);
        command.arg(&root).arg(&corpus.root);
        command
    });
    let roots: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert!(!roots.is_empty());
}
