//! The order in which caches are queried, and how many queries one cache gets at once.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::faulty::assert_verified;
use crate::server::{Fault, Server};
use crate::support::{Corpus, Scratch, corpus, floe, run, scratch};

/// A closure of many paths, and a directory for modified copies of its cache.
struct World {
    corpus: Corpus,
    scratch: Scratch,
}

fn world() -> Option<World> {
    let corpus = corpus("curl")?;
    let scratch = scratch();
    Some(World { corpus, scratch })
}

/// Serves the same paths with this additional nix-cache-info.
fn saying(world: &World, name: &str, info: &str) -> Server {
    let copy = world.corpus.cache_copy("zstd", &world.scratch.join(name));
    fs::write(
        copy.join("nix-cache-info"),
        format!("StoreDir: /nix/store\n{info}\n"),
    )
    .unwrap();
    Server::start(&copy)
}

/// Installs from the substituters that nix.conf names.
fn install(world: &World, substituters: &str, name: &str) {
    let root = world.scratch.join(name);
    let mut command = floe([
        "install",
        "--trusted-public-keys",
        &world.corpus.key,
        "--root",
    ]);
    command.arg(&root).arg(&world.corpus.root);
    run(command.env("NIX_CONFIG", format!("substituters = {substituters}"))).expect(0);
    assert_verified(&root, world.corpus.paths.len());
}

#[test]
fn the_configured_cache_with_the_smallest_number_is_asked_and_the_others_are_not() {
    let Some(world) = world() else { return };
    let later = saying(&world, "later", "Priority: 50");
    let sooner = saying(&world, "sooner", "Priority: 10");
    let paths = world.corpus.paths.len();
    let questions = |server: &Server| server.hits_on(".narinfo").len();
    install(
        &world,
        &format!("{} {}", later.url(), sooner.url()),
        "by-their-word",
    );
    assert_eq!((questions(&later), questions(&sooner)), (0, paths));
    // `?priority=` of the user overrides the priority of the cache.
    let here = format!("{} {}?priority=60", later.url(), sooner.url());
    install(&world, &here, "by-the-user");
    assert_eq!((questions(&later), questions(&sooner)), (paths, paths));
    // Caches of equal priority are queried in the listed order.
    let alike = format!("{0} {1}?priority=50", later.url(), sooner.url());
    install(&world, &alike, "by-place");
    assert_eq!((questions(&later), questions(&sooner)), (2 * paths, paths));
}

#[test]
fn who_does_not_say_is_asked_first_and_this_machine_is_no_better_than_others() {
    let Some(world) = world() else { return };
    let silent = saying(&world, "silent", "");
    let ten = saying(&world, "ten", "Priority: 10");
    let paths = world.corpus.paths.len();
    let questions = |server: &Server| server.hits_on(".narinfo").len();
    let here = format!("{} {}", ten.url(), silent.url());
    install(&world, &here, "by-silence");
    assert_eq!((questions(&silent), questions(&ten)), (paths, 0));

    let directory = world
        .corpus
        .cache_copy("zstd", &world.scratch.join("directory"));
    let info = "StoreDir: /nix/store\nPriority: 50\n";
    fs::write(directory.join("nix-cache-info"), info).unwrap();
    let directory = format!("file://{}", directory.display());
    let store = world.corpus.store();
    let store = format!("local?root={}", store.display());
    let mut asked = 0;
    // Paths in a local store are not signed.
    for (place, asks) in [
        (directory.clone(), true),
        (format!("{directory}?priority=5"), false),
        (format!("{store}&priority=11"), true),
        (store, false),
    ] {
        install(
            &world,
            &format!("{place} {}\nrequire-sigs = false", ten.url()),
            &format!("{asks} {asked}"),
        );
        let now = questions(&ten);
        assert_eq!(now - asked, if asks { paths } else { 0 }, "{place}");
        asked = now;
    }
}

#[test]
fn a_cache_that_does_not_want_many_questions_gets_few_at_once() {
    let Some(world) = world() else { return };
    let connections = |info: &str| {
        let server = saying(&world, info, info);
        server.fail(".narinfo", Fault::Slow(Duration::from_millis(200)));
        install(&world, &server.url(), &format!("store of {info}"));
        let hits = server.hits_on(".narinfo");
        assert_eq!(hits.len(), world.corpus.paths.len());
        let numbers: BTreeSet<usize> = hits.iter().map(|hit| hit.connection).collect();
        numbers.len()
    };
    let (few, many) = (
        connections("WantMassQuery: 0"),
        connections("WantMassQuery: 1"),
    );
    assert!(few <= FEW, "{few} at once");
    assert!(
        many > FEW,
        "{many} at once, the server cannot see the difference"
    );
}

/// The number of concurrent queries for a cache without `WantMassQuery`.
const FEW: usize = 4;
