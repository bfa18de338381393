//! Daemons that break the rules of the protocol.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use floe_format::{StoreDir, StorePath};
use floe_testkit::{corpus, run, scratch};
use floe_wire::worker::{
    DaemonError, LogMessage, Reply, Request, ServerEvent, ServerInfo, ServerSession, Version,
};

use super::faults::{copy, socket_uri};
use crate::support::floe_with_time_limit;

/// A daemon that breaks the rules.
struct HostileDaemon {
    uri: String,
    _directory: tempfile::TempDir,
}

impl HostileDaemon {
    /// Starts a daemon that passes each request to a function. The function appends its reply.
    fn start(
        reply: impl Fn(&ServerSession, Request, &mut Vec<u8>) + Clone + Send + 'static,
    ) -> HostileDaemon {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let reply = reply.clone();
                thread::spawn(move || serve(client, &reply));
            }
        });
        HostileDaemon {
            uri: socket_uri(&socket),
            _directory: directory,
        }
    }
}

fn serve(
    mut client: std::os::unix::net::UnixStream,
    reply: &impl Fn(&ServerSession, Request, &mut Vec<u8>),
) {
    let info = ServerInfo {
        nix_version: Some("2.34.8".into()),
        trusts_client: Some(true),
    };
    let mut session = ServerSession::new(StoreDir::default(), info, Version::OFFERED);
    loop {
        let Ok(len @ 1..) = client.read(session.space()) else {
            return;
        };
        session.fill(len);
        let mut output = Vec::new();
        loop {
            let request = match session.next_event(&mut output) {
                Ok(Some(ServerEvent::Request(request))) => request,
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(_) => return,
            };
            reply(&session, request, &mut output);
        }
        if client.write_all(&output).is_err() {
            return;
        }
    }
}

#[test]
fn hostile_replies_are_errors_that_name_the_store() {
    let Some(corpus) = corpus("jq") else { return };
    type Fault = (&'static str, fn(&mut Vec<u8>));
    let faults: [Fault; 7] = [
        ("floe does not know it", |output| {
            output.extend_from_slice(&[7; 64])
        }),
        ("has the length", |output| {
            // A line of the log that claims to have an exabyte.
            output.extend_from_slice(&0x6f6c_6d67_u64.to_le_bytes());
            output.extend_from_slice(&(1_u64 << 60).to_le_bytes());
        }),
        ("has the length", |output| {
            LogMessage::Last.write(output);
            output.extend_from_slice(&u64::MAX.to_le_bytes());
        }),
        ("a store path is", |output| {
            LogMessage::Last.write(output);
            output.extend_from_slice(&1_u64.to_le_bytes());
            floe_wire::output::text(output, "/nix/store/../../../../../../../../../etc/passwd");
        }),
        ("without a request", |output| {
            for _ in 0..1000 {
                LogMessage::Last.write(output);
                output.extend_from_slice(&0_u64.to_le_bytes());
            }
        }),
        ("message with colour", |output| {
            let message = "\u{1b}[31mmessage\u{1b}[0m with colour".to_owned();
            let error = DaemonError {
                message,
                ..DaemonError::default()
            };
            LogMessage::Error(error).write(output);
        }),
        ("closed the connection", |_| panic!("the daemon ends")),
    ];
    for (expected, fault) in faults {
        let daemon = HostileDaemon::start(move |session, request, output| match request {
            Request::QueryValidPaths { .. } => fault(output),
            request => {
                let reply = match request {
                    Request::AddTempRoot(_) => Reply::Done,
                    _ => Reply::PathInfo(None),
                };
                session.reply(&reply, output);
            }
        });
        let ran = run(&mut copy(&corpus, &corpus.file_url("zstd"), &daemon.uri));
        assert!(
            matches!(ran.code, Some(1 | 4)),
            "{expected}: {:?} {}",
            ran.code,
            ran.stderr
        );
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        assert!(ran.stderr.contains(&daemon.uri), "{}", ran.stderr);
        assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    }
}

/// Returns a path with the NAR of a symlink.
fn symlink_path(name: &str) -> (floe_format::PathInfo, Vec<u8>) {
    let mut nar = Vec::new();
    floe_format::nar::write::begin(&mut nar);
    floe_format::nar::write::symlink(&mut nar, b"target");
    let mut hasher = floe_hash::Hasher::new(floe_format::HashAlgorithm::Sha256);
    hasher.update(&nar);
    let digest = hasher.finish().try_into().unwrap();
    let info = floe_format::PathInfo {
        path: StorePath::parse(&format!("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2{name}")).unwrap(),
        nar_hash: floe_format::Hash::sha256(digest),
        nar_size: nar.len() as u64,
        references: [].into(),
        deriver: None,
        signatures: [].into(),
        ca: None,
        registration_time: None,
        ultimate: false,
    };
    (info, nar)
}

#[test]
fn path_that_cannot_be_read_does_not_affect_the_others() {
    let paths = ["c-a", "d-b", "f-c"].map(symlink_path);
    let names = paths.each_ref().map(|(info, _)| info.path.to_string());
    let daemon = HostileDaemon::start(move |session, request, output| {
        let find = |wanted: &StorePath| paths.iter().find(|(info, _)| info.path == *wanted);
        let reply = match &request {
            Request::AddTempRoot(_) => Reply::Done,
            Request::QueryPathInfo(path) => {
                Reply::PathInfo(find(path).map(|(info, _)| Box::new(info.clone())))
            }
            _ => Reply::Nar,
        };
        session.reply(&reply, output);
        if let Request::NarFromPath(path) = &request {
            match path.name() {
                // As a daemon does for a path that was deleted meanwhile.
                "b" => {
                    let message = "path is not valid".to_owned();
                    let error = DaemonError {
                        message,
                        ..DaemonError::default()
                    };
                    LogMessage::Error(error).write(output);
                }
                _ => output.extend_from_slice(&find(path).unwrap().1),
            }
        }
    });
    let scratch = scratch();
    let root = scratch.join("root");
    let mut command = floe_with_time_limit(["copy", "--no-check-sigs", "--from", &daemon.uri]);
    let ran = run(command.arg("--to").arg(&root).args(&names));
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    assert!(ran.stderr.contains("path is not valid"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("failed to copy 1 path"),
        "{}",
        ran.stderr
    );
    let store = root.join("nix/store");
    let found = names.map(|name| store.join(name).is_symlink());
    assert_eq!(found, [true, false, true]);
}

#[test]
fn nar_that_differs_from_its_metadata_is_never_valid() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let wrong = |output: &mut Vec<u8>| {
        floe_format::nar::write::begin(output);
        floe_format::nar::write::symlink(output, b"elsewhere");
    };
    let announced = StorePath::parse("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello").unwrap();
    let info = floe_format::PathInfo {
        path: announced.clone(),
        nar_hash: floe_format::Hash::sha256([7; 32]),
        nar_size: 1000,
        references: [].into(),
        deriver: None,
        signatures: [].into(),
        ca: None,
        registration_time: None,
        ultimate: false,
    };
    for size in [10, 120, 1000, 10_000_000] {
        let info = floe_format::PathInfo {
            nar_size: size,
            ..info.clone()
        };
        let daemon = HostileDaemon::start(move |session, request, output| match request {
            Request::NarFromPath(_) => {
                session.reply(&Reply::Nar, output);
                wrong(output);
            }
            Request::AddTempRoot(_) => session.reply(&Reply::Done, output),
            _ => session.reply(&Reply::PathInfo(Some(Box::new(info.clone()))), output),
        });
        let root = scratch.join("root");
        let mut command = floe_with_time_limit(["copy", "--no-check-sigs", "--from", &daemon.uri]);
        command.arg("--to").arg(&root).arg(announced.to_string());
        let ran = run(&mut command);
        // A NAR that is longer than announced is a fault of the connection.
        let code = if size < 200 { 4 } else { 3 };
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        assert!(!root.join("nix/store").join(announced.as_str()).exists());
    }
    drop(corpus);
}

#[test]
fn interrupted_copy_over_a_silent_connection_ends_at_once() {
    let Some(corpus) = corpus("jq") else { return };
    // The daemon never replies.
    let daemon = HostileDaemon::start(|_, _, _| {});
    let mut child = copy(&corpus, &corpus.file_url("zstd"), &daemon.uri)
        .spawn()
        .unwrap();
    // Time for the copy to wait for its reply, which it cannot show.
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    // The process is `timeout`, which passes the signal on.
    let pid = child.id().to_string();
    run(std::process::Command::new("kill").args(["-INT", &pid])).expect(0);
    let began = std::time::Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(5));
}
