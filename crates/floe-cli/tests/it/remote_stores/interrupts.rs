//! SIGINT ends a copy within two seconds, whatever request a daemon does not reply to.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use floe_format::StoreDir;
use floe_testkit::{Corpus, corpus, nixes, scratch, wait_until};
use floe_wire::worker::{ServerEvent, ServerInfo, ServerSession, Version};
use parking_lot::Mutex;

use super::faults::socket_uri;
use crate::support::floe;
use crate::support::interrupt::assert_ends_at_sigint;

/// The requests of the commands in [`commands`]. A request of another kind fails the test below,
/// so that it gets a row.
const REQUESTS: [&str; 11] = [
    CONNECT,
    "AddIndirectRoot",
    "AddTempRoot",
    "AddToStoreNar",
    "NarFromPath",
    "QueryAllValidPaths",
    "QueryPathFromHashPart",
    "QueryPathInfo",
    "QueryValidPaths",
    "VerifyStore",
    "WaitForGc",
];

/// The first bytes of a connection.
const CONNECT: &str = "connect";

/// A relay before a daemon, which forwards nothing any more after one kind of request.
struct SilentRelay {
    directory: tempfile::TempDir,
    seen: Arc<Mutex<BTreeSet<String>>>,
    silent: &'static str,
}

impl SilentRelay {
    fn start(daemon: &Path, silent: &'static str) -> SilentRelay {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let seen = Arc::<Mutex<BTreeSet<String>>>::default();
        let (daemon, record) = (daemon.to_owned(), seen.clone());
        // The threads end with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let daemon = UnixStream::connect(&daemon).unwrap();
                let record = record.clone();
                thread::spawn(move || relay(client, daemon, silent, &record));
            }
        });
        SilentRelay {
            directory,
            seen,
            silent,
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn is_silent(&self) -> bool {
        self.seen.lock().contains(self.silent)
    }
}

fn relay(
    mut client: UnixStream,
    mut daemon: UnixStream,
    silent: &str,
    seen: &Mutex<BTreeSet<String>>,
) {
    let is_silent = Arc::new(AtomicBool::new(silent == CONNECT));
    seen.lock().insert(CONNECT.into());
    let (mut replies, mut to_client) = (daemon.try_clone().unwrap(), client.try_clone().unwrap());
    let is_quiet = is_silent.clone();
    thread::spawn(move || {
        let mut buffer = [0; 64 * 1024];
        while let Ok(len @ 1..) = replies.read(&mut buffer) {
            if is_quiet.load(Ordering::SeqCst) || to_client.write_all(&buffer[..len]).is_err() {
                return;
            }
        }
        let _: std::io::Result<()> = to_client.shutdown(Shutdown::Write);
    });
    // Only names the requests. Its replies are dropped.
    let info = ServerInfo {
        nix_version: None,
        trusts_client: None,
    };
    let mut session = ServerSession::new(StoreDir::default(), info, Version::OFFERED);
    loop {
        let space = session.space();
        let Ok(len @ 1..) = client.read(space) else {
            let _: std::io::Result<()> = daemon.shutdown(Shutdown::Write);
            return;
        };
        let bytes = space[..len].to_vec();
        session.fill(len);
        loop {
            match session.next_event(&mut Vec::new()) {
                Ok(Some(ServerEvent::Request(request))) => {
                    let name = format!("{request:?}");
                    let name = name.split(['(', ' ']).next().unwrap().to_owned();
                    if name == silent {
                        is_silent.store(true, Ordering::SeqCst);
                    }
                    seen.lock().insert(name);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => panic!("the relay cannot name a request: {error}"),
            }
        }
        if !is_silent.load(Ordering::SeqCst) && daemon.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// The commands that talk to a daemon. The first one fills its store.
fn commands(corpus: &Corpus, uri: &str, scratch: &Path) -> [Vec<String>; 5] {
    let from = corpus.file_url("zstd");
    let [link, root, other] = ["link", "root", "other"].map(|name| scratch.join(name));
    let [link, root, other] = [link, root, other].map(|place| place.display().to_string());
    let hash_part = corpus.root.split(['/', '-']).nth(3).unwrap().to_owned();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let copy = |from: &str, to: &str, more: &[&str]| {
        let copy = ["copy", "--no-check-sigs", "--from", from, "--to", to];
        words(&[&copy, more].concat())
    };
    [
        copy(&from, uri, &["--out-link", &link, &corpus.root]),
        copy(uri, &root, &[&corpus.root]),
        copy(uri, &other, &["--all"]),
        words(&["info", "--from", uri, &hash_part]),
        words(&["verify", "--store", uri]),
    ]
}

#[test]
fn command_ends_soon_after_sigint_in_each_request() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    let mut kinds = BTreeSet::new();
    for silent in REQUESTS {
        let scratch = scratch();
        let daemon = nix.daemon(&scratch.join("behind"), "");
        let relay = SilentRelay::start(&daemon.socket(), silent);
        let uri = socket_uri(&relay.socket());
        let mut is_interrupted = false;
        for words in commands(&corpus, &uri, scratch.path()) {
            let mut command: Command = floe(&words);
            let mut child = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            wait_until(silent, || {
                relay.is_silent() || child.try_wait().unwrap().is_some()
            });
            if relay.is_silent() {
                assert_ends_at_sigint(child, silent);
                is_interrupted = true;
                break;
            }
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(0), "{silent}: {words:?}");
        }
        assert!(is_interrupted, "no command sent {silent}");
        kinds.extend(relay.seen.lock().iter().cloned());
    }
    let rows: BTreeSet<String> = REQUESTS.map(str::to_owned).into();
    assert_eq!(kinds, rows, "a kind of request has no row");
}
