//! The realisations of Nix after 2.34, which name outputs by their resolved derivations. No such
//! Nix is here, so the test writes its rows beside those of Nix 2.34, whose resolved derivations
//! are the same.

use floe_format::{DrvOutput, PublicKey, Realisation, TrustedKeys};
use rusqlite::Connection;

use super::*;

/// Replaces the rows of the product and the tool by those that a later Nix would have written.
/// Returns the outputs.
fn make_newer(place: &Place<'_>) -> Vec<String> {
    let database = Connection::open(place.dir().join("var/nix/db/db.sqlite")).unwrap();
    database
        .execute_batch(
            "create table BuildTraceV3 (id integer primary key autoincrement not null, \
             drvPath text not null, outputName text not null, outputPath text not null, \
             signatures text)",
        )
        .unwrap();
    let mut rows = Vec::new();
    let text = "select path from ValidPaths where path like '%.drv'";
    let mut query = database.prepare(text).unwrap();
    let derivations = query.query_map((), |row| row.get(0)).unwrap();
    for derivation in derivations.collect::<Result<Vec<String>, _>>().unwrap() {
        let (base, name) = (derivation.rsplit('/').next().unwrap(), &derivation[..]);
        for (end, output, out) in [
            ("-tool.drv", "out", "%-tool"),
            ("-product.drv", "out", "%-product"),
            ("-product.drv", "doc", "%-product-doc"),
        ] {
            // The derivation that is not resolved has no row.
            if name.ends_with(end) && derivation != place.drv {
                let insert = "insert into BuildTraceV3 (drvPath, outputName, outputPath) \
                              select ?1, ?2, path from ValidPaths where path like ?3";
                assert_eq!(database.execute(insert, [base, output, out]).unwrap(), 1);
                rows.push(format!("{base}^{output}"));
            }
        }
    }
    let forget = "delete from RealisationsRefs; delete from Realisations";
    database.execute_batch(forget).unwrap();
    rows.sort();
    rows
}

/// Returns the outputs of the rows of the store.
fn rows(place: &Place<'_>) -> Vec<String> {
    let database = Connection::open(place.dir().join("var/nix/db/db.sqlite")).unwrap();
    let mut query = database
        .prepare("select drvPath || '^' || outputName from BuildTraceV3")
        .unwrap();
    let rows = query.query_map((), |row| row.get(0)).unwrap();
    let mut rows: Vec<String> = rows.collect::<Result<_, _>>().unwrap();
    rows.sort();
    rows
}

#[test]
fn resolved_outputs_go_to_a_cache_and_back_with_those_of_inputs() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let mut place = Place::with_product(nix);
        let outputs = make_newer(&place);
        assert_eq!(outputs.len(), 3, "{outputs:?}");
        let key = place.public_key.trim().to_owned();
        let keys = TrustedKeys::from_iter([PublicKey::parse(&key).unwrap()]);
        let signed = format!(
            "{}?secret-key={}",
            place.cache(),
            place.scratch.join("key").display()
        );
        let copied = run(&mut place.floe(&["copy", "--to", &signed, &place.outputs()])).expect(0);
        // The output of the tool is needed, and not requested.
        assert_eq!(copied.stdout.lines().count(), 2);
        for output in &outputs {
            let id = DrvOutput::parse(output).unwrap();
            let file = place.scratch.join("cache").join(id.object_name());
            let realisation = Realisation::parse(&id, &fs::read(file).unwrap()).unwrap();
            // The builder has not signed it, and the cache has a key.
            assert!(realisation.is_signed_by(&keys), "{output}");
        }
        place.begin_new_store();
        let (cache, wanted) = (place.cache(), place.outputs());
        let install = ["install", "--from", &cache, &wanted];
        run(&mut place.floe(&install))
            .expect(3)
            .stderr_contains("cannot trust");
        let trusted = ["--extra-trusted-public-keys", &key];
        run(&mut place.floe(&[&install[..], &trusted].concat())).expect(0);
        assert_eq!(rows(&place), outputs);
        let verify = ["--verify", "--check-contents"];
        run(&mut place.nix("nix-store", &verify, "")).expect(0);
    }
}

#[test]
fn server_with_a_key_signs_realisations() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let place = Place::with_product(nix);
        let outputs = make_newer(&place);
        let mut command = place.floe(&["serve", "--listen", "127.0.0.1:0", "--secret-key-file"]);
        let serve = ServerProcess::spawn(command.arg(place.scratch.join("key")));
        let key = PublicKey::parse(place.public_key.trim()).unwrap();
        for output in &outputs {
            let id = DrvOutput::parse(output).unwrap();
            let response = serve.get(&format!("/{}", id.object_name()));
            assert_eq!(response.status, 200, "{output}");
            let realisation = Realisation::parse(&id, &response.body).unwrap();
            let keys = TrustedKeys::from_iter([key.clone()]);
            assert!(realisation.is_signed_by(&keys), "{output}");
        }
    }
}
