//! A cache in which a path is rebuilt between the responses for its narinfo and its NAR.

use std::fs;

use floe_format::{Hash, StoreDir, StorePath};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::run;

use crate::faulty_cache::{FaultyCache, assert_store_contains_exactly, faulty_cache};
use crate::support::floe;

/// A cache in which a path was rebuilt with another NAR, and the path's previous narinfo.
struct Rebuilt {
    cache: FaultyCache,
    path: StorePath,
    before: String,
    server: FaultServer,
}

/// Replaces the NAR, under a new file name or under the old one.
fn rebuilt(has_own_name: bool) -> Option<Rebuilt> {
    let cache = faulty_cache("zstd")?;
    let path = cache.path("libonig5");
    let (old, before) = (cache.nar(&path), cache.narinfo(&path));
    let mut nar = zstd::decode_all(&*fs::read(&old).unwrap()).unwrap();
    // Flip a bit within the contents of the library, which make up most of the NAR.
    let middle = nar.len() / 2;
    nar[middle] ^= 1;
    let packed = zstd::encode_all(&*nar, 3).unwrap();
    fs::remove_file(&old).unwrap();
    cache.edit_signed(&path, |narinfo| {
        narinfo.info.nar_hash = Hash::sha256(floe_hash::sha256(&nar));
        narinfo.file_hash = Some(Hash::sha256(floe_hash::sha256(&packed)));
        narinfo.file_size = Some(packed.len() as u64);
        if has_own_name {
            narinfo.url = "nar/rebuilt.nar.zst".into();
        }
    });
    fs::write(cache.nar(&path), &packed).unwrap();
    Some(Rebuilt {
        server: FaultServer::start(&cache.cache),
        before: before.to_text(&StoreDir::default()),
        path,
        cache,
    })
}

impl Rebuilt {
    fn narinfo(&self) -> String {
        format!("{}.narinfo", self.path.hash_part())
    }

    /// Makes the server respond to the first narinfo request with the previous narinfo.
    fn serve_old_narinfo_once(&self) -> Fault {
        let fault = Fault::OtherBody(self.before.clone().into_bytes());
        self.server.fail_times(&self.narinfo(), fault.clone(), 1);
        fault
    }
}

#[test]
fn rebuilt_path_is_fetched_with_its_new_narinfo() {
    for has_own_name in [true, false] {
        let Some(rebuilt) = rebuilt(has_own_name) else {
            return;
        };
        let Rebuilt { cache, server, .. } = &rebuilt;
        let fault = rebuilt.serve_old_narinfo_once();
        let ran = cache.install(&server.url()).expect(0);
        ran.stderr_contains("retrying")
            .stderr_contains(rebuilt.path.as_str());
        let requests = server.requests_for(&rebuilt.narinfo());
        let faults: Vec<_> = requests.into_iter().map(|request| request.fault).collect();
        assert_eq!(faults, [Some(fault), None], "{has_own_name}");
        assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));

        let from = cache.root.display().to_string();
        let info = run(&mut floe(["info", "--from", &from, rebuilt.path.as_str()])).expect(0);
        let new = cache.narinfo(&rebuilt.path).info.nar_hash.to_nix32();
        assert!(info.stdout.contains(&new), "{}", info.stdout);

        // A second install has nothing to fetch.
        let before = server.requests().len();
        cache.install(&server.url()).expect(0);
        assert_eq!(super::nars_requested_since(server, before), [""; 0]);
    }
}

#[test]
fn rebuilt_path_with_unsigned_narinfo_is_rejected() {
    let Some(rebuilt) = rebuilt(true) else { return };
    let Rebuilt { cache, server, .. } = &rebuilt;
    cache.edit(&rebuilt.path, |narinfo| narinfo.info.signatures.clear());
    rebuilt.serve_old_narinfo_once();
    let says = ["the server does not have it", rebuilt.path.as_str()];
    cache.assert_install_fails_for(&server.url(), &[&rebuilt.path], 4, &says);
    assert_eq!(server.requests_for(&rebuilt.narinfo()).len(), 2);
    assert_eq!(server.requests_for("rebuilt.nar.zst").len(), 0);
}

#[test]
fn rebuilt_path_with_new_references_needs_second_run() {
    let Some(rebuilt) = rebuilt(true) else { return };
    let Rebuilt { cache, server, .. } = &rebuilt;
    let more = cache.path("gcc-12-base");
    cache.edit_signed(&rebuilt.path, |narinfo| {
        assert!(
            narinfo.info.references.insert(more),
            "the reference was there before"
        );
    });
    rebuilt.serve_old_narinfo_once();
    let kept = cache.paths_without(&[&rebuilt.path]);
    cache.install(&server.url()).expect(4);
    cache.assert_valid_paths(&kept);
    let json = cache.install(&server.url()).expect(0).json();
    assert_eq!(json["alreadyValid"], kept.len());
    assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
}
