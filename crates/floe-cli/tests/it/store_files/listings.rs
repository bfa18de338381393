//! Listings of paths in stores and caches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{corpus, nixes, run, s3_servers};
use serde_json::Value;

use super::{cache_with_listings, files, from, normalised, places, query};
use crate::support::floe;

#[test]
fn listings_are_those_of_nix() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let bin = format!("{}/usr/bin", corpus.root);
    let program = format!("{bin}/curl");
    let mut compared = 0;
    for place in places(&corpus, scratch.path()) {
        for nix in nixes() {
            for file in [&corpus.root, &bin, &program, &corpus.paths[0]] {
                for options in [&[][..], &["-l"], &["-R"], &["-lR"], &["-d"], &["-ld"]] {
                    let theirs = [&["store", "ls", "--store", &place, file], options].concat();
                    let theirs = run(&mut nix.command("nix", theirs)).expect(0).stdout;
                    let ours = query(&[&["ls", file], options].concat(), &place);
                    assert_eq!(
                        String::from_utf8(ours).unwrap(),
                        theirs,
                        "{place} {options:?}"
                    );
                    compared += theirs.lines().count();
                }
                for options in [&["--json"][..], &["--json", "-R"]] {
                    let theirs = [&["store", "ls", "--store", &place, file], options].concat();
                    let theirs = run(&mut nix.command("nix", theirs)).expect(0).stdout;
                    let ours = query(&[&["ls", file], options].concat(), &place);
                    let [ours, theirs] = [&ours[..], theirs.as_bytes()]
                        .map(|it| serde_json::from_slice(it).unwrap());
                    assert_eq!(
                        normalised(&ours),
                        normalised(&theirs),
                        "{place} {options:?}"
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(nixes().is_empty() || compared > 100, "{compared}");
}

/// The offsets are those in the NAR of the whole path, also below a directory.
#[test]
fn offsets_are_those_of_the_listing() {
    let Some(corpus) = corpus("jq") else { return };
    let nar = query(&["dump", &corpus.root], &corpus.file_url("none"));
    for directory in ["", "/usr/share"] {
        let place = format!("{}{directory}", corpus.root);
        let listed = query(&["ls", "-R", "--json", &place], &corpus.file_url("none"));
        let listed: Value = serde_json::from_slice(&listed).unwrap();
        let mut found = 0;
        for (file, name) in files(&corpus) {
            let Some(rest) = name.strip_prefix(&format!("{place}/")) else {
                continue;
            };
            let pointer = rest.split('/').map(|name| format!("/entries/{name}"));
            let entry = listed.pointer(&pointer.collect::<String>()).unwrap();
            let contents = fs::read(file).unwrap();
            let offset = entry["narOffset"].as_u64().unwrap() as usize;
            assert_eq!(nar[offset..][..contents.len()], contents, "{name}");
            found += 1;
        }
        assert!(found > 3);
    }
}

/// Serves a cache with listings.
fn server(scratch: &Path, compression: &str) -> Option<(FaultServer, String)> {
    let (corpus, nix) = (corpus("jq")?, nixes().into_iter().next()?);
    cache_with_listings(&nix, &corpus, scratch, compression);
    let server = FaultServer::start(&scratch.join(compression)).with_validators();
    Some((server, corpus.root))
}

/// Serves a cache with listings, and returns a file in it with its contents.
fn served_file(scratch: &Path) -> Option<(FaultServer, String, Vec<u8>)> {
    let (server, root) = server(scratch, "none")?;
    let file = format!("{root}/usr/bin/jq");
    let contents = fs::read(super::in_store(&corpus("jq")?, &file)).unwrap();
    Some((server, file, contents))
}

#[test]
fn only_the_listing_and_the_part_of_the_file_are_fetched() {
    let scratch = tempfile::tempdir().unwrap();
    let Some((server, root)) = server(scratch.path(), "none") else {
        return;
    };
    query(&["ls", "-R", &root], &server.url());
    assert_eq!(server.requests().len(), 3, "{:?}", server.requests());
    assert_eq!(server.requests_for(".ls").len(), 1);
    let file = format!("{root}/usr/bin/jq");
    let contents = query(&["cat", &file], &server.url());
    let nars = server.requests_for(".nar");
    let [nar] = &nars[..] else { panic!("{nars:?}") };
    assert_eq!(nar.status, 206);
    let (first, last) = nar.fields["range"]
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let [first, last] = [first, last].map(|it| it.parse::<usize>().unwrap());
    // The framing before the contents shows that the listing is that of the NAR.
    assert_eq!(last + 1 - first, contents.len() + 24);
    assert_eq!(server.requests().len(), 7);
}

#[test]
fn contents_are_the_same_without_ranges_and_after_breaks() {
    let scratch = tempfile::tempdir().unwrap();
    let Some((server, file, expected)) = served_file(scratch.path()) else {
        return;
    };
    let faults = [
        (Fault::IgnoredRange, 1),
        (Fault::PartialRange(1000), usize::MAX),
        (Fault::Truncated(2000), 1),
        (Fault::Status(503), 1),
        // For the part, and not for the whole NAR.
        (Fault::Status(416), 1),
        (Fault::Reset, 1),
    ];
    for (number, (fault, times)) in faults.into_iter().enumerate() {
        server.clear_faults();
        server.fail_times(".nar", fault.clone(), times);
        let found = run(&mut from(&["cat", &file], &server.url()));
        if fault == Fault::PartialRange(1000) {
            // Such a server would send a large file in a thousand parts.
            assert_eq!(found.code, Some(4), "{}", found.stderr);
        } else {
            assert_eq!(found.expect(0).stdout_bytes, expected, "{fault:?}");
        }
        assert!(server.fault_count() > number, "{fault:?}");
    }
}

#[test]
fn whole_nar_is_read_if_the_server_sends_another_part() {
    let scratch = tempfile::tempdir().unwrap();
    let Some((server, file, expected)) = served_file(scratch.path()) else {
        return;
    };
    server.fail(".nar", Fault::OtherRange);
    let found = run(&mut from(&["cat", &file], &server.url())).expect(0);
    let found = found.stderr_contains("reading the NAR instead of the listing");
    assert_eq!(found.stdout_bytes, expected);
    let statuses = server
        .requests_for(".nar")
        .into_iter()
        .map(|request| request.status);
    assert_eq!(statuses.collect::<Vec<_>>(), [206, 200]);
}

/// The NAR decides, and a warning names the listing.
#[test]
fn listings_of_other_nars_are_not_used() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    for compression in ["none", "zstd"] {
        let Some((server, root)) = server(scratch.path(), compression) else {
            return;
        };
        let hash_part = root.strip_prefix("/nix/store/").unwrap().split_at(32).0;
        let listing = scratch
            .path()
            .join(compression)
            .join(format!("{hash_part}.ls"));
        let whole = fs::read_to_string(&listing).unwrap();
        let file = format!("{root}/usr/bin/jq");
        let expected = fs::read(super::in_store(&corpus, &file)).unwrap();
        // Two sizes change places: the whole NAR would be as long, but its files lie elsewhere.
        let exchanged = whole
            .replace("\"size\":30800", "\"size\":S")
            .replace("\"size\":31090", "\"size\":30800");
        let exchanged = exchanged.replace("\"size\":S", "\"size\":31090");
        assert_ne!(exchanged, whole);
        let without_offsets: String = exchanged
            .split("\"narOffset\":")
            .enumerate()
            .map(|(number, part)| match number {
                0 => part.to_owned(),
                _ => part.trim_start_matches(|it: char| it.is_ascii_digit())[1..].to_owned(),
            })
            .collect();
        let damaged = [
            ("not JSON", "{"),
            (
                "of another size",
                r#"{"root":{"entries":{},"type":"directory"},"version":1}"#,
            ),
            ("with wrong offsets", &exchanged),
            ("of another NAR", &without_offsets),
        ];
        for (kind, text) in damaged {
            fs::write(&listing, text).unwrap();
            let found = run(&mut from(&["cat", &file], &server.url())).expect(0);
            // The size in the listing matters only where the file is found by it.
            assert_eq!(found.stdout_bytes, expected, "{kind} {compression}");
            if kind != "of another NAR" || compression == "none" {
                found.stderr_contains("reading the NAR instead of the listing");
            }
        }
        server.fail_times(".ls", Fault::Status(400), 1);
        let found = run(&mut from(&["cat", &file], &server.url())).expect(0);
        let found = found.stderr_contains("reading the NAR instead of the listing");
        assert_eq!(found.stdout_bytes, expected);
        fs::write(&listing, "{").unwrap();
        let listed = query(&["ls", "-lR", &root], &server.url());
        assert_eq!(
            listed,
            query(&["ls", "-lR", &root], &corpus.store().display().to_string())
        );
    }
}

#[test]
fn bucket_and_daemon_show_the_same_files() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let file = format!("{}/usr/bin/jq", corpus.root);
    let store = corpus.store().display().to_string();
    let commands = [
        &["ls", "-lR", &corpus.root][..],
        &["cat", &file],
        &["dump", &corpus.root],
    ];
    let mut shown = BTreeSet::new();
    for server in s3_servers("team") {
        let uri = format!(
            "{}&compression=none&write-nar-listing=true",
            server.uri("team")
        );
        let mut push = floe(["copy", "--from", &store, "--to", &uri, &corpus.root]);
        run(push.args(["--no-check-sigs"]).envs(server.variables())).expect(0);
        for command in commands {
            let found = run(from(command, &server.uri("team")).envs(server.variables()));
            assert_eq!(found.expect(0).stdout_bytes, query(command, &store));
            shown.insert("bucket");
        }
    }
    for nix in nixes() {
        let root = scratch.path().join(&nix.version);
        let root_uri = root.display().to_string();
        let mut copy = floe(["copy", "--from", &store, "--to", &root_uri, &corpus.root]);
        run(copy.arg("--no-check-sigs")).expect(0);
        let daemon = nix.daemon(&root, "");
        for command in commands {
            assert_eq!(
                query(command, &daemon.uri()),
                query(command, &store),
                "{command:?}"
            );
            shown.insert("daemon");
        }
    }
    assert!(shown.contains("daemon") || nixes().is_empty());
}
