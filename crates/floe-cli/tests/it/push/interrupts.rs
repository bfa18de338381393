//! SIGINT ends a push within two seconds, whatever request it waits for. The push does not repeat
//! this request.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{Corpus, S3Server, corpus, hide_nix_conf, run, s3_server, wait_until};
use parking_lot::Mutex;

use super::{floe_with_keys, source_root};

/// The requests of a push to a bucket. A request of another kind fails the test below, so that it
/// gets a row.
const OPERATIONS: [&str; 12] = [
    "GET nix-cache-info",
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
        "PUT" if path.contains("/nar/") => "PUT nar",
        "HEAD" if path.contains("/nar/") => "HEAD nar",
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
fn proxy(server: &S3Server, silent: &'static str) -> (FaultProxy, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let proxy = FaultProxy::start(server.address(), move |_, line| {
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

/// A push that sends large NARs in parts, and listings.
fn push(server: &S3Server, proxy: &FaultProxy, corpus: &Corpus, operation: &str) -> Command {
    let options = "compression=none&write-nar-listing=true";
    // Each push has an empty cache.
    let prefix = operation.replace(' ', "-");
    let to = format!("s3://team/{prefix}?endpoint={}&{options}", proxy.url());
    let root = source_root(corpus);
    let mut command = floe_with_keys(server, &["push", "--to", &to, "--root", &root]);
    match operation {
        // Few paths are queried one by one.
        "GET narinfo" => command.arg(
            corpus
                .paths
                .iter()
                .find(|path| path.contains("libc6"))
                .unwrap(),
        ),
        _ => command.arg(&corpus.root),
    };
    hide_nix_conf(&mut command);
    command.stderr(Stdio::null());
    command
}

/// Sends SIGINT, and returns how long the process lives after that, with its exit code.
fn interrupt(mut child: Child) -> (Duration, Option<i32>) {
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let since = Instant::now();
    let code = child.wait().unwrap().code();
    (since.elapsed(), code)
}

#[test]
fn push_ends_soon_after_sigint_in_each_request() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let mut kinds = BTreeSet::new();
    for operation in OPERATIONS {
        let (proxy, seen) = proxy(&server, operation);
        let child = push(&server, &proxy, &corpus, operation).spawn().unwrap();
        let is_silent = || seen.lock().iter().any(|(name, ..)| name == operation);
        wait_until(operation, is_silent);
        let at = Instant::now();
        let (time, code) = interrupt(child);
        assert_eq!(code, Some(130), "{operation}");
        assert!(time < LIMIT, "{operation}: {time:?}");
        let seen = seen.lock();
        let (before, after): (Vec<_>, Vec<_>) = seen.iter().partition(|request| request.2 < at);
        for (name, line, _) in after.into_iter().filter(|(name, ..)| name == operation) {
            let is_new = before.iter().all(|(_, earlier, _)| earlier != line);
            assert!(is_new, "{name} was repeated after SIGINT: {line}");
        }
        kinds.extend(seen.iter().map(|(name, ..)| name.clone()));
    }
    let rows: BTreeSet<String> = OPERATIONS.map(str::to_owned).into();
    assert_eq!(kinds, rows, "a kind of request has no row");
}

/// Two seconds, and what a loaded machine adds.
const LIMIT: Duration = Duration::from_secs(4);
