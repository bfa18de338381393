//! The leases of writers of binary caches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floe_cache::{BinaryCacheWriter, CacheWriteOptions};
use floe_format::lease::{LEASES_FOLDER, Lease, Plan, PlanState, PlannedNames};
use floe_format::{HashPart, StoreDir};
use floe_testkit::{MemoryStorage, wait_until};
use floe_transfer::{CacheInventory as _, Cancel, Error, Expected, NamedObjects, Target as _};

/// A cache that exists.
fn cache() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.insert("nix-cache-info", b"StoreDir: /nix/store\n");
    storage
}

fn open(storage: &MemoryStorage, lease_lifetime: u32) -> BinaryCacheWriter {
    let options = CacheWriteOptions {
        lease_lifetime,
        ..CacheWriteOptions::default()
    };
    let storage = Arc::new(storage.clone());
    BinaryCacheWriter::open(storage, &options, StoreDir::default(), &Cancel::default()).unwrap()
}

/// Keeps the paths whose hash parts repeat some letters.
fn keep(writer: &BinaryCacheWriter, letters: &str) -> Result<(), Error> {
    let parts = letters.chars().map(|letter| letter.to_string().repeat(32));
    let parts: Vec<_> = parts.map(|it| HashPart::parse(&it).unwrap()).collect();
    writer.keep(&parts)
}

fn keys(letters: &str) -> BTreeSet<String> {
    let keys = letters.chars().map(|letter| letter.to_string().repeat(12));
    keys.collect()
}

fn leases(storage: &MemoryStorage) -> Vec<Lease> {
    let names = storage.names().into_iter();
    let names = names.filter(|name| name.starts_with(LEASES_FOLDER));
    let objects = names.filter_map(|name| {
        let found = storage.get_large(&name, usize::MAX, &Cancel::default());
        found.unwrap()
    });
    objects
        .map(|found| Lease::parse(&found.contents).unwrap())
        .collect()
}

fn announce(storage: &MemoryStorage, id: &str, state: PlanState, letters: &str) {
    let plan = Plan {
        id: id.repeat(32),
        state,
        lifetime: 900,
    };
    let names = PlannedNames(keys(letters)).to_string();
    storage.insert(&plan.names_object(), names.as_bytes());
    storage.insert("gc/plan", plan.to_string().as_bytes());
}

#[test]
fn lease_lasts_from_the_first_need_to_the_end() {
    let storage = cache();
    let writer = open(&storage, 900);
    assert_eq!(leases(&storage), []);
    keep(&writer, "a").unwrap();
    let lease = Lease {
        lifetime: 900,
        plan: None,
        needs: BTreeSet::new(),
    };
    assert_eq!(leases(&storage), [lease]);
    drop(writer);
    assert_eq!(storage.names(), ["nix-cache-info"]);
}

#[test]
fn new_cache_gets_the_lease_with_its_first_object() {
    let storage = MemoryStorage::default();
    let writer = open(&storage, 900);
    keep(&writer, "a").unwrap();
    assert_eq!(leases(&storage), []);
    announce(&storage, "1", PlanState::Waiting, "a");
    writer.prepare().unwrap();
    assert_eq!(leases(&storage)[0].needs, keys("a"));
}

#[test]
fn dry_run_has_no_lease() {
    let storage = cache();
    let options = CacheWriteOptions::default();
    let (shared, dir) = (Arc::new(storage.clone()), StoreDir::default());
    let writer = BinaryCacheWriter::open_read_only(shared, &options, dir, &Cancel::default());
    keep(&writer.unwrap(), "a").unwrap();
    assert_eq!(leases(&storage), []);
}

#[test]
fn lease_names_the_needed_objects_of_a_plan() {
    let storage = cache();
    announce(&storage, "1", PlanState::Waiting, "ab");
    let writer = open(&storage, 900);
    keep(&writer, "bc").unwrap();
    assert_eq!(leases(&storage)[0].plan, Some("1".repeat(32)));
    assert_eq!(leases(&storage)[0].needs, keys("b"));
    keep(&writer, "a").unwrap();
    assert_eq!(leases(&storage)[0].needs, keys("ab"));
}

#[test]
fn renewal_names_the_needed_objects_of_a_later_plan() {
    let storage = cache();
    let writer = open(&storage, 3);
    keep(&writer, "ab").unwrap();
    announce(&storage, "1", PlanState::Waiting, "a");
    wait_until("the name of the plan", || {
        leases(&storage)[0].plan.is_some()
    });
    assert_eq!(leases(&storage)[0].needs, keys("a"));
}

#[test]
fn writer_waits_for_the_end_of_a_deletion() {
    let storage = cache();
    announce(&storage, "1", PlanState::Deleting, "a");
    let writer = open(&storage, 900);
    keep(&writer, "b").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| keep(&writer, "a"));
        wait_until("the need in the lease", || {
            leases(&storage)[0].needs == keys("a")
        });
        assert!(!waiting.is_finished());
        // Another collection follows at once.
        announce(&storage, "2", PlanState::Waiting, "ab");
        waiting.join().unwrap().unwrap();
    });
    let lease = &leases(&storage)[0];
    assert_eq!(lease.plan, Some("2".repeat(32)));
    assert_eq!(lease.needs, keys("ab"));
}

#[test]
fn plan_of_a_killed_collection_does_not_count() {
    let storage = cache();
    announce(&storage, "1", PlanState::Deleting, "a");
    storage.advance_clock(Duration::from_secs(901));
    let writer = open(&storage, 900);
    keep(&writer, "a").unwrap();
    assert_eq!(leases(&storage)[0].plan, None);
}

#[test]
fn damaged_plan_is_an_error() {
    let storage = cache();
    storage.insert("gc/plan", b"FloePlan: 2\n");
    let error = keep(&open(&storage, 900), "a").unwrap_err().to_string();
    assert!(
        error.contains("gc/plan") && error.contains("newer floe"),
        "{error}"
    );
}

#[test]
fn plan_without_names_delays_a_writer_until_the_plan_is_gone() {
    let storage = cache();
    announce(&storage, "1", PlanState::Waiting, "a");
    let names = format!("gc/{}", "1".repeat(32));
    let delete = |name: &str| NamedObjects::delete(&storage, name, &Expected::Any).unwrap();
    delete(&names);
    let writer = open(&storage, 900);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| keep(&writer, "a"));
        wait_until("the lease", || leases(&storage).len() == 1);
        assert!(!waiting.is_finished());
        delete("gc/plan");
        waiting.join().unwrap().unwrap();
    });
    announce(&storage, "2", PlanState::Waiting, "a");
    delete(&format!("gc/{}", "2".repeat(32)));
    let cancel = Cancel::default();
    let (shared, options) = (Arc::new(storage.clone()), CacheWriteOptions::default());
    let writer = BinaryCacheWriter::open(shared, &options, StoreDir::default(), &cancel).unwrap();
    cancel.raise();
    let error = keep(&writer, "a").unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
}
