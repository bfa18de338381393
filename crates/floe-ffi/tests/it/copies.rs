//! The options of a copy: reuse of other stores, optimisation, and the check of free space.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use floe_messages::{CopyReply, CopyRequest, Error, ErrorKind, Method, ResolveReply, ReuseBy};
use floe_testkit::{Corpus, Scratch, corpus, nginx, nixes, scratch};

use crate::host::*;

/// The source and the target of a copy. Requests borrow from it.
struct CopySetup<'a> {
    corpus: &'a Corpus,
    from: [&'a str; 1],
    to: String,
    reuse: Vec<&'a str>,
    paths: [&'a str; 1],
    keys: [&'a str; 1],
}

impl<'a> CopySetup<'a> {
    fn new(corpus: &'a Corpus, from: &'a str, to: &Path) -> CopySetup<'a> {
        CopySetup {
            corpus,
            from: [from],
            to: to.display().to_string(),
            reuse: Vec::new(),
            paths: [&corpus.root],
            keys: [&corpus.key],
        }
    }

    fn request(&self) -> CopyRequest<'_> {
        assert!(!self.corpus.paths.is_empty());
        CopyRequest {
            from: (&self.from[..]).into(),
            to: &self.to,
            paths: (&self.paths[..]).into(),
            trusted_public_keys: (&self.keys[..]).into(),
            reuse: (&self.reuse[..]).into(),
            ..Default::default()
        }
    }
}

/// Returns the number of links in `.links` that replace several files.
fn shared_links(root: &Path) -> usize {
    let links = fs::read_dir(root.join("nix/store/.links")).unwrap();
    let counts = links.map(|link| link.unwrap().metadata().unwrap().nlink());
    counts.filter(|count| *count > 2).count()
}

#[test]
fn install_reuses_other_store_and_optimises() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let scratch = scratch();
    let host = Host::new();
    let (file_url, url) = (
        corpus.file_url("zstd"),
        format!("{}/cache-zstd", server.url()),
    );
    let first = CopySetup::new(&corpus, &file_url, &scratch.join("previous"));
    let got = host.ask(Method::Install, &first.request());
    let first_reply: CopyReply<'_> = got.reply();
    assert_eq!((first_reply.reused, first_reply.reused_nar_bytes), (0, 0));
    assert_eq!(first_reply.copied, corpus.paths.len() as u64);

    for by in [None, Some(ReuseBy::Hardlink), Some(ReuseBy::Copy)] {
        let root = scratch.join(&format!("root-{by:?}"));
        let mut again = CopySetup::new(&corpus, &url, &root);
        again.reuse.push(&first.to);
        let got = host.ask(
            Method::Install,
            &CopyRequest {
                reuse_by: by,
                optimise: true,
                ..again.request()
            },
        );
        let reply: CopyReply<'_> = got.reply();
        assert_eq!(reply.reused, corpus.paths.len() as u64, "{by:?}");
        assert_eq!(reply.reused_nar_bytes, first_reply.nar_bytes, "{by:?}");
        assert_eq!(reply.download_bytes, 0, "{by:?}");
        assert!(shared_links(&root) > 0, "{by:?}: no file was linked");
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
    }
    let log = server.log();
    assert!(log.contains(".narinfo ") && !log.contains("/nar/"), "{log}");
}

#[test]
fn optimise_and_reuse_reject_caches() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (url, host) = (corpus.file_url("zstd"), Host::new());
    let cache = format!("file://{}", scratch.join("cache").display());
    let into_cache = CopySetup {
        to: cache,
        ..CopySetup::new(&corpus, &url, scratch.path())
    };
    let mut from_cache = CopySetup::new(&corpus, &url, &scratch.join("root"));
    from_cache.reuse.push(&url);
    for (request, expected) in [
        (
            CopyRequest {
                optimise: true,
                ..into_cache.request()
            },
            "a local store",
        ),
        (from_cache.request(), "name it"),
    ] {
        let got = host.ask(Method::Copy, &request);
        assert_eq!(got.kind, FAILED);
        let error: Error<'_> = got.message();
        assert_eq!(error.kind, ErrorKind::Usage, "{}", error.message);
        assert!(error.message.contains(expected), "{}", error.message);
    }
    assert!(!scratch.join("cache").exists() && !scratch.join("root").exists());
}

/// Creates a cache whose narinfo claims that the root is larger than any disk.
fn cache_with_gigantic_root(corpus: &Corpus, scratch: &Scratch) -> String {
    let cache = scratch.join("gigantic");
    fs::create_dir(&cache).unwrap();
    for entry in fs::read_dir(corpus.cache("none")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), cache.join(entry.file_name())).unwrap();
        }
    }
    std::os::unix::fs::symlink(corpus.cache("none").join("nar"), cache.join("nar")).unwrap();
    let name = corpus.root.rsplit('/').next().unwrap();
    let narinfo = cache.join(format!("{}.narinfo", name.split('-').next().unwrap()));
    let text = fs::read_to_string(&narinfo).unwrap();
    let grown = |line: &str| match line.split_once(": ") {
        Some((name @ ("NarSize" | "FileSize"), _)) => format!("{name}: {GIGANTIC}\n"),
        _ => format!("{line}\n"),
    };
    fs::write(&narinfo, text.lines().map(grown).collect::<String>()).unwrap();
    format!("file://{}", cache.display())
}

#[test]
fn install_without_space_fails_unless_unchecked() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let host = Host::new();
    let url = cache_with_gigantic_root(&corpus, &scratch);
    // The free space of some file systems is unknown; tmpfs reports it.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = memory.path().join("root");
    let all = CopySetup::new(&corpus, &url, &root);
    let request = |no_check_space| CopyRequest {
        no_check_sigs: true,
        no_check_space,
        ..all.request()
    };
    let got = host.ask(Method::Resolve, &request(false));
    let reply: ResolveReply<'_> = got.reply();
    assert!(reply.write_bytes.unwrap() >= GIGANTIC, "{reply:?}");
    assert!(reply.write_inodes.unwrap() > corpus.paths.len() as u64);
    assert!(reply.free_bytes.unwrap() < GIGANTIC, "{reply:?}");

    let got = host.ask(Method::Install, &request(false));
    assert_eq!(got.kind, FAILED);
    let error: Error<'_> = got.message();
    assert_eq!(error.kind, ErrorKind::NoSpace, "{}", error.message);
    // The claim of the cache is wrong, which only a download shows.
    let got = host.ask(Method::Install, &request(true));
    assert_eq!(got.kind, FAILED);
    let error: Error<'_> = got.message();
    assert_eq!(error.kind, ErrorKind::Untrusted, "{}", error.message);
}

/// More than the memory of any machine, and less than the maximum size of a NAR.
const GIGANTIC: u64 = 1 << 39;
