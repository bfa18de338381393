//! Tests of collections beside writers, with a storage in memory.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use floe_cache::{BinaryCacheWriter, CacheWriteOptions};
use floe_format::StoreDir;
use floe_format::lease::{Lease, Plan};
use floe_testkit::MemoryStorage;
use floe_transfer::{NamedObjects, Target};

use super::*;

mod odd_caches;
mod unusable;

const HOUR: Duration = Duration::from_secs(3600);

fn path(name: &str) -> StorePath {
    StorePath::parse(&format!("{}-{name}", name.repeat(32))).unwrap()
}

/// Adds a path, whose name has one letter, with its references. Its NAR has the name of `nar`.
fn add(storage: &MemoryStorage, name: &str, references: &[&str], nar: &str) {
    let references = references.iter().map(|it| path(it).to_string());
    let references = references.collect::<Vec<_>>().join(" ");
    let text = format!(
        "StorePath: /nix/store/{}\nURL: nar/{nar}\nCompression: none\nFileSize: 3\n\
         NarHash: sha256:0yzcdk0y0mjhn0szq6j5mhi5knxxmdylyyhf0h2mxbqvdjzwa5rj\n\
         NarSize: 1000\nReferences: {references}\n",
        path(name)
    );
    storage.insert(&format!("nar/{nar}"), b"NAR");
    storage.insert(&object(name), text.as_bytes());
}

fn object(name: &str) -> String {
    format!("{}.narinfo", path(name).hash_part())
}

fn pin(storage: &MemoryStorage, name: &str) {
    let text = format!(
        "FloePin: 1\nName: web\nStorePath: /nix/store/{}\nCacheId: {}\nSerial: 1\nTime: 1\n",
        path(name),
        "0".repeat(32)
    );
    storage.insert("pins/web", text.as_bytes());
}

/// Makes a cache that is older than an hour: `a` needs `b` and is pinned, `c` needs `b` and `d`.
fn old_cache() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.insert("nix-cache-info", b"StoreDir: /nix/store\n");
    add(&storage, "b", &[], "b.nar");
    add(&storage, "a", &["b", "a"], "a.nar");
    add(&storage, "d", &[], "d.nar");
    add(&storage, "c", &["b", "d"], "c.nar");
    storage.insert("nar/unused.nar", b"NAR");
    pin(&storage, "a");
    storage.advance_clock(2 * HOUR);
    storage
}

fn open(storage: &MemoryStorage) -> BinaryCacheWriter {
    let options = CacheWriteOptions {
        lease_lifetime: 3,
        ..CacheWriteOptions::default()
    };
    let storage = Arc::new(storage.clone());
    BinaryCacheWriter::open(storage, &options, StoreDir::default(), &Cancel::default()).unwrap()
}

fn options() -> CollectionOptions {
    CollectionOptions {
        keep_newer: Duration::ZERO,
        keep_generations: NonZeroUsize::MIN,
        grace: Duration::from_millis(300),
    }
}

/// Collects a cache. Calls `on_event` at each event.
fn collect(
    storage: &MemoryStorage,
    on_event: &dyn Fn(&CollectionEvent<'_>),
) -> Result<CollectionReport, Error> {
    let cache = open(storage);
    let collection = CacheCollection {
        cache: &cache,
        options: &options(),
        cancel: &Cancel::default(),
        events: &|event| on_event(&event),
    };
    collection.run(collection.mark()?)
}

fn narinfos(storage: &MemoryStorage) -> Vec<String> {
    let names = ["a", "b", "c", "d", "g"];
    let all = storage.names();
    let there = names.iter().filter(|name| all.contains(&object(name)));
    there.map(ToString::to_string).collect()
}

fn plan(storage: &MemoryStorage) -> Option<Plan> {
    let found = storage.get_large("gc/plan", usize::MAX, &Cancel::default());
    Some(Plan::parse(&found.unwrap()?.contents).unwrap())
}

fn leases(storage: &MemoryStorage) -> Vec<Lease> {
    let names = storage.names().into_iter();
    let names = names.filter(|name| name.starts_with("leases/"));
    let objects = names.filter_map(|name| {
        let found = storage.get_large(&name, usize::MAX, &Cancel::default());
        found.unwrap()
    });
    objects
        .map(|it| Lease::parse(&it.contents).unwrap())
        .collect()
}

#[test]
fn collection_keeps_pins_and_deletes_the_rest() {
    let storage = old_cache();
    storage.insert(&object("c").replace("narinfo", "ls"), b"{}");
    storage.advance_clock(HOUR);
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!(report.paths, [path("c"), path("d")]);
    assert_eq!((report.files, report.file_bytes), (3, 9));
    let left = [
        &object("a"),
        &object("b"),
        "nar/a.nar",
        "nar/b.nar",
        "nix-cache-info",
        "pins/web",
    ];
    assert_eq!(storage.names(), left);
    let again = collect(&storage, &|_| {}).unwrap();
    assert_eq!(again, CollectionReport::default());
}

#[test]
fn recent_objects_stay() {
    let storage = old_cache();
    add(&storage, "g", &["d"], "g.nar");
    storage.insert("nar/uploaded.nar", b"NAR");
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!(report.paths, [path("c")]);
    assert_eq!(narinfos(&storage), ["a", "b", "d", "g"]);
    assert!(storage.names().contains(&"nar/uploaded.nar".into()));
}

#[test]
fn shared_and_unreadable_files_stay() {
    let storage = old_cache();
    add(&storage, "c", &[], "a.nar");
    storage.insert(
        "00000000000000000000000000000000.narinfo",
        b"URL: nar/unused.nar\nx",
    );
    storage.advance_clock(2 * HOUR);
    let unusable = std::cell::RefCell::new(Vec::new());
    collect(&storage, &|event| {
        if let CollectionEvent::UnusableNarInfo { name, .. } = event {
            unusable.borrow_mut().push((*name).to_owned());
        }
    })
    .unwrap();
    assert_eq!(
        unusable.into_inner(),
        ["00000000000000000000000000000000.narinfo"]
    );
    assert_eq!(narinfos(&storage), ["a", "b"]);
    let names = storage.names();
    assert!(names.contains(&"nar/a.nar".into()));
    assert!(names.contains(&"nar/unused.nar".into()));
    assert!(!names.contains(&"nar/d.nar".into()));
}

#[test]
fn incomplete_pin_is_reported_and_its_other_paths_stay() {
    let storage = old_cache();
    add(&storage, "a", &["g", "b"], "a.nar");
    storage.advance_clock(2 * HOUR);
    let incomplete = std::cell::RefCell::new(Vec::new());
    collect(&storage, &|event| {
        if let CollectionEvent::IncompletePin { pin, missing } = event {
            incomplete.borrow_mut().push(format!("{pin} {missing}"));
        }
    })
    .unwrap();
    assert_eq!(incomplete.into_inner(), [format!("web {}", "g".repeat(32))]);
    assert_eq!(narinfos(&storage), ["a", "b"]);
}

#[test]
fn damaged_pin_stops_the_collection() {
    let storage = old_cache();
    storage.insert("pins/web", b"FloePin: 1\n");
    let error = collect(&storage, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("pins/web"), "{error}");
    assert_eq!(narinfos(&storage), ["a", "b", "c", "d"]);
}

#[test]
fn writer_that_runs_keeps_what_it_needs() {
    let storage = old_cache();
    let writer = open(&storage);
    let missing = writer
        .add_temp_roots_and_query_missing(&[path("c")])
        .unwrap();
    assert!(missing.paths.is_empty());
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!((&*report.paths, report.kept_for_pushes), (&[][..], 2));
    assert_eq!(narinfos(&storage), ["a", "b", "c", "d"]);
    drop(writer);
    assert_eq!(leases(&storage), []);
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!(report.paths, [path("c"), path("d")]);
}

/// The moments at which a collection meets something else.
#[derive(Clone, Copy, PartialEq)]
enum Moment {
    /// While it waits for the grace period.
    Grace,
    /// After the grace period, before it looks again.
    Settling,
    /// Before the first deletion.
    Deletion,
}

/// Collects a cache, and calls `act` in another thread at a moment of the collection.
fn collect_beside<T: Send>(
    storage: &MemoryStorage,
    moment: Moment,
    act: impl FnOnce() -> T + Send,
) -> (CollectionReport, T) {
    let (started, start) = channel::<()>();
    thread::scope(|scope| {
        let acted = scope.spawn(move || {
            start.recv().unwrap();
            act()
        });
        let waits = std::cell::Cell::new(0);
        let started: Sender<()> = started;
        let report = collect(storage, &|event| {
            let now = match event {
                CollectionEvent::Waiting { .. } if waits.replace(1) == 0 => Moment::Grace,
                CollectionEvent::Waiting { .. } => Moment::Settling,
                CollectionEvent::Deleting { .. } => Moment::Deletion,
                _ => return,
            };
            if now == moment {
                started.send(()).unwrap();
                if now == Moment::Deletion {
                    // The other thread has this time to see the plan.
                    thread::sleep(Duration::from_millis(700));
                }
            }
        });
        (report.unwrap(), acted.join().unwrap())
    })
}

#[test]
fn writer_that_begins_during_the_wait_keeps_what_it_needs() {
    let storage = old_cache();
    let (report, missing) = collect_beside(&storage, Moment::Grace, || {
        assert!(plan(&storage).is_some_and(|plan| plan.state == PlanState::Waiting));
        let writer = open(&storage);
        let found = writer
            .add_temp_roots_and_query_missing(&[path("d")])
            .unwrap();
        // The lease names the path at once.
        assert_eq!(leases(&storage)[0].needs, ["d".repeat(12)].into());
        // The writer stays until the collection looks at the leases.
        thread::sleep(Duration::from_millis(900));
        (found.paths, narinfos(&storage))
    });
    assert_eq!(missing.0, []);
    assert_eq!(
        missing.1,
        ["a", "b", "d"],
        "the collection has not deleted while it waited"
    );
    assert_eq!(report.paths, [path("c")]);
}

#[test]
fn writer_that_begins_during_the_deletion_waits_for_its_end() {
    let storage = old_cache();
    let (report, missing) = collect_beside(&storage, Moment::Deletion, || {
        assert!(plan(&storage).is_some_and(|plan| plan.state == PlanState::Deleting));
        let writer = open(&storage);
        // It does not need to wait for a path that stays.
        let found = writer
            .add_temp_roots_and_query_missing(&[path("b")])
            .unwrap();
        assert_eq!(found.paths, []);
        assert!(plan(&storage).is_some());
        let found = writer
            .add_temp_roots_and_query_missing(&[path("d")])
            .unwrap();
        assert_eq!(plan(&storage), None);
        found.paths
    });
    assert_eq!(missing, [path("d")]);
    assert_eq!(report.paths, [path("c"), path("d")]);
}

#[test]
fn writer_keeps_what_it_needs_before_the_second_look() {
    let storage = old_cache();
    let (report, missing) = collect_beside(&storage, Moment::Settling, || {
        let writer = open(&storage);
        let found = writer
            .add_temp_roots_and_query_missing(&[path("d")])
            .unwrap();
        assert_eq!(plan(&storage), None);
        found.paths
    });
    assert_eq!(missing, []);
    assert_eq!(report.paths, [path("c")]);
}

#[test]
fn new_paths_and_pins_keep_their_closures() {
    let storage = old_cache();
    let (report, ()) = collect_beside(&storage, Moment::Grace, || {
        // A writer without a lease, such as Nix.
        add(&storage, "g", &["d"], "g.nar");
    });
    assert_eq!(report.paths, [path("c")]);
    assert_eq!(narinfos(&storage), ["a", "b", "d", "g"]);
    let storage = old_cache();
    let (report, ()) = collect_beside(&storage, Moment::Grace, || pin(&storage, "c"));
    assert_eq!((&*report.paths, report.kept_for_pushes), (&[][..], 2));
}

#[test]
fn lease_of_a_killed_writer_expires() {
    let storage = old_cache();
    let killed = Lease {
        lifetime: 3,
        plan: None,
        needs: BTreeSet::new(),
    };
    storage.insert(
        &format!("leases/{}", "f".repeat(32)),
        killed.to_string().as_bytes(),
    );
    let waited = std::cell::Cell::new(0);
    let report = collect(&storage, &|event| {
        if let CollectionEvent::WaitingForPushes { pushes } = event {
            waited.set(*pushes);
            storage.advance_clock(HOUR);
        }
    });
    assert_eq!(report.unwrap().paths, [path("c"), path("d")]);
    assert_eq!((waited.get(), leases(&storage)), (1, vec![]));
}

#[test]
fn second_collection_is_refused_until_the_plan_expires() {
    let storage = old_cache();
    let killed = Plan {
        id: "0".repeat(32),
        state: PlanState::Deleting,
        lifetime: 3,
    };
    storage.insert("gc/plan", killed.to_string().as_bytes());
    storage.insert(&killed.names_object(), b"FloePlannedNames: 1\n");
    let error = collect(&storage, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("another collection"), "{error}");
    assert_eq!(narinfos(&storage), ["a", "b", "c", "d"]);
    assert_eq!(plan(&storage), Some(killed), "the plan of the other stays");
    storage.advance_clock(48 * HOUR);
    let report = collect(&storage, &|_| {}).unwrap();
    assert_eq!(report.paths, [path("c"), path("d")]);
    assert!(!storage.names().iter().any(|name| name.starts_with("gc/")));
}

#[test]
fn collection_whose_plan_is_replaced_deletes_nothing() {
    let storage = old_cache();
    let other = Plan {
        id: "f".repeat(32),
        state: PlanState::Waiting,
        lifetime: 3,
    };
    let result = collect(&storage, &|event| {
        if let CollectionEvent::Waiting { .. } = event {
            storage.insert("gc/plan", other.to_string().as_bytes());
        }
    });
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("another collection")
    );
    assert_eq!(narinfos(&storage), ["a", "b", "c", "d"]);
    assert_eq!(plan(&storage), Some(other), "the plan of the other stays");
}

#[test]
fn waves_delete_referrers_first() {
    let storage = MemoryStorage::default();
    storage.insert("nix-cache-info", b"StoreDir: /nix/store\n");
    add(&storage, "a", &["b", "c", "a"], "a.nar");
    add(&storage, "b", &["c"], "b.nar");
    add(&storage, "c", &[], "c.nar");
    add(&storage, "d", &["f"], "d.nar");
    add(&storage, "f", &["d"], "f.nar");
    let cache = open(&storage);
    let mut graph = graph::CacheGraph::default();
    let names = cache.names(&Cancel::default()).unwrap();
    graph
        .update(&cache, &names.narinfos, &Cancel::default())
        .unwrap();
    let all = graph.nodes.keys().copied().collect();
    let waves = graph.referrers_first(&all);
    let names = waves.iter().map(|wave| {
        let names: BTreeSet<String> = wave.iter().map(|it| it.as_str()[..1].to_owned()).collect();
        names.into_iter().collect::<String>()
    });
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c", "df"]);
}
