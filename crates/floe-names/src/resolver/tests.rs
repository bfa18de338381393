//! Tests of the order of sources and of remembered names.

use std::cell::Cell;
use std::fs;

use floe_cache::{Document, DocumentRequest, Fetched};
use floe_transfer::Error;

use super::*;
use crate::lock::LockFile;

const HASH: &str = "00000000000000000000000000000000";

fn options() -> ResolveOptions {
    ResolveOptions {
        store_dir: StoreDir::default(),
        ttl: Duration::from_secs(3600),
        compares: false,
        pins: Default::default(),
        caches: String::new(),
    }
}

fn build(path: &str) -> Document {
    let system = hydra::machine_system();
    let text = format!(
        r#"{{"id":1,"finished":1,"buildstatus":0,"system":"{system}",
            "buildoutputs":{{"out":{{"path":"/nix/store/{HASH}-{path}"}}}}}}"#
    );
    Document::Found {
        body: text.into_bytes(),
        etag: None,
    }
}

fn names(texts: &[&str]) -> Vec<NameSpec> {
    texts
        .iter()
        .map(|text| NameSpec::parse(text).unwrap())
        .collect()
}

#[test]
fn first_source_with_the_name_counts() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("names.toml");
    fs::write(&file, format!("jq = '/nix/store/{HASH}-own'")).unwrap();
    let sources = [
        NameSource::parse(&format!("team=file:{}", file.display())).unwrap(),
        NameSource::parse("nixpkgs=hydra+http://h.example/p/j").unwrap(),
    ];
    let asked = Cell::new(0);
    let fetch = |requests: Vec<DocumentRequest>| -> Fetched {
        asked.set(asked.get() + requests.len());
        Ok(requests.iter().map(|_| Ok(build("other"))).collect())
    };
    let mut memory = NameMemory::default();
    let mut resolve = |options: ResolveOptions, texts: &[&str]| {
        let resolver = Resolver::new(&sources, options, &fetch);
        resolver.resolve(&names(texts), &mut memory)
    };
    let found = resolve(options(), &["jq", "nixpkgs#jq", "curl"]).unwrap();
    let found: Vec<&str> = found.iter().map(|it| it.path.name()).collect();
    assert_eq!(found, ["own", "other", "other"]);
    assert_eq!(asked.get(), 2);
    // Both replies are remembered.
    let found = resolve(options(), &["curl", "curl.out"]).unwrap();
    assert_eq!(asked.get(), 2);
    assert!(found.iter().all(|it| it.origin == Origin::Remembered));
    let compares = ResolveOptions {
        compares: true,
        ..options()
    };
    let found = resolve(compares, &["jq"]).unwrap();
    assert!(found[0].notes[0].contains("-other, and the first source counts"));
    let error = resolve(options(), &["x#jq"]).unwrap_err();
    assert!(
        error.to_string().ends_with("there are team, nixpkgs"),
        "{error}"
    );
    let error = resolve(options(), &["team#curl"]).unwrap_err().to_string();
    assert!(
        error.ends_with("names.toml has no package of this name"),
        "{error}"
    );
}

#[test]
fn source_that_does_not_reply_is_remembered() {
    let sources = [NameSource::parse("hydra+http://h.example/p/j").unwrap()];
    let is_away = Cell::new(false);
    let fetch = |requests: Vec<DocumentRequest>| -> Fetched {
        let reply = |_| {
            if is_away.get() {
                Err(Error::fetch("http://h.example", "connection refused", true))
            } else {
                Ok(build("jq"))
            }
        };
        Ok(requests.iter().map(reply).collect())
    };
    let old = ResolveOptions {
        ttl: Duration::ZERO,
        ..options()
    };
    let resolver = Resolver::new(&sources, old, &fetch);
    let mut memory = NameMemory::default();
    let found = resolver.resolve(&names(&["jq"]), &mut memory).unwrap();
    assert_eq!(found[0].origin, Origin::Source);
    is_away.set(true);
    let found = resolver.resolve(&names(&["jq"]), &mut memory).unwrap();
    assert!(matches!(&found[0].origin, Origin::Offline(why) if why.contains("refused")));
    let error = resolver.resolve(&names(&["curl", "curl"]), &mut memory);
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("cannot find curl: cannot fetch http://h.example"),
        "{error}"
    );
}

#[test]
fn lock_file_that_cannot_be_read_is_not_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let lock = place.path().join("floe.lock");
    let sources = [
        NameSource::parse(&format!("lock:{}", lock.display())).unwrap(),
        NameSource::parse("nixpkgs=hydra+http://h.example/p/j").unwrap(),
    ];
    let fetch = |requests: Vec<DocumentRequest>| -> Fetched {
        Ok(requests.iter().map(|_| Ok(build("jq"))).collect())
    };
    let resolver = Resolver::new(&sources, options(), &fetch);
    let mut memory = NameMemory::default();
    let jq = &names(&["jq"])[0];
    let empty = LockFile::new(hydra::machine_system(), BTreeMap::new());
    fs::write(&lock, empty.to_text()).unwrap();
    resolver
        .resolve(std::slice::from_ref(jq), &mut memory)
        .unwrap();
    assert!(resolver.remembered(jq, &memory).is_some());
    fs::write(&lock, "<<<<<<< ours").unwrap();
    assert_eq!(resolver.remembered(jq, &memory), None);
    let error = resolver.resolve(std::slice::from_ref(jq), &mut memory);
    assert!(error.unwrap_err().to_string().contains("floe.lock"));
}

/// A cache with a pin of `web`, and a Hydra that does not reply.
struct PinsAlone(Vec<u8>);

impl Access for PinsAlone {
    fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched {
        let away = |_| Err(Error::fetch("http://h.example", "connection refused", true));
        Ok(requests.iter().map(away).collect())
    }

    fn pins(&self, _: &str, names: &[&str]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let pin = |name: &&str| Ok((*name == "web").then(|| self.0.clone()));
        names.iter().map(pin).collect()
    }
}

#[test]
fn pin_is_remembered_although_another_name_fails() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pins.json");
    let key = floe_format::SecretKey::from_seed("cache-1", [1; 32]).unwrap();
    let mut pin = floe_format::pin::Pin {
        name: "web".into(),
        store_dir: StoreDir::default(),
        path: StorePath::parse(&format!("{HASH}-web")).unwrap(),
        cache_id: "a".repeat(32),
        serial: 7,
        time: crate::cache_file::now(),
        signatures: Default::default(),
    };
    pin.sign(&key);
    let sources = [
        NameSource::parse("pins+https://h.example").unwrap(),
        NameSource::parse("hydra+http://h.example/p/j").unwrap(),
    ];
    let mut options = options();
    options.pins.keys = [key.public()].into_iter().collect();
    let access = PinsAlone(pin.to_string().into_bytes());
    let mut memory = NameMemory::default();
    memory.pins = pins::SeenPins::open(Some(file.clone()));
    let resolver = Resolver::new(&sources, options, &access);
    let error = resolver.resolve(&names(&["web", "curl"]), &mut memory);
    assert!(error.unwrap_err().to_string().contains("cannot find curl"));
    let seen = pins::SeenPins::open(Some(file));
    assert_eq!(seen.find("https://h.example", "web").unwrap().serial, 7);
}
