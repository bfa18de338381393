//! `floe push --build-logs`: what `nix log` finds in the cache.

use std::fs;
use std::path::Path;

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{Corpus, corpus, nginx, nixes, run, s3_server, scratch};

use super::{assert_installs, floe_with_keys};
use crate::serve_responses::logs::{compress, deriver};
use crate::support::floe;

/// Writes the logs of the builds of two paths: a short one, and one that needs several parts.
fn write_logs(corpus: &Corpus, logs: &Path) -> Option<(String, String)> {
    let nix = nixes().into_iter().next()?;
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
    Some((short, long))
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
    let Some((short, long)) = write_logs(&corpus, &logs) else {
        return;
    };
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
        let shown = |path: &str| run(&mut floe(["log", "--from", to, path])).expect(0).stdout;
        assert_eq!(shown(&corpus.root), "built with care\n");
        assert_eq!(shown(&format!("/nix/store/{short}")), "built with care\n");
        let long = format!("/nix/store/{long}");
        assert!(
            shown(&long).into_bytes() == long_log(),
            "the long log differs"
        );
        let unlogged = corpus.paths.iter().find(|path| path.contains("-libonig"));
        run(&mut floe(["log", "--from", to, unlogged.unwrap()]))
            .expect(1)
            .stderr_contains("does not have it");
    }
    let server = FaultServer::start(&scratch.join("file"));
    server.fail(&long, Fault::Truncated(100_000));
    let broken = [
        "log",
        "--from",
        &server.url(),
        &format!("/nix/store/{long}"),
    ];
    run(&mut floe(broken)).expect(4);
    assert!(server.fault_count() > 0);
    let store = format!(
        "local?root={}&log={}",
        corpus.store().display(),
        logs.display()
    );
    for word in [&corpus.root, &format!("/nix/store/{short}")] {
        let shown = run(&mut floe(["log", "--store", &store, word])).expect(0);
        assert_eq!(shown.stdout, "built with care\n");
    }
    let long = format!("/nix/store/{long}");
    let shown = run(&mut floe(["log", "--store", &store, &long])).expect(0);
    assert!(
        shown.stdout.into_bytes() == long_log(),
        "the long log differs"
    );
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
    let Some((short, _)) = write_logs(&corpus, &logs) else {
        return;
    };
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
    let shown =
        run(floe(["log", "--from", &server.uri("team"), &corpus.root]).envs(server.variables()));
    assert_eq!(shown.expect(0).stdout, "built with care\n");
    // The paths are present, so nothing is pushed.
    let mut again = floe_with_keys(&server, &["push", "--build-logs", "--to", &to]);
    let again = again.arg("--root").arg(corpus.store()).arg(&corpus.root);
    run(again).expect(0).stderr_contains("are present");
}

#[test]
fn path_is_pushed_without_an_unreadable_log() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logs = scratch.join("logs");
    let Some((short, long)) = write_logs(&corpus, &logs) else {
        return;
    };
    let file = logs.join("drvs").join(&short[..2]).join(&short[2..]);
    fs::remove_file(&file).unwrap();
    // A build that was killed leaves such a file.
    let whole = compress(&long_log());
    let broken = format!("{}.bz2", file.display());
    fs::write(broken, &whole[..whole.len() / 2]).unwrap();
    let to = format!("file://{}", scratch.join("cache").display());
    run(&mut push_with_logs(&corpus, &logs, &to))
        .expect(0)
        .stderr_contains(&format!("skipping the build log of {short}"));
    let pushed = fs::read_dir(scratch.join("cache/log")).unwrap();
    let pushed: Vec<_> = pushed.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(pushed, [&*long]);
    let mut install = floe(["install", "--no-check-sigs", "--from", &to]);
    assert_installs(&mut install, &scratch.join("root"), &corpus);
}

#[test]
fn refused_log_keeps_its_path_out_of_the_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let logs = scratch.join("logs");
    let Some((_, long)) = write_logs(&corpus, &logs) else {
        return;
    };
    // The rest of the name is encoded.
    let log = format!("PUT /team/log/{}", &long[..32]);
    let proxy = FaultProxy::start(server.address(), move |_, line| {
        if line.starts_with(&log) && line.contains("partNumber=2") {
            ProxyFault::StatusBefore(403)
        } else {
            ProxyFault::None
        }
    });
    let push = |endpoint: &str| {
        let to = format!("s3://team?endpoint={endpoint}&retry-attempts=1");
        run(push_with_logs(&corpus, &logs, &to).envs(server.variables()))
    };
    let output = push(&proxy.url());
    assert!(proxy.fault_count() > 0);
    output.expect(4).stderr_contains("403");
    let narinfo_count = || {
        let entries = fs::read_dir(server.bucket("team")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().ends_with(".narinfo"))
            .count()
    };
    assert!(narinfo_count() < corpus.paths.len());
    push(&server.endpoint()).expect(0);
    assert_eq!(narinfo_count(), corpus.paths.len());
    let log = fs::read(server.bucket("team").join("log").join(&long)).unwrap();
    assert!(log == long_log(), "the log differs");
}

#[test]
fn logs_belong_to_the_configured_store() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logs = scratch.join("logs");
    if write_logs(&corpus, &logs).is_none() {
        return;
    }
    let (root, to) = (
        corpus.store(),
        format!("file://{}", scratch.join("cache").display()),
    );
    let store = format!("local?root={}&log={}", root.display(), logs.display());
    let mut push = floe([
        "push",
        "--build-logs",
        "--to",
        &to,
        "--option",
        "store",
        &store,
    ]);
    run(push.arg(&corpus.root)).expect(0);
    assert_eq!(fs::read_dir(scratch.join("cache/log")).unwrap().count(), 2);
}
