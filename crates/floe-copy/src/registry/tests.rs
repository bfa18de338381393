//! Tests of store URIs and of the stores that they name.

use std::path::Path;

use floe_store::{StoreLayout, WriteOptions};
use floe_transfer::{Session, Target, TargetContext};

use super::*;
use crate::local::config::local_store;
use crate::sources::{SourceOrder, Sources};

fn resolve(text: &str) -> Result<Arc<dyn StoreConfig>, Error> {
    resolve_store_uri(text, &UriContext::default())
}

fn debug(text: &str) -> String {
    format!("{:?}", resolve(text).unwrap())
}

#[test]
fn directory_and_root_parameter_name_same_store() {
    let layout = StoreLayout::in_root(Path::new("/mnt"), Default::default());
    let store = format!("{:?}", local_store(layout));
    for text in [
        "/mnt",
        "local?root=/mnt",
        "local?root=%2Fmnt",
        "local:///mnt",
    ] {
        assert_eq!(debug(text), store, "{text}");
    }
}

#[test]
fn caches_behind_a_network_take_nix_parameters() {
    let plain = debug("https://cache.example.org/x");
    let address = "https://cache.example.org/x/?parallel-compression=1";
    assert_eq!(debug(address), plain);
    for start in [
        address,
        "s3://bucket?region=eu-west-1&multipart-upload=true",
    ] {
        let text = format!("{start}&compression=zstd&secret-key=/k&log-compression=br");
        let cache = debug(&text);
        for field in [
            "compression: Zstd",
            "secret_keys: [\"/k\"]",
            "log: Some(Brotli)",
        ] {
            assert!(cache.contains(field), "{cache}");
        }
        assert!(cache.contains("ignored: []"), "{cache}");
    }
    let own = debug(&format!(
        "{address}&priority=-10&want-mass-query=false&trusted=1"
    ));
    for field in [
        "priority: Some(-10)",
        "want_mass_query: Some(false)",
        "trusted: true",
    ] {
        assert!(own.contains(field) && !plain.contains(field), "{own}");
    }
}

#[test]
fn file_uri_parses_parameters() {
    let text = "file:///c?compression=zstd&secret-key=/k&compression-level=19\
                &write-nar-listing=true&priority=7";
    let cache = debug(text);
    for field in [
        "directory: \"/c\"",
        "compression: Zstd",
        "secret_keys: [\"/k\"]",
        "level: Some(19)",
        "write_listings: true",
        "priority: Some(7)",
    ] {
        assert!(cache.contains(field), "{field}: {cache}");
    }
}

#[test]
fn invalid_uri_error_names_the_cause() {
    for (text, part) in [
        ("path://x", "unknown scheme"),
        ("auto://host", "no address"),
        ("http://", "no host"),
        ("http:/u:secret@host", "use http://host"),
        ("file:///c?compression=lzma", "does not write"),
        ("https://c/?priority=high", "not a number"),
        ("file:///c?priority=high", "not a number"),
        ("local?priority=", "not a number"),
        ("https://c/?want-mass-query=2", "neither true nor false"),
    ] {
        let message = resolve(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn unknown_parameter_is_ignored_with_advice() {
    for (text, plain, advice) in [
        ("file:///c?compresion=xz", "file:///c", "use compression"),
        ("local?rot=/x", "local", "use root"),
        ("https://c/x?priorty=3", "https://c/x", "use priority"),
        (
            "https://c?compression=none&xyz=3",
            "https://c",
            "unknown parameter",
        ),
        (
            "file:///c?local-nar-cache=/x",
            "file:///c",
            "does not support",
        ),
        ("https://c?store=/x", "https://c", "does not support"),
    ] {
        let store = resolve(text).unwrap();
        let [ignored] = store.facts().ignored_parameters else {
            panic!("{text}: {:?}", store.facts().ignored_parameters);
        };
        let warning = ignored.to_string();
        assert!(warning.contains(plain), "{text}: {warning}");
        assert!(warning.contains(advice), "{text}: {warning}");
    }
}

#[test]
fn parameter_for_builds_and_collections_is_irrelevant() {
    let text = "local?build-dir=/b&use-roots-daemon=true&ignore-gc-delete-failure=1&log=/l\
                &path-info-cache-size=0&system-features=kvm&want-mass-query=1&read-only=0";
    assert_eq!(resolve(text).unwrap().facts().ignored_parameters, []);
}

#[test]
fn read_only_store_is_no_target() {
    let store = resolve("/nonexistent?read-only=true").unwrap();
    let context = TargetContext {
        session: &Session::default(),
        store_dir: None,
        write: &WriteOptions::default(),
        dry_run: false,
        substitutes: false,
        build_logs: None,
    };
    let error = store.open_target(&context).unwrap_err().to_string();
    assert!(error.contains("read-only=true"), "{error}");
}

#[test]
fn invalid_uri_error_hides_password() {
    let message = resolve("https://user:secret@c?priority=y")
        .unwrap_err()
        .to_string();
    assert!(!message.contains("secret"), "{message}");
}

fn open_for_dry_run(text: &str) -> Arc<dyn Target> {
    let context = TargetContext {
        session: &Session::default(),
        store_dir: None,
        write: &WriteOptions::default(),
        dry_run: true,
        substitutes: false,
        build_logs: None,
    };
    resolve(text).unwrap().open_target(&context).unwrap().target
}

#[test]
fn space_is_measured_in_directory_of_contents() {
    for (text, directory) in [
        ("/mnt/root", "/mnt/root/nix/store"),
        ("file:///mnt/cache", "/mnt/cache/nar"),
    ] {
        let target = open_for_dry_run(text);
        let space = target.estimate_space(&[]).unwrap().unwrap();
        assert_eq!(space.directory, Path::new(directory));
    }
}

#[test]
fn dry_run_creates_no_binary_cache() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    open_for_dry_run(&format!("file://{}", cache.display()));
    assert!(!cache.exists());
}

#[test]
fn binary_cache_with_missing_key_is_not_created() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, key) = (scratch.path().join("cache"), scratch.path().join("key"));
    let uri = format!("file://{}?secret-key={}", cache.display(), key.display());
    let context = TargetContext {
        session: &Session::default(),
        store_dir: None,
        write: &WriteOptions::default(),
        dry_run: false,
        substitutes: false,
        build_logs: None,
    };
    let error = resolve(&uri).unwrap().open_target(&context).unwrap_err();
    assert!(error.to_string().contains("secret key"), "{error}");
    assert!(!cache.exists());
}

#[test]
fn source_that_cannot_be_opened_is_unavailable() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path();
    std::fs::write(cache.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let stores = [
        resolve("file:///nonexistent").unwrap(),
        resolve(&format!("file://{}", cache.display())).unwrap(),
    ];
    let session = Session::default();
    let open =
        |stores: &[Arc<dyn StoreConfig>]| Sources::open(stores, SourceOrder::AsListed, &session);
    let sources = open(&stores).unwrap();
    let unavailable: Vec<&str> = sources
        .unavailable
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(unavailable, ["file:///nonexistent"]);
    assert_eq!(sources.list.len(), 1);
    assert!(open(&stores[..1]).is_err());
}

#[test]
fn text_without_scheme_names_the_nearest_spelling() {
    let current = std::env::current_dir().unwrap();
    let in_current = format!("use file://{}/c", current.display());
    for (text, part) in [
        ("cachix:foo", "use https://foo.cachix.org"),
        ("s3:bucket", "use s3://BUCKET"),
        ("s3://", "use s3://BUCKET"),
        ("gs://bucket", "use s3:// with its endpoint"),
        ("ssh:host", "use ssh-ng://HOST"),
        ("unix:/sock", "use unix:///SOCKET"),
        ("dummy:", "use a directory"),
        ("https:/host/x", "use https://host/x"),
        ("path:/x", "use /x"),
        ("local:x", "use ./x"),
        ("localhost:5000/x", "use http://localhost:5000/x"),
        ("cache.example.org", "use https://cache.example.org for"),
        ("nixpkgs", "use ./nixpkgs for"),
        ("..x/y", "use ./..x/y for"),
        ("file:c", &*in_current),
        ("file://c", &*in_current),
        ("file://localhost/c", "use file:///c"),
        ("~/x", "home directory is not known"),
    ] {
        let message = resolve(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn path_names_a_store_below_that_directory() {
    let current = std::env::current_dir().unwrap();
    for (text, root) in [
        ("src", current.join("src")),
        ("./new:x", current.join("new:x")),
        ("..", current.join("..")),
        ("~", "/home/u".into()),
        ("~/x", "/home/u/x".into()),
        ("./~", current.join("~")),
    ] {
        let home = Some("/home/u".into());
        let context = UriContext {
            home,
            ..UriContext::default()
        };
        let store = resolve_store_uri(text, &context).unwrap();
        let expected = StoreLayout::in_root(&root, Default::default());
        assert_eq!(store.layout(), Some(&expected), "{text}");
    }
}

#[test]
fn file_uri_with_one_slash_names_the_cache() {
    assert_eq!(debug("file:/c?trusted=1"), debug("file:///c?trusted=1"));
}

#[test]
fn daemons_take_nix_parameters() {
    let none: [&str; 0] = [];
    for (text, ignored) in [
        ("daemon", &none[..]),
        (
            "unix:///sock?store=/x&trusted=1&priority=3&max-connections=2&root=/r",
            &none,
        ),
        (
            "ssh-ng://u@h:22?ssh-key=/k&compress=1&remote-program=a%20b&remote-store=/s",
            &none,
        ),
        ("ssh-ng://h?remote-progam=x", &["remote-progam"]),
    ] {
        let store = resolve_store_uri(text, &UriContext::default()).unwrap();
        let found: Vec<&str> = store
            .facts()
            .ignored_parameters
            .iter()
            .map(|it| &*it.name)
            .collect();
        assert_eq!(found, ignored, "{text}");
        assert!(store.layout().is_none() && text.starts_with(&store.to_string()));
    }
}

#[test]
fn auto_is_the_daemon_if_only_it_may_write() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let state = scratch.path().join("state");
    let context = UriContext {
        state_dir: Some(state.clone()),
        daemon_socket: Some(socket.clone()),
        ..UriContext::default()
    };
    let name = || resolve_auto_target("daemon", &context).unwrap().to_string();
    assert_eq!(name(), "/nix/store");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(name(), "daemon");
    std::fs::create_dir(&state).unwrap();
    assert_eq!(name(), "/nix/store");
    // The daemon of another store.
    let configured = format!("unix://{}", socket.display());
    let found = resolve_auto_target(&configured, &context)
        .unwrap()
        .to_string();
    assert_eq!(found, configured);
    let own = format!("unix://{}/daemon-socket/socket", state.display());
    let found = resolve_auto_target(&own, &context).unwrap().to_string();
    assert_eq!(found, "/nix/store");
}
