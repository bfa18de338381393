//! Sources whose answers never end: a closure that grows with each narinfo, and a list of a bucket
//! with ever more pages. floe refuses them, and needs little memory until then.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use floe_testkit::{hide_nix_conf, scratch, synthetic_cache};
use parking_lot::Mutex;

use crate::memory_use::measure;
use crate::support::floe;

/// Answers a path and a query with a body.
type Answer = dyn Fn(&str) -> String + Send + Sync;

/// Starts a server. Returns its URL.
fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer: Arc<Answer> = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            // The client ends the connection.
            thread::spawn(move || answer_all(client, &*answer));
        }
    });
    url
}

fn answer_all(mut client: TcpStream, answer: &Answer) -> io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let body = answer(first.split(' ').nth(1).unwrap_or_default());
        let len = body.len();
        client.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").as_bytes())?;
        client.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// A cache that invents new references in each narinfo. Returns its URL, and the number of the
/// narinfos that it has sent.
fn endless_cache() -> (String, Arc<AtomicUsize>) {
    let names = Mutex::new(HashMap::new());
    let invent = move |names: &mut HashMap<String, String>| {
        let path = synthetic_cache::path(names.len());
        let name = path.as_str().to_owned();
        names.insert(path.hash_part().to_string(), name.clone());
        name
    };
    invent(&mut names.lock());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let url = serve(move |path| {
        let Some(part) = path
            .strip_prefix('/')
            .and_then(|it| it.strip_suffix(".narinfo"))
        else {
            return "StoreDir: /nix/store\nWantMassQuery: 1\n".into();
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut names = names.lock();
        let name = names[part].clone();
        let references: Vec<String> = (0..20).map(|_| invent(&mut names)).collect();
        let hash = "0".repeat(52);
        format!(
            "StorePath: /nix/store/{name}\nURL: nar/{part}\nCompression: none\n\
             NarHash: sha256:{hash}\nNarSize: 120\nReferences: {}\n",
            references.join(" ")
        )
    });
    (url, sent)
}

#[test]
fn closure_without_an_end_is_refused_with_little_memory() {
    let scratch = scratch();
    let requested = format!("/nix/store/{}", synthetic_cache::path(0).as_str());
    let to = format!("file://{}", scratch.join("cache").display());
    let root = scratch.join("root").display().to_string();
    // Fewer paths take less time. The first command has the limit of all others.
    let few = ["--option", "max-closure-paths", "20000"];
    for arguments in [
        &["info", "--recursive"][..],
        &[&["copy", "--to", &to], &few[..]].concat(),
        &[&["install", "--no-check-sigs", "--root", &root], &few[..]].concat(),
    ] {
        let (url, sent) = endless_cache();
        let errors = scratch.join("errors");
        let mut command = floe(arguments);
        command.args(["--from", &url, &requested]);
        let stderr = assert_refused(&mut command, &errors);
        assert!(
            stderr.contains("max-closure-paths"),
            "{arguments:?}: {stderr}"
        );
        assert!(sent.load(Ordering::Relaxed) >= 1000, "{arguments:?}");
    }
}

#[test]
fn closure_has_as_many_paths_as_the_user_allows() {
    let scratch = scratch();
    let (url, _) = endless_cache();
    let requested = format!("/nix/store/{}", synthetic_cache::path(0).as_str());
    let mut command = floe(["info", "--recursive", "--from", &url, &requested]);
    command.args(["--option", "max-closure-paths", "50"]);
    let stderr = assert_refused(&mut command, &scratch.join("errors"));
    assert!(stderr.contains("more than 50 paths"), "{stderr}");
}

#[test]
fn list_without_an_end_is_refused_with_little_memory() {
    let scratch = scratch();
    let pages = AtomicUsize::new(0);
    let url = serve(move |path| {
        if !path.contains("list-type=2") {
            return "StoreDir: /nix/store\n".into();
        }
        let page = pages.fetch_add(1, Ordering::Relaxed);
        let object = |number: usize| {
            let part = synthetic_cache::path(1000 * page + number).hash_part();
            format!(
                "<Contents><Key>{part}.narinfo</Key><Size>500</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        };
        let objects: String = (0..1000).map(object).collect();
        format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated>{objects}\
             <NextContinuationToken>{page}</NextContinuationToken></ListBucketResult>"
        )
    });
    let from = format!("s3://team?endpoint={url}");
    let mut command = floe(["info", "--all", "--from", &from]);
    let stderr = assert_refused(&mut command, &scratch.join("errors"));
    assert!(stderr.contains("more than 1000000 narinfos"), "{stderr}");
}

/// Asserts that a command fails with less memory than a limit. Returns its stderr.
#[track_caller]
fn assert_refused(command: &mut Command, errors: &std::path::Path) -> String {
    hide_nix_conf(command);
    command.stderr(File::create(errors).unwrap());
    let (status, memory) = measure(command);
    let stderr = fs::read_to_string(errors).unwrap();
    assert!(!status.success(), "{command:?}: {stderr}");
    assert!(memory < MEMORY_MAX, "{command:?}: {memory} bytes");
    stderr
}

const MEMORY_MAX: u64 = 200 << 20;
