//! The deletion of narinfos that cannot be used.

use super::*;

fn part(name: &str) -> HashPart {
    path(name).hash_part()
}

/// Deletes the narinfos of some paths, of which `still` cannot be used after the wait.
fn delete_unusable(
    storage: &MemoryStorage,
    names: &[&str],
    still: &[&str],
    on_event: &dyn Fn(&CollectionEvent<'_>),
) -> Vec<HashPart> {
    let cache = open(storage);
    let collection = CacheCollection {
        cache: &cache,
        options: &CollectionOptions::default(),
        cancel: &Cancel::default(),
        events: &|event| on_event(&event),
    };
    let paths = names.iter().map(|name| part(name)).collect();
    let still = still.iter().map(|name| part(name)).collect();
    let deleted = collection.delete_unusable(&paths, || {
        assert!(plan(storage).is_some(), "no plan is announced");
        Ok(still)
    });
    deleted.unwrap().into_iter().collect()
}

#[test]
fn unusable_paths_go_although_others_need_them() {
    let storage = old_cache();
    storage.insert(&object("b").replace("narinfo", "ls"), b"{}");
    let deleted = delete_unusable(&storage, &["b"], &["b", "c"], &|_| {});
    assert_eq!(deleted, [part("b")], "c was not announced");
    assert_eq!(narinfos(&storage), ["a", "c", "d"]);
    let names = storage.names();
    assert!(
        names.contains(&"nar/b.nar".into()),
        "the NAR is left to a collection"
    );
    assert!(!names.iter().any(|name| name.ends_with(".ls")), "{names:?}");
    assert_eq!((plan(&storage), leases(&storage)), (None, vec![]));
}

#[test]
fn replaced_path_stays() {
    let storage = old_cache();
    let deleted = delete_unusable(&storage, &["b", "d"], &["d"], &|_| {});
    assert_eq!(deleted, [part("d")]);
    assert_eq!(narinfos(&storage), ["a", "b", "c"]);
}

#[test]
fn path_that_a_writer_needs_stays() {
    let storage = old_cache();
    let writer = open(&storage);
    writer
        .add_temp_roots_and_query_missing(&[path("b")])
        .unwrap();
    let deleted = delete_unusable(&storage, &["b", "d"], &["b", "d"], &|_| {});
    assert_eq!(deleted, [part("d")]);
    drop(writer);
    let deleted = delete_unusable(&storage, &["b"], &["b"], &|_| {});
    assert_eq!(deleted, [part("b")]);
}

#[test]
fn deleted_path_of_a_pin_is_reported() {
    let storage = old_cache();
    let pins = std::cell::RefCell::new(Vec::new());
    delete_unusable(&storage, &["a"], &["a"], &|event| {
        if let CollectionEvent::IncompletePin { pin, .. } = event {
            pins.borrow_mut().push((*pin).to_owned());
        }
    });
    assert_eq!(pins.into_inner(), ["web"]);
    assert_eq!(narinfos(&storage), ["b", "c", "d"]);
}
