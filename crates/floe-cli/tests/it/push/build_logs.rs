//! `floe push --build-logs`: what `nix log` finds in the cache.

use std::fs;
use std::path::Path;

use floe_testkit::{Corpus, corpus, nginx, nixes, run, s3_server, scratch};

use super::floe_with_keys;
use crate::serve_responses::logs::{compress, deriver};
use crate::support::floe;

/// Writes the logs of the builds of two paths: a short one, and one that needs several parts.
fn write_logs(corpus: &Corpus, logs: &Path) -> (String, String) {
    let nix = nixes().into_iter().next().expect("no Nix");
    let dependency = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libgcc-s1-"));
    let short = deriver(corpus, &nix, &corpus.root);
    let long = deriver(corpus, &nix, dependency.unwrap());
    let file = |name: &str| logs.join("drvs").join(&name[..2]).join(&name[2..]);
    for name in [&short, &long] {
        fs::create_dir_all(file(name).parent().unwrap()).unwrap();
    }
    fs::write(file(&short), "built with care\n").unwrap();
    let compressed = format!("{}.bz2", file(&long).display());
    fs::write(compressed, compress(&long_log())).unwrap();
    (short, long)
}

/// More than two parts of an upload.
fn long_log() -> Vec<u8> {
    let lines = (0..1_000_000).map(|line| format!("line {line} of a build\n"));
    lines.collect::<String>().into_bytes()
}

fn push_with_logs(corpus: &Corpus, logs: &Path, to: &str) -> std::process::Command {
    let root = corpus.store();
    let store = format!("local?root={}&log={}", root.display(), logs.display());
    let mut command = floe(["push", "--build-logs", "--to", to, "--store", &store]);
    command.arg(&corpus.root);
    command
}

#[test]
fn nix_shows_logs_of_pushed_paths() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logs = scratch.join("logs");
    let (short, long) = write_logs(&corpus, &logs);
    let cache = scratch.join("cache");
    fs::create_dir(&cache).unwrap();
    let methods = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let Some(server) = nginx(&cache, methods) else {
        return;
    };
    let file = format!("file://{}", scratch.join("file").display());
    for (to, directory) in [(&server.url(), &cache), (&file, &scratch.join("file"))] {
        run(&mut push_with_logs(&corpus, &logs, to)).expect(0);
        let log = |name: &str| fs::read(directory.join("log").join(name)).unwrap();
        assert_eq!(log(&short), b"built with care\n");
        assert!(log(&long) == long_log(), "the long log differs");
        let entries = fs::read_dir(directory.join("log")).unwrap();
        assert_eq!(entries.count(), 2);
        for nix in nixes() {
            let args = ["log", "--store", to, &corpus.root];
            let text = run(&mut nix.command("nix", args)).expect(0).stdout;
            assert!(text.contains("built with care"), "{}: {text}", nix.version);
        }
    }
}

#[test]
fn logs_in_a_bucket_are_compressed_if_asked() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    server.open_to_all("team");
    let scratch = scratch();
    let logs = scratch.join("logs");
    let (short, _) = write_logs(&corpus, &logs);
    let to = format!("{}&log-compression=gzip", server.uri("team"));
    let mut push = push_with_logs(&corpus, &logs, &to);
    run(push.envs(server.variables())).expect(0);
    let stored = fs::read(server.bucket("team").join("log").join(&short)).unwrap();
    assert_eq!(stored[..2], [0x1f, 0x8b], "{stored:?}");
    for nix in nixes().into_iter().filter(|nix| !nix.is_2_8()) {
        let store = format!("{}&region=us-east-1", server.uri("team"));
        let args = ["log", "--store", &store, &corpus.root];
        let text = run(&mut nix.command("nix", args)).expect(0).stdout;
        assert!(text.contains("built with care"), "{text}");
    }
    // The paths are present, so nothing is pushed.
    let mut again = floe_with_keys(&server, &["push", "--build-logs", "--to", &to]);
    let again = again.arg("--root").arg(corpus.store()).arg(&corpus.root);
    run(again).expect(0).stderr_contains("are present");
}

#[test]
fn unreadable_log_is_named() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logs = scratch.join("logs");
    let (short, _) = write_logs(&corpus, &logs);
    let file = logs.join("drvs").join(&short[..2]).join(&short[2..]);
    fs::remove_file(&file).unwrap();
    let damaged = format!("{}.bz2", file.display());
    fs::write(damaged, "no bzip2").unwrap();
    let to = format!("file://{}", scratch.join("cache").display());
    let output = run(&mut push_with_logs(&corpus, &logs, &to));
    output.expect(1).stderr_contains(&short);
    let hash_part = &corpus.root["/nix/store/".len()..][..32];
    assert!(!scratch.join(&format!("cache/{hash_part}.narinfo")).exists());
}
