//! Clients that a host must survive: they send without reading, add while a collection runs, and
//! query files that are not theirs.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use floe_format::{StoreDir, StorePath, nar::write as nar};
use floe_testkit::{setpriv_to_nobody, wait_until};
use floe_wire::worker::{BuildMode, PathQuery, Reply, Request};
use floe_wire::{ClientEvent, ClientSession, Protocol, frames, serve};

use super::worker_protocol::{chmod_all, wrapper};
use super::*;

/// A client of `nix-daemon --stdio`, or of `nix-store --serve`.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    protocol: Protocol,
    session: ClientSession,
}

impl Client {
    fn start(host: &Host<'_>) -> Client {
        Client::start_with(host, Protocol::Worker)
    }

    fn start_with(host: &Host<'_>, protocol: Protocol) -> Client {
        let (program, words): (_, &[_]) = match protocol {
            Protocol::Worker => ("nix-daemon", &["--stdio"]),
            Protocol::Serve => ("nix-store", &["--serve", "--write"]),
        };
        let mut command = Command::new(host.program(program));
        hide_nix_conf(&mut command);
        command.args(words);
        Client::of(command, &host.root(), protocol)
    }

    /// Starts a client of a user who does not own the store.
    fn start_untrusted(host: &Host<'_>) -> Client {
        chmod_all(&host.root());
        let conf = host.scratch.join("conf");
        std::fs::create_dir_all(&conf).unwrap();
        std::fs::write(conf.join("nix.conf"), "substituters =\n").unwrap();
        let wrapper = wrapper(host, "nix-daemon", &conf, false);
        let scratch = host.scratch.path();
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(scratch)).expect(0);
        let mut command = Command::new(wrapper);
        command.arg("--stdio");
        Client::of(command, &host.root(), Protocol::Worker)
    }

    fn of(mut command: Command, root: &Path, protocol: Protocol) -> Client {
        command.arg("--store").arg(root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut greeting = Vec::new();
        let session = ClientSession::new(protocol, StoreDir::default(), &mut greeting);
        let mut input = child.stdin.take().unwrap();
        input.write_all(&greeting).unwrap();
        Client {
            child,
            input: Some(input),
            protocol,
            session,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn send_request(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        let dir = StoreDir::default();
        assert!(match self.protocol {
            Protocol::Worker => request.write(&mut bytes, &dir),
            Protocol::Serve => serve::write_request(request, &mut bytes, &dir),
        });
        self.session.expect(request.reply_kind());
        self.send(&bytes);
    }

    fn send_frame(&mut self, bytes: &[u8]) {
        self.send(&frames::header(bytes.len()));
        self.send(bytes);
    }

    /// Waits for a reply, or for the message of a failure.
    fn reply(&mut self) -> Result<Reply, String> {
        loop {
            match self.session.next_event().unwrap() {
                Some(ClientEvent::Replied(reply)) => return Ok(reply),
                Some(ClientEvent::Failed(error)) => return Err(error.message),
                Some(_) => {}
                None => {
                    let output = self.child.stdout.as_mut().unwrap();
                    let len = output.read(self.session.space()).unwrap();
                    assert!(len > 0, "the host has ended the connection");
                    self.session.fill(len);
                }
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn add_tree(name: &str) -> Request {
    Request::AddToStore {
        name: name.into(),
        method: "fixed:r:sha256".into(),
        references: [].into(),
        repair: false,
    }
}

/// Nix's `copy` asks which paths are valid, and later sends the others. It protects none of them.
#[test]
fn collection_spares_paths_whose_validity_was_queried() {
    with_hosts(|host| {
        for protocol in [Protocol::Worker, Protocol::Serve] {
            let original = host.corpus.store().display().to_string();
            let uri = host.uri("ssh-ng", "nix-daemon");
            run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
            let mut client = Client::start_with(host, protocol);
            let paths = host.corpus.paths.iter();
            let paths: BTreeSet<_> = paths
                .map(|it| StoreDir::default().parse(it).unwrap())
                .collect();
            client.send_request(&Request::QueryValidPaths {
                paths: paths.clone(),
                substitute: false,
                lock: false,
            });
            assert_eq!(client.reply(), Ok(Reply::Paths(paths.clone())));
            host.nix.store(&host.root(), ["--gc"]);
            host.nix.verify(&host.root(), paths.len());
            drop(client);
            let freed = host.nix.store(&host.root(), ["--gc"]);
            assert!(
                freed.contains(&format!("{} store paths deleted", paths.len())),
                "{freed}"
            );
        }
    });
}

#[test]
fn collection_spares_a_tree_whose_contents_still_arrive() {
    with_hosts(|host| {
        let mut client = Client::start(host);
        client.send_request(&add_tree("tree"));
        let mut contents = Vec::new();
        nar::begin(&mut contents);
        nar::begin_directory(&mut contents);
        for name in [&b"a"[..], b"b"] {
            nar::begin_entry(&mut contents, name);
            nar::begin_file(&mut contents, false, 8);
            contents.extend_from_slice(b"contents");
            nar::end_file(&mut contents, 8);
            nar::end_entry(&mut contents);
        }
        let half = contents.len();
        for name in [&b"c"[..], b"d"] {
            nar::begin_entry(&mut contents, name);
            nar::symlink(&mut contents, b"target");
            nar::end_entry(&mut contents);
        }
        nar::end_directory(&mut contents);
        client.send_frame(&contents[..half]);
        let store = host.root().join("nix/store");
        let arrived = || {
            let mut entries = std::fs::read_dir(&store).into_iter().flatten().flatten();
            entries.any(|entry| entry.path().join("b").exists())
        };
        wait_until("the first files", arrived);
        host.nix.store(&host.root(), ["--gc"]);
        assert!(arrived(), "the collection has deleted the files");
        client.send_frame(&contents[half..]);
        client.send(&frames::END);
        let added = client.reply();
        let Ok(Reply::AddedInfo(info)) = added else {
            panic!("{added:?}")
        };
        let place = store.join(info.path.as_str());
        for name in ["a", "b", "c", "d"] {
            assert!(place.join(name).symlink_metadata().is_ok(), "{name}");
        }
        drop(client);
        host.nix.verify(&host.root(), 1);
    });
}

#[test]
fn client_that_does_not_read_does_not_fill_the_memory() {
    with_hosts(|host| {
        let original = host.corpus.store().display().to_string();
        let uri = host.uri("ssh-ng", "nix-daemon");
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let mut client = Client::start(host);
        let mut request = Vec::new();
        assert!(Request::QueryAllValidPaths.write(&mut request, &StoreDir::default()));
        // Their replies have 200 MiB.
        let requests = request.repeat(400_000);
        let mut input = client.input.take().unwrap();
        let writer = std::thread::spawn(move || drop(input.write_all(&requests)));
        let memory = |id: u32| {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmHWM"));
            let kib = line.and_then(|line| line.split_whitespace().nth(1));
            kib.unwrap().parse::<u64>().unwrap()
        };
        // The host has stopped to read once it uses no CPU any more.
        let used = |id: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
            let fields: Vec<&str> = stat.split(' ').collect();
            (fields[13].to_owned(), fields[14].to_owned())
        };
        let id = client.child.id();
        let mut last = (String::new(), String::new());
        let mut next_look = std::time::Instant::now();
        wait_until("the host to wait", || {
            if next_look.elapsed() < Duration::from_millis(500) {
                return false;
            }
            next_look = std::time::Instant::now();
            let now = used(id);
            std::mem::replace(&mut last, now.clone()) == now
        });
        assert!(memory(id) < 64 * 1024, "{} KiB", memory(id));
        drop(client);
        writer.join().unwrap();
    });
}

#[test]
fn queries_of_derivations_follow_no_link() {
    with_hosts(|host| {
        let secret = host.scratch.join("secret");
        std::fs::write(&secret, "Derive([],[],[],\"\",\"\",[],[])").unwrap();
        for (name, target) in [
            ("x", &*secret),
            ("x.drv", &*secret),
            ("y", Path::new("/absent")),
        ] {
            let mut client = Client::start(host);
            client.send_request(&add_tree(name));
            let mut contents = Vec::new();
            nar::begin(&mut contents);
            nar::symlink(&mut contents, target.to_str().unwrap().as_bytes());
            client.send_frame(&contents);
            client.send(&frames::END);
            let added = client.reply();
            // Nix adds no derivation that is not one, and neither does floe.
            let Ok(Reply::AddedInfo(info)) = added else {
                assert_eq!(name, "x.drv", "{added:?}");
                continue;
            };
            let path: StorePath = info.path.clone();
            client.send_request(&Request::QueryPath(PathQuery::DerivationOutputNames, path));
            let message = client.reply().unwrap_err();
            assert!(!message.contains("No such file"), "{name}: {message}");
            assert!(message.contains("cannot read"), "{name}: {message}");
        }
    });
}

/// The message reaches the client, and the paths that it has sent before are registered.
#[test]
fn requests_that_make_no_sense_are_answered() {
    with_hosts(|host| {
        let mut requests: Vec<(Vec<u8>, &str)> = Vec::new();
        let mut unknown = Vec::new();
        floe_wire::output::number(&mut unknown, 999);
        requests.push((unknown, "floe does not know it"));
        let mut elsewhere = Vec::new();
        floe_wire::output::number(&mut elsewhere, 1);
        floe_wire::output::text(&mut elsewhere, "/elsewhere/store/x");
        requests.push((elsewhere, "/elsewhere/store/x"));
        for (bytes, expected) in requests {
            let mut client = Client::start(host);
            client.session.expect(Request::FindRoots.reply_kind());
            client.send(&bytes);
            let message = client.reply().unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    });
}

/// Frames with contents in a wrong format end no connection.
#[test]
fn wrong_paths_of_a_client_end_no_connection() {
    with_hosts(|host| {
        let mut client = Client::start(host);
        client.send_request(&Request::AddMultipleToStore {
            repair: false,
            dont_check_sigs: true,
        });
        let mut contents = Vec::new();
        floe_wire::output::number(&mut contents, 1);
        floe_wire::output::text(&mut contents, "/elsewhere/x");
        client.send_frame(&contents);
        client.send_frame(&contents);
        client.send(&frames::END);
        let message = client.reply().unwrap_err();
        assert!(message.contains("cannot understand the paths"), "{message}");
        client.send_request(&Request::QueryAllValidPaths);
        assert!(client.reply().is_ok());
    });
}

#[test]
fn untrusted_users_leave_no_junk() {
    if setpriv_to_nobody().is_none() {
        return;
    }
    with_hosts(|host| {
        let original = host.corpus.store().display().to_string();
        let uri = host.uri("ssh-ng", "nix-daemon");
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let before = host.rows(&host.root());
        let path = StoreDir::default().parse(&host.corpus.root).unwrap();
        let mut client = Client::start_untrusted(host);
        let signatures = (0..2000).map(|number| {
            let junk = format!("junk-{number}:{}", "A".repeat(88));
            floe_format::Signature::parse(&junk).unwrap()
        });
        client.send_request(&Request::AddSignatures {
            path: path.clone(),
            signatures: signatures.collect(),
        });
        let message = client.reply().unwrap_err();
        assert!(message.contains("not a trusted user"), "{message}");
        assert_eq!(host.rows(&host.root()), before);

        // A collection would stop at a root that it cannot read, or whose path has no row.
        let closed = host.scratch.join("closed");
        std::fs::create_dir(&closed).unwrap();
        symlink(&host.corpus.root, closed.join("link")).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
        let unregistered = host.scratch.join("unregistered");
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        symlink(absent, &unregistered).unwrap();
        for (link, expected) in [
            (closed.join("link"), "may not read it"),
            (unregistered, "is not valid"),
        ] {
            let link = link.display().to_string();
            client.send_request(&Request::AddIndirectRoot(link));
            let message = client.reply().unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        // The link of a client in a container is not there for the host.
        let elsewhere = host.scratch.join("elsewhere/link").display().to_string();
        client.send_request(&Request::AddIndirectRoot(elsewhere));
        assert_eq!(client.reply(), Ok(Reply::Done));
        // Results of texts that are no paths would fill the memory.
        client.send_request(&Request::BuildPathsWithResults(
            vec![String::new(); 1000],
            BuildMode::Normal,
        ));
        assert!(client.reply().is_err());
        let link = host.scratch.join("a-root");
        symlink(&host.corpus.root, &link).unwrap();
        let link = link.display().to_string();
        client.send_request(&Request::AddIndirectRoot(link.clone()));
        assert_eq!(client.reply(), Ok(Reply::Done));
        client.send_request(&Request::FindRoots);
        let Ok(Reply::Roots(roots)) = client.reply() else {
            panic!("no roots")
        };
        assert!(roots.contains(&(link, path)), "{roots:?}");

        // A long list is refused before its end.
        let mut request = Vec::new();
        floe_wire::output::number(&mut request, 31);
        floe_wire::output::number(&mut request, 500_000);
        for _ in 0..500_000 {
            floe_wire::output::text(&mut request, &host.corpus.root);
        }
        client.session.expect(Request::FindRoots.reply_kind());
        let mut input = client.input.take().unwrap();
        let writer = std::thread::spawn(move || drop(input.write_all(&request)));
        let message = client.reply().unwrap_err();
        assert!(message.contains("a message has the length"), "{message}");
        drop(client);
        writer.join().unwrap();
    });
}
