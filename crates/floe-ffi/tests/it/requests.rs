//! Requests on real closures, compared with real Nix.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use floe_messages::{
    ClosureReply, ClosureRequest, CopyReply, CopyRequest, Error, ErrorKind, Method, NarReply,
    NarRequest, PathInfo, PathInfoRequest, ProblemKind, ResolveReply, ServeReply, ServeRequest,
    StopRequest, VerifyReply, VerifyRequest,
};
use floe_testkit::{Corpus, corpora, corpus, nginx, nixes, run, wait_until};

use crate::host::*;

fn copy_request<'a>(
    corpus: &'a Corpus,
    from: &'a [&'a str],
    to: &'a str,
    paths: &'a [&'a str],
    keys: &'a [&'a str],
) -> CopyRequest<'a> {
    assert!(!corpus.paths.is_empty());
    CopyRequest {
        from: from.into(),
        to,
        paths: paths.into(),
        trusted_public_keys: keys.into(),
        ..Default::default()
    }
}

/// Returns the number of temp root files of a store.
fn temp_roots(root: &std::path::Path) -> usize {
    let files = fs::read_dir(root.join("nix/var/nix/temproots"));
    files.map_or(0, Iterator::count)
}

#[test]
fn copies_of_one_engine_share_temp_roots() {
    let Some(corpus) = corpus("jq") else { return };
    // So slow that all copies run at the same time, and that no path is complete.
    let Some(server) = nginx(&corpus.dir, "limit_rate 4k;") else {
        return;
    };
    let scratch = floe_testkit::scratch();
    let root = scratch.join("root");
    let (url, to) = (
        format!("{}/cache-none", server.url()),
        root.display().to_string(),
    );
    let (from, paths, keys) = (
        [url.as_str()],
        [corpus.root.as_str()],
        [corpus.key.as_str()],
    );
    let request = copy_request(&corpus, &from, &to, &paths, &keys);
    let hosts = [Host::new(), Host::new()];
    let mut copies: Vec<(&Host, u64)> = Vec::new();
    for (host, count) in [(&hosts[0], 2), (&hosts[1], 1)] {
        for _ in 0..count {
            copies.push((host, host.submit(Method::Install, &request)));
        }
    }
    let begun = std::time::Instant::now();
    let mut most = 0;
    while most < 2 {
        most = most.max(temp_roots(&root));
        assert!(begun.elapsed() < DEADLINE, "{most} engines have started");
    }
    // Time for a third file, which must not appear.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(temp_roots(&root), 2, "temp root files of two engines");
    for (host, id) in copies {
        assert_eq!(floe::floe_cancel(host.engine, id), OK);
    }
    for (host, count) in [(&hosts[0], 2), (&hosts[1], 1)] {
        (0..count).for_each(|_| assert_eq!(host.end().kind, CANCELLED));
    }
    assert_eq!(temp_roots(&root), 0);
}

#[test]
fn http_install_is_valid_for_nix_and_idempotent() {
    let nixes = nixes();
    let mut compared = 0;
    for corpus in corpora() {
        let Some(server) = nginx(&corpus.dir, "") else {
            return;
        };
        let scratch = floe_testkit::scratch();
        let root = scratch.join("root");
        let (url, to) = (
            format!("{}/cache-zstd", server.url()),
            root.display().to_string(),
        );
        let (from, paths, keys) = (
            [url.as_str()],
            [corpus.root.as_str()],
            [corpus.key.as_str()],
        );
        let request = copy_request(&corpus, &from, &to, &paths, &keys);
        let host = Host::new();
        let got = host.ask(Method::Resolve, &request);
        assert_eq!(
            got.reply::<ResolveReply<'_>>().planned.len(),
            corpus.paths.len()
        );
        assert!(!root.exists(), "resolve created the target");
        for expected in [corpus.paths.len() as u64, 0] {
            let got = host.ask(Method::Install, &request);
            let reply: CopyReply<'_> = got.reply();
            assert_eq!(reply.copied, expected);
            assert_eq!(reply.paths.iter().collect::<Vec<_>>(), paths);
        }
        for nix in &nixes {
            nix.verify(&root, corpus.paths.len());
            compared += 1;
        }
    }
    assert!(compared > 0 || nixes.is_empty());
}

#[test]
fn untrusted_closure_fails_and_installs_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = floe_testkit::scratch();
    let to = scratch.join("root").display().to_string();
    let url = corpus.file_url("xz");
    let (from, paths) = ([url.as_str()], [corpus.root.as_str()]);
    let host = Host::new();
    let got = host.ask(
        Method::Install,
        &copy_request(&corpus, &from, &to, &paths, &[]),
    );
    assert_eq!(got.kind, FAILED);
    let error: Error<'_> = got.message();
    assert_eq!(error.kind, ErrorKind::Untrusted);
    assert_eq!(error.causes.len(), 1, "only the root is checked");
    assert!(error.message.contains("signed by"), "{}", error.message);
    assert!(!scratch.join("root").exists(), "an empty store is left");
}

#[test]
fn cancelled_copy_into_cache_can_be_repeated() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = floe_testkit::scratch();
    let store = corpus.store().display().to_string();
    let to = format!("file://{}", scratch.join("cache").display());
    let (from, paths) = ([store.as_str()], [corpus.root.as_str()]);
    let request = copy_request(&corpus, &from, &to, &paths, &[]);
    let host = Host::new();
    let ask = TestRequest::new(Method::Copy, &request).watched();
    let id = ask.submit(host.engine).unwrap();
    // A progress report shows that the copy has started; xz takes seconds.
    assert_eq!(host.next().kind, PROGRESS);
    assert_eq!(floe::floe_cancel(host.engine, id), OK);
    assert_eq!(host.end().kind, CANCELLED);
    let got = host.ask(Method::Copy, &request);
    assert_eq!(got.reply::<CopyReply<'_>>().paths.len(), 1);
    let cache = fs::read_dir(scratch.join("cache")).unwrap();
    let is_narinfo =
        |entry: &fs::DirEntry| entry.path().extension().is_some_and(|it| it == "narinfo");
    let narinfos = cache.map(Result::unwrap).filter(is_narinfo).count();
    assert_eq!(narinfos, corpus.paths.len());
}

#[test]
fn path_infos_and_closures_match_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let host = Host::new();
    let store = corpus.store().display().to_string();
    let cache = corpus.file_url("zstd");
    for nix in nixes() {
        let expected = nix.path_infos(&store, &corpus.root);
        for source in [&store, &cache] {
            let paths = [corpus.root.as_str()];
            let request = ClosureRequest {
                store: source,
                paths: (&paths[..]).into(),
                ..Default::default()
            };
            let got = host.ask(Method::Closure, &request);
            let closure: ClosureReply<'_> = got.reply();
            assert_eq!(closure.infos.len(), expected.len());
            for (info, expected) in closure.infos.iter().zip(&expected) {
                assert_eq!(info.path, expected["path"]);
                assert_eq!(info.nar_size, expected["narSize"]);
                let references: BTreeSet<&str> = info.references.iter().collect();
                let of_nix = expected["references"].as_array().unwrap();
                assert_eq!(
                    references,
                    of_nix.iter().map(|it| it.as_str().unwrap()).collect()
                );
                assert_eq!(info.url.is_some(), source == &cache);
            }
        }
    }
    let absent = "00000000000000000000000000000000-absent";
    for source in [&store, &cache] {
        let request = PathInfoRequest {
            store: source,
            path: absent,
            ..Default::default()
        };
        let got = host.ask(Method::PathInfo, &request);
        assert!(got.message::<Error<'_>>().message.contains(absent));
        let request = PathInfoRequest {
            store: source,
            path: corpus.root.rsplit('/').next().unwrap(),
            ..Default::default()
        };
        let got = host.ask(Method::PathInfo, &request);
        assert_eq!(got.reply::<PathInfo<'_>>().path, corpus.root);
    }
}

#[test]
fn verify_finds_modified_path() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = floe_testkit::scratch();
    let root = scratch.join("root");
    let to = root.display().to_string();
    let url = corpus.file_url("zstd");
    let (from, paths, keys) = (
        [url.as_str()],
        [corpus.root.as_str()],
        [corpus.key.as_str()],
    );
    let host = Host::new();
    let got = host.ask(
        Method::Install,
        &copy_request(&corpus, &from, &to, &paths, &keys),
    );
    assert_eq!(got.kind, DONE);
    fs::write(root.join(&corpus.root[1..]).join("extra"), "x").unwrap();
    let got = host.ask(
        Method::Verify,
        &VerifyRequest {
            store: &to,
            ..Default::default()
        },
    );
    let reply: VerifyReply<'_> = got.reply();
    let faults: Vec<_> = reply.problems.iter().collect();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        (faults[0].kind, faults[0].subject),
        (ProblemKind::Modified, corpus.root.as_str())
    );
}

unsafe extern "C" fn gather(context: *mut c_void, data: *const c_void, len: usize) -> i32 {
    // SAFETY: the test keeps the vector until the request has ended. The library passes `len`
    // bytes.
    unsafe {
        let nar = &mut *context.cast::<Vec<u8>>();
        nar.extend_from_slice(std::slice::from_raw_parts(data.cast(), len));
    }
    0
}

unsafe extern "C" fn refuse(_: *mut c_void, _: *const c_void, _: usize) -> i32 {
    7
}

#[test]
fn nar_through_sink_and_descriptor_matches_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let host = Host::new();
    let store = corpus.store().display().to_string();
    let request = NarRequest {
        store: &store,
        path: &corpus.root,
        ..Default::default()
    };
    let mut nar: Vec<u8> = Vec::new();
    let ask = TestRequest::new(Method::Nar, &request).into_sink(gather, (&raw mut nar).cast());
    let got = ask.call(host.engine).unwrap();
    assert_eq!(got.reply::<NarReply>().nar_size, nar.len() as u64);
    let scratch = floe_testkit::scratch();
    let file = fs::File::create(scratch.join("nar")).unwrap();
    let mut ask = TestRequest::new(Method::Nar, &request);
    ask.request.flags = floe::HAS_DESCRIPTOR;
    ask.request.descriptor = file.as_raw_fd();
    ask.submit(host.engine).unwrap();
    // The library has duplicated the descriptor.
    drop(file);
    assert_eq!(host.end().kind, DONE);
    assert!(fs::read(scratch.join("nar")).unwrap() == nar);
    for nix in nixes() {
        let path = corpus.store().join(&corpus.root[1..]);
        let mut command = nix.command("nix-store", ["--dump"]);
        let output = command.arg(path).output().unwrap();
        assert!(output.stdout == nar, "{}", nix.version);
    }
    let ask = TestRequest::new(Method::Nar, &request).into_sink(refuse, std::ptr::null_mut());
    let got = ask.call(host.engine).unwrap();
    assert!(got.message::<Error<'_>>().message.contains("returned 7"));
    let got = TestRequest::new(Method::Nar, &request)
        .call(host.engine)
        .unwrap();
    assert_eq!(got.message::<Error<'_>>().kind, ErrorKind::Usage);
    let mut ask = TestRequest::new(Method::Nar, &request);
    ask.request.flags = floe::HAS_DESCRIPTOR;
    ask.request.descriptor = 1_000_000;
    assert_eq!(ask.submit(host.engine), Err(INVALID));
}

#[test]
fn server_serves_nix_until_stopped() {
    let Some(corpus) = corpus("jq") else { return };
    let host = Host::new();
    let store = corpus.store().display().to_string();
    let listen = ["127.0.0.1:0"];
    let request = ServeRequest {
        store: &store,
        listen: (&listen[..]).into(),
        ..Default::default()
    };
    let got = host.ask(Method::Serve, &request);
    let reply: ServeReply<'_> = got.reply();
    let address = reply.addresses.iter().next().unwrap();
    let url = format!("http://{address}");
    for nix in nixes() {
        let scratch = floe_testkit::scratch();
        let root = scratch.join("root");
        let args = ["copy", "--no-check-sigs", "--from", &url, "--to"];
        run(nix.command("nix", args).arg(&root).arg(&corpus.root)).expect(0);
        nix.verify(&root, corpus.paths.len());
    }
    let stop = StopRequest {
        server: reply.server,
    };
    assert_eq!(host.ask(Method::Stop, &stop).kind, DONE);
    until_refused(address);
    let got = host.ask(Method::Stop, &stop);
    assert_eq!(got.message::<Error<'_>>().kind, ErrorKind::BadHandle);
    // A running server ends with its engine.
    let got = host.ask(Method::Serve, &request);
    let address = got
        .reply::<ServeReply<'_>>()
        .addresses
        .iter()
        .next()
        .unwrap()
        .to_owned();
    TcpStream::connect(&address).unwrap();
    drop(host);
    until_refused(&address);
}

/// Connects until the connection is refused. A child process of another test may briefly hold the
/// socket, until it starts its program.
#[track_caller]
fn until_refused(address: &str) {
    wait_until("the server still listens", || {
        TcpStream::connect(address).is_err()
    });
}
