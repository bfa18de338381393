//! Copies of all paths of a cache that lists them: each narinfo is requested once, and many are
//! requested at once.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{run, scratch, synthetic_cache};

use crate::faulty_cache::assert_verified;
use crate::support::floe;

/// More than are requested at once.
const PATHS: usize = 300;

/// Returns a page of the list of a bucket with these objects.
fn list(names: &[String]) -> Vec<u8> {
    let entries = names.iter().map(|name| {
        format!(
            "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <Size>1</Size></Contents>"
        )
    });
    let entries: String = entries.collect();
    format!(
        "<ListBucketResult><Name>team</Name><IsTruncated>false</IsTruncated>{entries}\
         </ListBucketResult>"
    )
    .into_bytes()
}

#[test]
fn copy_all_requests_each_narinfo_once_and_many_at_once() {
    let scratch = scratch();
    let bucket = scratch.join("team");
    synthetic_cache::create(&bucket, PATHS, |number| {
        (number / 2..number).take(3).collect()
    });
    let files = fs::read_dir(&bucket).unwrap().map(|entry| entry.unwrap());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".narinfo")).collect();
    let server = FaultServer::start(scratch.path());
    server.fail("&list-type=2&prefix=", Fault::OtherBody(list(&names)));
    server.fail(".narinfo", Fault::Delayed(Duration::from_millis(100)));

    let root = scratch.join("root");
    let from = format!("s3://team?endpoint={}", server.url());
    let mut command = floe(["copy", "--all", "--no-check-sigs", "--from", &from, "--to"]);
    command
        .arg(&root)
        .args(["--option", "http-connections", "128"])
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    run(&mut command).expect(0);

    assert_verified(&root, PATHS);
    let mut counts: HashMap<String, usize> = HashMap::new();
    for request in server.requests_for(".narinfo") {
        *counts.entry(request.path).or_default() += 1;
    }
    assert_eq!(counts.len(), PATHS);
    let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "requested again: {repeated:?}");
    let most = server.max_in_flight();
    assert!(most > 100, "only {most} requests were in flight at once");
}
