//! Tests of collections of caches with damaged and foreign objects.

use super::*;

#[test]
fn needed_narinfo_that_cannot_be_used_stops_the_collection() {
    for damaged in ["a", "b"] {
        let storage = old_cache();
        storage.insert(&object(damaged), b"");
        storage.advance_clock(2 * HOUR);
        let error = collect(&storage, &|_| {}).unwrap_err().to_string();
        assert!(error.contains(&object(damaged)), "{error}");
        assert!(error.contains("push --check"), "{error}");
        assert_eq!(narinfos(&storage), ["a", "b", "c", "d"]);
    }
}

#[test]
fn file_stays_however_its_narinfo_spells_it() {
    for url in [
        "./nar/a.nar",
        "nar//a.nar",
        "file:///srv/nar/a.nar",
        "nar/%61.nar",
    ] {
        let storage = old_cache();
        let text = storage.get_large(&object("a"), usize::MAX, &Cancel::default());
        let text = String::from_utf8(text.unwrap().unwrap().contents).unwrap();
        let text = text.replace("nar/a.nar", url);
        storage.insert(&object("a"), text.as_bytes());
        storage.advance_clock(2 * HOUR);
        collect(&storage, &|_| {}).unwrap();
        assert!(storage.names().contains(&"nar/a.nar".into()), "{url}");
        assert!(!storage.names().contains(&"nar/c.nar".into()), "{url}");
    }
}

#[test]
fn names_that_no_plan_can_hold_stay() {
    let storage = old_cache();
    storage.insert("nar/x\u{1}y", b"NAR");
    storage.advance_clock(2 * HOUR);
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!(report.paths, [path("c"), path("d")]);
    assert!(storage.names().contains(&"nar/x\u{1}y".into()));
}

#[test]
fn damaged_leases_and_plans_count_for_a_day() {
    for name in ["gc/plan", "leases/0123456789abcdef0123456789abcdef"] {
        let storage = old_cache();
        storage.insert(name, b"");
        storage.insert("leases/README", b"of another program");
        let error = collect(&storage, &|_| {}).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        storage.advance_clock(25 * HOUR);
        let report = collect(&storage, &|_| {}).unwrap();
        assert_eq!(report.paths, [path("c"), path("d")]);
        assert!(!storage.names().contains(&name.into()));
    }
}

#[test]
fn realisations_and_links_go_with_what_they_name() {
    let storage = old_cache();
    let realisation = |name: &str| format!("{{\"outPath\": \"{}\"}}", path(name));
    for name in ["a", "c", "g"] {
        let object = format!("realisations/{name}.doi");
        storage.insert(&object, realisation(name).as_bytes());
        let link = format!("{{\"archive\": \"../nar/{name}.nar\", \"member\": \"x\"}}");
        storage.insert(&format!("debuginfo/{name}.debug"), link.as_bytes());
    }
    storage.advance_clock(2 * HOUR);
    collect(&storage, &|event| {
        if let CollectionEvent::Deleting { .. } = event {
            storage.insert("realisations/new.doi", realisation("g").as_bytes());
        }
    })
    .unwrap();
    let left = storage.names().into_iter();
    let left = left.filter(|name| name.starts_with("realis") || name.starts_with("debug"));
    let left: Vec<String> = left.collect();
    assert_eq!(
        left,
        [
            "debuginfo/a.debug",
            "realisations/a.doi",
            "realisations/new.doi"
        ]
    );
}
