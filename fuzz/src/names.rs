//! Properties of floe-names that hold for any bytes, one function per fuzz target.
//!
//! The fuzz targets call these functions with the bytes that libFuzzer finds. The tests of
//! floe-names call them with the committed corpus.

use std::time::Duration;

use floe_cache::{Document, DocumentRequest, Fetched};
use floe_format::pin::Pin;
use floe_format::{StoreDir, TrustedKeys};
use floe_names::{
    FileSource, LockFile, NameMemory, NameSource, NameSpec, ResolveOptions, ResolvedName, Resolver,
    parse_list,
};

/// A name or a source that is parsed equals what its text is parsed to.
pub fn check_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(name) = NameSpec::parse(text) {
        assert_eq!(
            NameSpec::parse(&name.to_string()).expect("it was parsed before"),
            name
        );
    }
    // A source with credentials is printed without them.
    if let Ok(source) = NameSource::parse(text)
        && !text.contains('@')
    {
        assert_eq!(
            NameSource::parse(&source.to_string()).expect("it was parsed before"),
            source
        );
    }
}

/// Every value of a file that is parsed is a package or refused.
pub fn check_name_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(file) = FileSource::parse(text) {
        for name in ["jq", "a.b.c", "python3Packages.requests"] {
            if let Ok(Some(package)) = file.find(name) {
                assert!(!package.outputs.is_empty());
            }
        }
    }
}

/// Whatever a Hydra answers, a name has a path in the store directory or an error.
pub fn check_hydra_build(data: &[u8]) {
    let source = "hydra+http://h.example/p/j?system=x86_64-linux";
    let sources = [NameSource::parse(source).expect("a source")];
    let fetch = |requests: Vec<DocumentRequest>| -> Fetched {
        Ok(requests.iter().map(|_| Ok(document(data))).collect())
    };
    let options = ResolveOptions {
        store_dir: StoreDir::default(),
        ttl: Duration::ZERO,
        compares: false,
        pins: Default::default(),
        caches: String::new(),
    };
    let resolver = Resolver::new(&sources, options, &fetch);
    let names = [NameSpec::parse("jq").expect("a name")];
    let resolved = resolver.resolve(&names, &mut NameMemory::default());
    if let Ok([ResolvedName { path, .. }]) = resolved.as_deref() {
        let text = std::str::from_utf8(data).expect("JSON is text");
        assert!(text.contains(path.as_str()) || text.contains('\\'));
    }
}

/// The parts of an entry are parts of its path, and no list makes a name resolve without a cache.
pub fn check_name_list(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        for entry in parse_list(text) {
            assert!(entry.path.ends_with(entry.base_name));
            assert!(entry.base_name[33..].starts_with(entry.package));
            assert!(!entry.output.is_empty() && entry.path.contains(entry.version));
        }
    }
    let sources = [NameSource::parse("list+http://h.example/l").expect("a source")];
    let fetch = |requests: Vec<DocumentRequest>| -> Fetched {
        Ok(requests.iter().map(|_| Ok(document(data))).collect())
    };
    let options = ResolveOptions {
        store_dir: StoreDir::default(),
        ttl: Duration::ZERO,
        compares: false,
        pins: Default::default(),
        caches: String::new(),
    };
    let resolver = Resolver::new(&sources, options, &fetch);
    let names = [NameSpec::parse("jq").expect("a name")];
    let resolved = resolver.resolve(&names, &mut NameMemory::default());
    assert!(resolved.is_err());
}

fn document(data: &[u8]) -> Document {
    Document::Found {
        body: data.to_vec(),
        etag: None,
    }
}

/// A pin that is parsed equals what its text is parsed to, and no key has signed an invented one.
pub fn check_pin(data: &[u8]) {
    if let Ok(pin) = Pin::parse(data) {
        let again = Pin::parse(pin.to_string().as_bytes());
        assert_eq!(again.expect("it was parsed before"), pin);
        assert_eq!(pin.trusted_by(&TrustedKeys::default()), None);
    }
}

/// A lock file that is parsed equals what its text is parsed to.
pub fn check_lock_file(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(lock) = LockFile::parse(text)
    {
        let again = LockFile::parse(&lock.to_text());
        assert_eq!(again.expect("it was parsed before"), lock);
    }
}
