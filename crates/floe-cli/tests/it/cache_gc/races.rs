//! Pushes, pins, collections and repairs of one cache at the same time, some of which are killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use floe_testkit::XorShift;
use parking_lot::Mutex;

use super::*;

/// The numbers of events in all races. They show that there were races.
#[derive(Default)]
struct Counts {
    kills: AtomicUsize,
    pushes: AtomicUsize,
    pins: AtomicUsize,
    deleted: AtomicUsize,
    kept_for_pushes: AtomicUsize,
    repaired: AtomicUsize,
}

impl Counts {
    fn add(&self, count: &AtomicUsize, number: usize) {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

/// Runs a command, and kills it once in `odds` times within a time in milliseconds. Returns the
/// output unless it was killed.
fn run_or_kill(
    command: &mut Command,
    (rng, odds, within): (&mut XorShift, usize, usize),
    counts: &Counts,
) -> Option<CommandOutput> {
    if rng.below(odds) != 0 {
        return Some(run(command));
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The moment of the kill is that of the seed.
    thread::sleep(Duration::from_millis(rng.below(within) as u64));
    signal(&child, Signal::KILL);
    if child.wait().unwrap().code().is_none() {
        counts.add(&counts.kills, 1);
    }
    None
}

/// Pushes and pins random paths of the corpus. Returns the last pin.
fn user(cache: &TeamCache, name: &str, seed: u64, counts: &Counts) -> Option<String> {
    let mut rng = XorShift(seed);
    let mut pinned = None;
    for _ in 0..10 {
        // The paths become older than the grace period.
        thread::sleep(Duration::from_millis(rng.below(2000) as u64));
        if rng.below(2) == 0 && pinned.take().is_some() {
            let mut unpin = floe(["unpin", name, "--to", &cache.uri]);
            run(&mut unpin).expect(0);
        }
        let path = &cache.corpus.paths[rng.below(cache.corpus.paths.len())];
        let pushed = run_or_kill(&mut cache.push(path), (&mut rng, 3, 40), counts);
        let Some(pushed) = pushed else { continue };
        // A machine that is slow enough lets a lease of three seconds expire.
        let has_expired = pushed.stderr.contains("a collection has deleted")
            || pushed.stderr.contains("expires again and again");
        assert!(pushed.code == Some(0) || has_expired, "{}", pushed.stderr);
        if pushed.code != Some(0) {
            continue;
        }
        counts.add(&counts.pushes, 1);
        let mut pin = cache.pin_command(name, path);
        pin.env("HOME", cache.scratch.join(name));
        let output = run(&mut pin);
        // A collection may delete a path between the push and the pin.
        let is_gone = output.stderr.contains("does not have it");
        assert!(output.code == Some(0) || is_gone, "{}", output.stderr);
        if output.code == Some(0) {
            counts.add(&counts.pins, 1);
            pinned = Some(path.clone());
        }
    }
    pinned
}

/// Collects the cache several times.
fn collector(cache: &TeamCache, seed: u64, counts: &Counts) {
    let mut rng = XorShift(seed);
    for _ in 0..4 {
        let mut gc = cache.gc(&["--grace", "1s", "--keep-since", "0s", "--json"]);
        let Some(output) = run_or_kill(&mut gc, (&mut rng, 3, 3000), counts) else {
            continue;
        };
        let is_refused = output.stderr.contains("another collection")
            || output.stderr.contains("could not be renewed in time");
        assert!(output.code == Some(0) || is_refused, "{}", output.stderr);
        if output.code == Some(0) {
            counts.add(&counts.deleted, deleted(&output).len());
            let kept = output.json()["keptForPushes"].as_u64().unwrap();
            counts.add(&counts.kept_for_pushes, kept.try_into().unwrap());
        }
    }
}

/// Repairs the cache from the store that has all paths.
fn repair(cache: &TeamCache) -> Command {
    let root = source_root(&cache.corpus);
    let mut repair = floe(["cache", "repair", "--json", "--delete", "--from", &root]);
    repair.args(["--no-check-sigs", &cache.uri]);
    repair.args(["--secret-key-file", &cache.secret_key]);
    repair
}

/// Deletes NARs of the cache, and repairs it.
fn repairer(cache: &TeamCache, seed: u64, counts: &Counts) {
    let mut rng = XorShift(seed);
    for _ in 0..4 {
        // The moment of the damage is that of the seed.
        thread::sleep(Duration::from_millis(rng.below(3000) as u64));
        let entries = fs::read_dir(cache.directory.join("nar")).unwrap();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut nars: Vec<String> = names.filter(|name| name.contains(".nar")).collect();
        nars.retain(|name| !name.starts_with('.'));
        nars.sort();
        if !nars.is_empty() {
            let nar = &nars[rng.below(nars.len())];
            // A collection may have deleted it meanwhile.
            let _: std::io::Result<()> = fs::remove_file(cache.directory.join("nar").join(nar));
        }
        let Some(output) = run_or_kill(&mut repair(cache), (&mut rng, 3, 300), counts) else {
            continue;
        };
        // Others delete and write narinfos meanwhile.
        assert!(
            [Some(0), Some(3)].contains(&output.code),
            "{}",
            output.stderr
        );
        let fetched = output.json()["fetched"].as_array().unwrap().len();
        counts.add(&counts.repaired, fetched);
    }
}

fn race(seed: u64, counts: &Counts) {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    let pins = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for number in 0..2 {
            let (cache, pins) = (&cache, &pins);
            scope.spawn(move || {
                let name = format!("user-{number}");
                if let Some(path) = user(cache, &name, seed * 10 + number, counts) {
                    pins.lock().insert(name, path);
                }
            });
        }
        scope.spawn(|| collector(&cache, seed * 10 + 7, counts));
        scope.spawn(|| repairer(&cache, seed * 10 + 8, counts));
    });
    let objects = |folder: &str| {
        let names = fs::read_dir(cache.directory.join(folder));
        names.map_or(0, Iterator::count)
    };
    // The leases and the plans of killed programs expire. Until then, a repair cannot delete the
    // path "other", which the store lacks.
    wait_until("a whole repair", || {
        let last = run(&mut repair(&cache));
        last.code == Some(0) || !last.stderr.contains("its plan expires")
    });
    run(&mut repair(&cache)).expect(0);
    wait_until("a whole collection", || {
        let last = run(&mut cache.gc(&["--grace", "0s", "--keep-since", "0s"]));
        last.code == Some(0) && objects("leases") + objects("gc") == 0
    });
    for (name, path) in &*pins.lock() {
        assert!(cache.has(path), "seed {seed}: {name} has lost {path}");
    }
    let verify = ["cache", "verify", "--contents", "--json", &cache.uri];
    let sound = run(&mut floe(verify));
    assert_eq!(sound.code, Some(0), "seed {seed}: {}", sound.stderr);
    let unused = sound.json()["unusedFiles"].as_array().unwrap().len();
    assert_eq!(unused, 0, "seed {seed}: {}", sound.stdout);
}

#[test]
fn no_pinned_path_is_lost_and_no_orphan_stays() {
    if corpus("jq").is_none() {
        return;
    }
    let races = match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 60,
        None => 12,
    };
    let (counts, next) = (Counts::default(), AtomicUsize::new(1));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > races {
                        return;
                    }
                    race(seed as u64, &counts);
                }
            });
        }
    });
    let Counts {
        kills,
        pushes,
        pins,
        deleted,
        kept_for_pushes,
        repaired,
    } = counts;
    let counts = [kills, pushes, pins, deleted, kept_for_pushes, repaired];
    let counts = counts.map(AtomicUsize::into_inner);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
