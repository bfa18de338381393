//! Realisations: both generations of tables, conflicts, and paths that vanish.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{DrvKey, DrvOutput, Hash, Realisation, Signature, StorePath};
use floe_store::{RealisationRefusal, StoreError, StoreReader, StoreWriter};
use rusqlite::Connection;

use crate::support::{Scratch, path, stage};

fn by_hash(digit: u8, output: &str) -> DrvOutput {
    DrvOutput::new(DrvKey::Hash(Hash::sha256([digit; 32])), output).unwrap()
}

fn by_path(output: &str) -> DrvOutput {
    DrvOutput::new(DrvKey::Path(path('9', "a.drv")), output).unwrap()
}

fn realisation(id: DrvOutput, out_path: &StorePath) -> Realisation {
    Realisation {
        id,
        out_path: out_path.clone(),
        signatures: BTreeSet::new(),
        dependent_realisations: BTreeMap::new(),
    }
}

fn signature(name: &str) -> Signature {
    Signature::parse(&format!("{name}:AQID")).unwrap()
}

/// A store with two valid paths.
fn store(scratch: &Scratch) -> (StoreWriter, StorePath, StorePath) {
    let writer = scratch.writer();
    let (a, b) = (path('1', "a"), path('2', "b"));
    let batch = vec![stage(&writer, &a, &[]), stage(&writer, &b, &[])];
    writer.register(batch).unwrap();
    (writer, a, b)
}

fn query(scratch: &Scratch, id: &DrvOutput) -> Option<Realisation> {
    let reader = StoreReader::open(scratch.layout()).unwrap();
    reader.realisation(id).unwrap()
}

#[test]
fn realisations_read_back_with_dependencies() {
    let scratch = Scratch::new();
    let (writer, a, b) = store(&scratch);
    assert_eq!(query(&scratch, &by_hash(1, "out")), None);
    assert_eq!(query(&scratch, &by_path("out")), None);
    let dependency = realisation(by_hash(1, "out"), &a);
    let mut one = realisation(by_hash(2, "doc"), &b);
    one.signatures = [signature("k-1"), signature("k-2")].into();
    one.dependent_realisations.insert(by_hash(1, "out"), a);
    let newer = realisation(by_path("out"), &b);
    let all = [dependency, one, newer];
    writer.register_realisations(&all).unwrap();
    for realisation in all {
        assert_eq!(query(&scratch, &realisation.id), Some(realisation));
    }
    assert_eq!(query(&scratch, &by_hash(2, "out")), None);
    assert_eq!(query(&scratch, &by_path("doc")), None);
}

#[test]
fn signatures_of_one_output_are_merged() {
    for id in [by_hash(1, "out"), by_path("out")] {
        let scratch = Scratch::new();
        let (writer, a, _) = store(&scratch);
        for name in ["k-1", "k-2", "k-1"] {
            let mut one = realisation(id.clone(), &a);
            one.signatures.insert(signature(name));
            writer.register_realisations(&[one]).unwrap();
        }
        let found = query(&scratch, &id).unwrap();
        assert_eq!(
            found.signatures,
            [signature("k-1"), signature("k-2")].into()
        );
    }
}

#[test]
fn other_path_for_an_output_is_refused() {
    for id in [by_hash(1, "out"), by_path("out")] {
        let scratch = Scratch::new();
        let (writer, a, b) = store(&scratch);
        let one = realisation(id.clone(), &a);
        writer
            .register_realisations(std::slice::from_ref(&one))
            .unwrap();
        let further = realisation(by_hash(7, "out"), &b);
        let refused = writer.register_realisations(&[further, realisation(id.clone(), &b)]);
        assert!(matches!(
            refused,
            Err(StoreError::Realisation(refusal))
                if matches!(&*refusal, RealisationRefusal::Conflict { known, new, .. }
                    if *known == a && *new == b)
        ));
        assert_eq!(query(&scratch, &id), Some(one));
        // Nothing of the refused batch stays.
        assert_eq!(query(&scratch, &by_hash(7, "out")), None);
    }
}

#[test]
fn output_without_valid_path_is_refused() {
    let scratch = Scratch::new();
    let (writer, a, _) = store(&scratch);
    let is_refused = |realisation: Realisation| {
        let refused = writer.register_realisations(&[realisation]);
        matches!(
            refused,
            Err(StoreError::Realisation(refusal))
                if matches!(*refusal, RealisationRefusal::NotValid { .. })
        )
    };
    assert!(is_refused(realisation(by_hash(1, "out"), &path('3', "c"))));
    assert!(is_refused(realisation(by_path("out"), &path('3', "c"))));
    let mut one = realisation(by_hash(2, "out"), &a);
    one.dependent_realisations
        .insert(by_hash(1, "out"), a.clone());
    assert!(is_refused(one));
    assert_eq!(query(&scratch, &by_hash(2, "out")), None);
}

#[test]
fn realisation_by_hash_vanishes_with_its_path() {
    let scratch = Scratch::new();
    let (writer, a, b) = store(&scratch);
    let mut one = realisation(by_hash(2, "out"), &b);
    one.dependent_realisations
        .insert(by_hash(1, "out"), a.clone());
    let rows = [
        realisation(by_hash(1, "out"), &a),
        one,
        realisation(by_path("out"), &a),
    ];
    writer.register_realisations(&rows).unwrap();
    let file = scratch.layout().state_dir.join("db/db.sqlite");
    let nix = Connection::open(file).unwrap();
    let delete =
        format!("pragma foreign_keys = 1; delete from ValidPaths where path = '/nix/store/{a}'");
    nix.execute_batch(&delete).unwrap();
    assert_eq!(query(&scratch, &by_hash(1, "out")), None);
    let left = query(&scratch, &by_hash(2, "out")).unwrap();
    assert!(left.dependent_realisations.is_empty());
    assert!(query(&scratch, &by_path("out")).is_some());
}
