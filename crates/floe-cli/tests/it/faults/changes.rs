//! A cache in which a path is rebuilt between the responses for its narinfo and its NAR.

use std::fs;

use floe_format::{Hash, StoreDir, StorePath};

use crate::faulty::{Faulty, assert_holds_exactly, faulty};
use crate::server::{Fault, Server};
use crate::support::{floe, run};

/// A cache in which a path was rebuilt with another NAR, and the path's previous narinfo.
struct Rebuilt {
    cache: Faulty,
    path: StorePath,
    before: String,
    server: Server,
}

/// Replaces the NAR, under a new file name or under the old one.
fn rebuilt(has_own_name: bool) -> Option<Rebuilt> {
    let cache = faulty("zstd")?;
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
        server: Server::start(&cache.cache),
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
    fn tell_the_old_first(&self) -> Fault {
        let fault = Fault::Other(self.before.clone().into_bytes());
        self.server.fail_times(&self.narinfo(), fault.clone(), 1);
        fault
    }
}

#[test]
fn the_narinfo_is_asked_for_afresh_and_the_new_nar_is_taken() {
    for has_own_name in [true, false] {
        let Some(rebuilt) = rebuilt(has_own_name) else {
            return;
        };
        let Rebuilt { cache, server, .. } = &rebuilt;
        let fault = rebuilt.tell_the_old_first();
        let ran = cache.install(&server.url()).expect(0);
        ran.says("retrying").says(rebuilt.path.as_str());
        let hits = server.hits_on(&rebuilt.narinfo());
        let faults: Vec<_> = hits.into_iter().map(|hit| hit.fault).collect();
        assert_eq!(faults, [Some(fault), None], "{has_own_name}");
        assert_holds_exactly(&cache.root, &cache.without(&[]));

        let from = cache.root.display().to_string();
        let info = run(&mut floe(["info", "--from", &from, rebuilt.path.as_str()])).expect(0);
        let new = cache.narinfo(&rebuilt.path).info.nar_hash.to_nix32();
        assert!(info.stdout.contains(&new), "{}", info.stdout);

        // A second install has nothing to fetch.
        let before = server.hits().len();
        cache.install(&server.url()).expect(0);
        assert_eq!(super::nars_since(server, before), [""; 0]);
    }
}

#[test]
fn a_new_narinfo_that_nobody_trusted_has_signed_helps_nobody() {
    let Some(rebuilt) = rebuilt(true) else { return };
    let Rebuilt { cache, server, .. } = &rebuilt;
    cache.edit(&rebuilt.path, |narinfo| narinfo.info.signatures.clear());
    rebuilt.tell_the_old_first();
    let says = ["the server does not have it", rebuilt.path.as_str()];
    cache.refuses(&server.url(), &[&rebuilt.path], 4, &says);
    assert_eq!(server.hits_on(&rebuilt.narinfo()).len(), 2);
    assert_eq!(server.hits_on("rebuilt.nar.zst").len(), 0);
}

#[test]
fn a_new_narinfo_with_other_references_needs_another_run() {
    let Some(rebuilt) = rebuilt(true) else { return };
    let Rebuilt { cache, server, .. } = &rebuilt;
    let more = cache.path("gcc-12-base");
    cache.edit_signed(&rebuilt.path, |narinfo| {
        assert!(
            narinfo.info.references.insert(more),
            "the reference was there before"
        );
    });
    rebuilt.tell_the_old_first();
    let kept = cache.without(&[&rebuilt.path]);
    cache.install(&server.url()).expect(4);
    cache.assert_holds(&kept);
    let json = cache.install(&server.url()).expect(0).json();
    assert_eq!(json["alreadyValid"], kept.len());
    assert_holds_exactly(&cache.root, &cache.without(&[]));
}
