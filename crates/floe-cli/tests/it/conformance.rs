//! Every kind of source, target and storage passes the same tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use floe_cache::{
    BinaryCacheWriter, CacheWriteOptions, FileStorage, HttpStorage, NarInfoDiskCacheOptions,
    Network, NetworkOptions, RequestOptions, S3CacheUri, ServiceEnvironment,
};
use floe_copy::resolve_store_uri;
use floe_format::StoreDir;
use floe_store::WriteOptions;
use floe_testkit::conformance::{
    Contents, SourceFixture, TargetFixture, check_reader, check_source, check_target,
    check_unreadable_nar, check_writer,
};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{
    MemorySource, MemoryStorage, MemoryTarget, Nginx, Nix, Registration, S3Server, Scratch,
    copy_tree, nginx, nixes, run, s3_servers, scratch, wait_until,
};
use floe_transfer::{
    Cancel, Error, Events, PathSpec, RetryPolicy, Session, Source, SourceContext, StoreUri, Target,
    TargetContext, UriContext,
};

use crate::server_process::ServerProcess;
use crate::support::floe;

/// A place with the contents, and the directories for the tests.
struct Place {
    scratch: Scratch,
    contents: Contents,
}

fn place() -> Place {
    let scratch = scratch();
    let contents = Contents::create(&scratch.join("contents"));
    Place { scratch, contents }
}

impl Place {
    /// Makes a local store with the contents, and returns its root directory.
    fn local_store(&self) -> PathBuf {
        let root = self.scratch.join("root");
        let from = file_uri(&self.contents.directory);
        let mut command = floe(["copy", "--no-check-sigs", "--all", "--from", &from, "--to"]);
        run(command.arg(&root)).expect(0);
        root
    }

    fn check_source(&self, uri: &str, lists: bool) {
        with_source(uri, &session(NetworkOptions::default()), |source| {
            check_source(&SourceFixture {
                source,
                contents: &self.contents,
                lists,
            });
        });
    }
}

impl Place {
    /// Checks a store, which is in `behind`, as a target and then as a source.
    fn check_remote_store(&self, nix: &Nix, uri: &str) {
        check_target(&TargetFixture {
            open: &|| open_target(uri, &Session::default()),
            contents: &self.contents,
        });
        self.check_source(uri, true);
        nix.verify(&self.scratch.join("behind"), self.contents.paths.len());
    }
}

fn file_uri(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

fn session(options: NetworkOptions) -> Session {
    Session::new(Cancel::default(), Events::default()).with_options::<Network>(options)
}

fn with_source(uri: &str, session: &Session, check: impl FnOnce(&dyn Source)) {
    let store = resolve_store_uri(uri, &UriContext::default()).unwrap();
    let source = store.open_source(&SourceContext {
        session,
        are_substituters: false,
        opened: channel().0,
    });
    check(&*source.unwrap());
}

#[test]
fn source_in_memory_conforms() {
    let place = place();
    let source = MemorySource::new("memory", None);
    for known in &place.contents.paths {
        source.insert(known.narinfo.clone(), known.nar.clone());
    }
    check_source(&SourceFixture {
        source: &source,
        contents: &place.contents,
        lists: false,
    });
}

#[test]
fn cache_in_directory_conforms_as_source() {
    let place = place();
    place.check_source(&file_uri(&place.contents.directory), true);
}

#[test]
fn abort_of_one_cache_spares_the_others() {
    let place = place();
    let servers = [(); 2].map(|()| FaultServer::start(&place.contents.directory));
    let [first, second] = servers.each_ref().map(FaultServer::url);
    let session = session(NetworkOptions::default());
    with_source(&first, &session, |first| {
        let query = || {
            let spec = PathSpec::Path(place.contents.paths[0].path().clone());
            first.query_path_info(&spec, &Cancel::default())
        };
        assert!(query().unwrap().is_some());
        with_source(&second, &session, |second| {
            first.abort();
            assert!(query().is_err(), "the first cache still replies");
            check_source(&SourceFixture {
                source: second,
                contents: &place.contents,
                lists: false,
            });
        });
    });
}

#[test]
fn local_store_conforms_as_source() {
    let place = place();
    let root = place.local_store();
    place.check_source(&root.display().to_string(), true);
}

#[test]
fn cache_behind_nginx_conforms_as_source() {
    let place = place();
    let Some(server) = nginx(&place.contents.directory, "") else {
        return;
    };
    place.check_source(&server.url(), false);
    // The second pass reads the narinfos that the first has written.
    let options = NetworkOptions {
        narinfo_disk_cache: Some(NarInfoDiskCacheOptions::new(
            place.scratch.join("narinfos.sqlite"),
        )),
        ..NetworkOptions::default()
    };
    for _ in 0..2 {
        with_source(&server.url(), &session(options.clone()), |source| {
            check_source(&SourceFixture {
                source,
                contents: &place.contents,
                lists: false,
            });
        });
    }
}

#[test]
fn store_served_by_floe_conforms_as_source() {
    let place = place();
    let server = ServerProcess::start(place.local_store(), &[]);
    place.check_source(&server.url(), false);
}

#[test]
fn altered_cut_and_absent_nars_are_errors_of_their_source() {
    let place = place();
    let server = FaultServer::start(&place.contents.directory);
    let options = NetworkOptions {
        retry: RetryPolicy::with_attempts(1),
        stall_timeout: Duration::from_secs(1),
        ..NetworkOptions::default()
    };
    let memory = MemorySource::new("memory", None);
    let directory = place.scratch.join("altered");
    copy_tree(&place.contents.directory, &directory);
    let root = place.local_store();
    for known in &place.contents.paths {
        let mut altered = known.nar.clone();
        altered[known.nar.len() / 2] ^= 1;
        let (narinfo, url) = (known.narinfo.clone(), &known.narinfo.url);
        memory.insert(narinfo, altered.clone());
        check_unreadable_nar(&memory, known);
        let over_http = |fault: Fault| {
            server.fail(url, fault);
            with_source(&server.url(), &session(options.clone()), |source| {
                check_unreadable_nar(source, known);
            });
            server.clear_faults();
        };
        over_http(Fault::OtherBody(altered.clone()));
        over_http(Fault::Truncated(known.nar.len() / 2));
        over_http(Fault::Stalled(known.nar.len() / 2));
        over_http(Fault::Reset);
        over_http(Fault::Status(404));
        let file = directory.join(url);
        let in_directory = || {
            with_source(&file_uri(&directory), &Session::default(), |source| {
                check_unreadable_nar(source, known);
            });
        };
        fs::write(&file, &altered).unwrap();
        in_directory();
        fs::write(&file, &known.nar[..known.nar.len() - 8]).unwrap();
        in_directory();
        fs::remove_file(&file).unwrap();
        in_directory();
        let path = root.join("nix/store").join(known.path().as_str());
        floe_store::tree::remove_tree(&path).unwrap();
        fs::write(&path, "another file than before").unwrap();
        with_source(&root.display().to_string(), &Session::default(), |source| {
            check_unreadable_nar(source, known);
        });
    }
    assert!(server.fault_count() >= place.contents.paths.len() * 5);
}

#[test]
fn targets_in_memory_conform() {
    for registration in [Registration::Batch, Registration::OneByOne] {
        let place = place();
        let target: Arc<dyn Target> = Arc::new(MemoryTarget::new(registration));
        check_target(&TargetFixture {
            open: &|| target.clone(),
            contents: &place.contents,
        });
    }
}

fn open_target(uri: &str, session: &Session) -> Arc<dyn Target> {
    let store = resolve_store_uri(uri, &UriContext::default()).unwrap();
    let opened = store.open_target(&TargetContext {
        session,
        store_dir: None,
        write: &WriteOptions::default(),
        dry_run: false,
        substitutes: false,
        build_logs: None,
    });
    opened.unwrap().target
}

#[test]
fn local_store_conforms_as_target() {
    let place = place();
    let root = place.scratch.join("written");
    let uri = root.display().to_string();
    check_target(&TargetFixture {
        open: &|| open_target(&uri, &Session::default()),
        contents: &place.contents,
    });
    place.check_source(&uri, true);
    for nix in nixes() {
        nix.verify(&root, place.contents.paths.len());
    }
}

#[test]
fn store_behind_a_daemon_conforms_as_target_and_source() {
    for nix in nixes() {
        let place = place();
        let daemon = nix.daemon(&place.scratch.join("behind"), "require-sigs = false");
        place.check_remote_store(&nix, &daemon.uri());
    }
}

#[test]
fn store_behind_a_program_conforms_as_target_and_source() {
    for nix in nixes() {
        let place = place();
        let (conf, store) = (place.scratch.join("conf"), place.scratch.join("behind"));
        let program = nix.remote_program("nix-daemon", &conf, "require-sigs = false");
        let store = store.display();
        let uri = format!("ssh-ng://localhost?remote-program={program}&remote-store={store}");
        place.check_remote_store(&nix, &uri);
    }
}

#[test]
fn cache_in_directory_conforms_as_target() {
    for compression in ["none", "zstd", "xz"] {
        let place = place();
        let cache = file_uri(&place.scratch.join("written"));
        let uri = format!("{cache}?compression={compression}");
        check_target(&TargetFixture {
            open: &|| open_target(&uri, &Session::default()),
            contents: &place.contents,
        });
        place.check_source(&cache, true);
    }
}

/// An nginx that takes uploads.
fn upload_server(directory: &Path) -> Option<Nginx> {
    fs::create_dir_all(directory).unwrap();
    let methods = "dav_methods PUT DELETE; create_full_put_path on; client_max_body_size 0;";
    nginx(directory, methods)
}

#[test]
fn cache_behind_nginx_conforms_as_target() {
    let place = place();
    let Some(server) = upload_server(&place.scratch.join("written")) else {
        return;
    };
    let session = session(NetworkOptions::default());
    let uri = format!("{}?compression=zstd", server.url());
    check_target(&TargetFixture {
        open: &|| open_target(&uri, &session),
        contents: &place.contents,
    });
    place.check_source(&server.url(), false);
}

/// The session of a user of an S3 server.
fn s3_session(server: &S3Server) -> Session {
    let variables = server.variables();
    session(NetworkOptions {
        services: ServiceEnvironment::new(variables, None),
        ..NetworkOptions::default()
    })
}

#[test]
fn cache_in_bucket_conforms_as_target_and_source() {
    let addresses = ["team", "team/deep/prefix"];
    for (server, address) in s3_servers("team")
        .iter()
        .flat_map(|server| addresses.map(|it| (server, it)))
    {
        let place = place();
        let session = s3_session(server);
        let uri = format!("{}&compression=zstd", server.uri(address));
        check_target(&TargetFixture {
            open: &|| open_target(&uri, &session),
            contents: &place.contents,
        });
        with_source(&uri, &session, |source| {
            check_source(&SourceFixture {
                source,
                contents: &place.contents,
                lists: true,
            });
        });
    }
}

/// The names of one path are not UTF-8, and another path refers to it.
#[test]
fn path_that_no_listing_can_show_fails_with_its_referrers_alone() {
    let place = place();
    let cache = place.scratch.join("written");
    let to = format!("{}?write-nar-listing=true", file_uri(&cache));
    let from = file_uri(&place.contents.directory);
    let mut command = floe(["copy", "--all", "--no-check-sigs"]);
    run(command.args(["--from", &from, "--to", &to]))
        .expect(1)
        .stderr_contains("write-nar-listing with such names");
    for (number, path) in place.contents.store_paths().iter().enumerate() {
        let is_there = |end: &str| cache.join(format!("{}{end}", path.hash_part())).exists();
        let expected = number < 4;
        assert_eq!(
            (is_there(".narinfo"), is_there(".ls")),
            (expected, expected),
            "{number}"
        );
    }
}

/// Opens a binary cache over a storage for writing.
fn write_cache(storage: &MemoryStorage, cancel: &Cancel) -> Result<BinaryCacheWriter, Error> {
    let options = CacheWriteOptions::default();
    let storage = Arc::new(storage.clone());
    BinaryCacheWriter::open(storage, &options, StoreDir::default(), cancel)
}

#[test]
fn cache_in_memory_conforms_as_target() {
    let place = place();
    let storage = MemoryStorage::default();
    check_target(&TargetFixture {
        open: &|| Arc::new(write_cache(&storage, &Cancel::default()).unwrap()),
        contents: &place.contents,
    });
}

#[test]
fn storages_conform_as_readers() {
    let place = place();
    let contents = &place.contents;
    let (directory, memory) = (
        FileStorage::new(&contents.directory),
        MemoryStorage::default(),
    );
    for name in fs::read_dir(&contents.directory).unwrap() {
        let name = name.unwrap();
        if let Ok(object) = fs::read(name.path()) {
            memory.insert(name.file_name().to_str().unwrap(), &object);
        }
    }
    check_reader(&directory, contents);
    check_reader(&memory, contents);
    let Some(server) = nginx(&contents.directory, "") else {
        return;
    };
    let session = session(NetworkOptions::default());
    let network = session.service::<Network>().unwrap();
    let options = RequestOptions::default();
    let behind_http = HttpStorage::new(&server.url(), None, &options, &network).unwrap();
    check_reader(&behind_http, contents);
}

#[test]
fn storages_behind_a_network_conform_as_writers() {
    let scratch = scratch();
    if let Some(server) = upload_server(&scratch.join("cache")) {
        let session = session(NetworkOptions::default());
        let network = session.service::<Network>().unwrap();
        let options = RequestOptions::default();
        let storage = HttpStorage::new(&server.url(), None, &options, &network).unwrap();
        check_writer(&storage);
    }
    for server in s3_servers("team") {
        let session = s3_session(&server);
        let network = session.service::<Network>().unwrap();
        // Large and small objects must agree about the name of the cache.
        for address in ["team", "team/~a%20b+c=/\u{e4}!"] {
            let uri = StoreUri::parse(&server.uri(address)).unwrap();
            let bucket = S3CacheUri::parse(&uri, &UriContext::default()).unwrap();
            check_writer(&bucket.storage(&network).unwrap());
        }
        assert!(server.bucket("team").join("~a b+c=/\u{e4}!/nar").is_dir());
    }
}

#[test]
fn storages_conform_as_writers() {
    let scratch = scratch();
    check_writer(&FileStorage::new(&scratch.join("cache")));
    check_writer(&MemoryStorage::default());
}

/// The error of a query must not count as an absent object, which the copy would replace.
#[test]
fn failed_query_of_a_length_is_no_absent_nar() {
    let place = place();
    let storage = MemoryStorage::default();
    let open = || write_cache(&storage, &Cancel::default()).unwrap();
    check_target(&TargetFixture {
        open: &|| Arc::new(open()),
        contents: &place.contents,
    });
    storage.fail_lengths("the connection was reset");
    let error = open().add_temp_roots_and_query_missing(&place.contents.store_paths());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the connection was reset"), "{error}");
}

#[test]
fn target_examines_many_paths_at_once_until_it_is_cancelled() {
    let place = place();
    let (storage, cancel) = (MemoryStorage::default(), Cancel::default());
    let paths = place.contents.store_paths();
    let target = write_cache(&storage, &cancel).unwrap();
    storage.hold();
    thread::scope(|scope| {
        let missing = scope.spawn(|| target.add_temp_roots_and_query_missing(&paths));
        wait_until("not all paths are queried at once", || {
            storage.held() == paths.len()
        });
        storage.release();
        assert_eq!(missing.join().unwrap().unwrap().paths, paths);
        let cancelled = scope.spawn(|| target.add_temp_roots_and_query_missing(&paths));
        wait_until("no path is queried", || storage.held() == paths.len());
        cancel.raise();
        let error = cancelled.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
    });
}
