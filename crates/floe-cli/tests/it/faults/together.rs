//! Concurrent installs of overlapping closures into one store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{leftovers, nar_of, nars_since};
use crate::faulty::assert_holds_exactly;
use crate::server::{Fault, Server};
use crate::support::{Corpus, corpus, floe, run, scratch};

/// An install of one root path from one of the corpora.
struct Wish<'a> {
    corpus: &'a Corpus,
    server: &'a Server,
    root: String,
}

impl Wish<'_> {
    fn install(&self, root: &Path) -> Command {
        let mut command = floe(["install", "--json", "--from", &self.server.url()]);
        command.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        command.arg(root).arg(&self.root);
        command
    }
}

fn path(corpus: &Corpus, name: &str) -> String {
    let name = format!("-{name}");
    let mut paths = corpus.paths.iter();
    paths.find(|path| path.contains(&name)).unwrap().clone()
}

#[test]
fn installs_of_overlapping_closures_all_succeed_and_the_store_is_sound() {
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    let libc = path(&jq, "libc6-");
    assert_eq!(path(&curl, "libc6-"), libc, "the closures do not overlap");
    for count in [2, 4] {
        let scratch = scratch();
        let root = scratch.join("root");
        let servers = [&jq, &curl].map(|corpus| Server::start(&corpus.cache("zstd")));
        // Every closure contains this path. The delay makes all installs query it before any of
        // them has registered it.
        let narinfo = format!("{}.narinfo", &libc["/nix/store/".len()..][..32]);
        let slow = Fault::Slow(Duration::from_secs(3));
        servers
            .iter()
            .for_each(|server| server.fail(&narinfo, slow.clone()));
        let wish = |corpus, server, root: &str| Wish {
            corpus,
            server,
            root: root.to_owned(),
        };
        let wishes = [
            wish(&jq, &servers[0], &jq.root),
            wish(&curl, &servers[1], &curl.root),
            wish(&jq, &servers[0], &path(&jq, "libjq1-")),
            wish(&curl, &servers[1], &path(&curl, "libssl3-")),
        ];
        let wishes = &wishes[..count];
        let spawn = |wish: &Wish<'_>| {
            let mut command = wish.install(&root);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            piped.spawn().unwrap()
        };
        let children: Vec<_> = wishes.iter().map(spawn).collect();
        for (child, wish) in children.into_iter().zip(wishes) {
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(0), "{}: {said}", wish.root);
        }
        let all: BTreeSet<String> = jq.paths.iter().chain(&curl.paths).cloned().collect();
        assert_holds_exactly(&root, &all);
        assert_eq!(leftovers(&root.join("nix/store")), [""; 0]);

        // Each path was fetched at least once, and at most once per install.
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for nar in servers.iter().flat_map(|server| nars_since(server, 0)) {
            *times.entry(nar).or_default() += 1;
        }
        let fetched: usize = times.values().sum();
        eprintln!(
            "{count} installs of {} paths made {fetched} NAR requests",
            all.len()
        );
        assert!(times.values().all(|times| *times <= count), "{times:?}");
        let nars = |corpus: &Corpus, path| times.get(&nar_of(corpus, path)).copied();
        for path in &all {
            let of = |corpus: &Corpus| match corpus.paths.contains(path) {
                true => nars(corpus, path).unwrap_or(0),
                false => 0,
            };
            assert!(of(&jq) + of(&curl) >= 1, "{path} was not fetched");
        }
        let shared = nars(&jq, &libc)
            .unwrap_or(0)
            .max(nars(&curl, &libc).unwrap_or(0));
        assert!(
            shared >= 1 && fetched > all.len(),
            "the installs did not overlap: {times:?}"
        );

        let before = servers.each_ref().map(|server| server.hits().len());
        for wish in wishes {
            let json = run(&mut wish.install(&root)).expect(0).json();
            assert_eq!(json["copied"], 0);
        }
        for (server, before) in servers.iter().zip(before) {
            assert_eq!(nars_since(server, before), [""; 0]);
        }
    }
}
