//! Engines of one process that write to the same store at the same time as a collector.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_messages::{CopyReply, CopyRequest, Method};
use floe_testkit::{Corpus, Nix, corpus, nixes, run, scratch};

use crate::host::*;

/// Installs the closures of some corpora one after the other, `times` times.
fn install(corpora: &[&Corpus], to: &str, times: usize) {
    let host = Host::new();
    for corpus in corpora.iter().cycle().take(times * corpora.len()) {
        let (url, paths, keys) = (
            corpus.file_url("zstd"),
            [corpus.root.as_str()],
            [corpus.key.as_str()],
        );
        let from = [url.as_str()];
        let request = CopyRequest {
            from: (&from[..]).into(),
            to,
            paths: (&paths[..]).into(),
            trusted_public_keys: (&keys[..]).into(),
            ..Default::default()
        };
        let got = host.ask(Method::Install, &request);
        let reply: CopyReply<'_> = got.reply();
        assert_eq!(reply.paths.iter().collect::<Vec<_>>(), paths);
    }
}

/// Checks every temp root file: whole paths, each ending with a NUL. Returns the number of paths.
fn check_temp_roots(root: &Path) -> usize {
    let Ok(files) = fs::read_dir(root.join("nix/var/nix/temproots")) else {
        return 0;
    };
    let mut paths = 0;
    for file in files {
        // Its engine may have ended.
        let Ok(text) = fs::read_to_string(file.unwrap().path()) else {
            continue;
        };
        assert!(
            text.is_empty() || text.ends_with('\0'),
            "incomplete path: {text:?}"
        );
        for path in text.split_terminator('\0') {
            let name = path.strip_prefix("/nix/store/").unwrap();
            assert!(floe_format::StorePath::parse(name).is_ok(), "{path:?}");
            paths += 1;
        }
    }
    paths
}

fn collect(nix: &Nix, root: &Path) {
    if root.join("nix/var/nix/db/schema").exists() {
        let mut command = nix.command("nix-store", ["--gc", "--store"]);
        let ran = run(command.arg(root));
        // Nix before 2.36 stops if a path that it had found to be garbage got a referrer.
        let is_known = ran.stderr.contains("because it is in use by");
        assert!(ran.code == Some(0) || is_known, "{}", ran.stderr);
    }
}

#[test]
fn two_engines_fill_one_store_without_losing_paths() {
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    let all: BTreeSet<&String> = jq.paths.iter().chain(&curl.paths).collect();
    assert!(
        all.len() < jq.paths.len() + curl.paths.len(),
        "the corpora do not overlap"
    );
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        let to = root.display().to_string();
        let seen = std::thread::scope(|scope| {
            let engines = [
                scope.spawn(|| install(&[&jq, &curl], &to, 3)),
                scope.spawn(|| install(&[&curl, &jq], &to, 3)),
            ];
            let mut seen = 0;
            while engines.iter().any(|engine| !engine.is_finished()) {
                seen = check_temp_roots(&root).max(seen);
                collect(&nix, &root);
            }
            engines
                .into_iter()
                .for_each(|engine| engine.join().unwrap());
            seen
        });
        assert!(seen > 0, "no temp root was found");
        assert_eq!(
            fs::read_dir(root.join("nix/var/nix/temproots"))
                .unwrap()
                .count(),
            0
        );
        // Installs again what a collection has deleted meanwhile.
        install(&[&jq, &curl], &to, 1);
        nix.verify(&root, curl.paths.len());
    }
}
