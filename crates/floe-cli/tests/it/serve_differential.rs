//! `floe serve` compared with Nix: NARs, listings and narinfos of every path of real closures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use floe_format::{Hash, HashAlgorithm};
use floe_testkit::http_client::{Client, Response, hash_part, narinfo_of};
use floe_testkit::{Corpus, Nix, Scratch, XorShift, corpora, nixes, run, scratch};
use serde_json::Value;

use crate::server_process::ServerProcess;

/// Returns the NAR that Nix makes of a path of a corpus.
fn dump(nix: &Nix, corpus: &Corpus, path: &str) -> Vec<u8> {
    let real = corpus.store().join(path.trim_start_matches('/'));
    let mut command = nix.command("nix-store", ["--dump"]);
    let output = command.arg(real).output().unwrap();
    assert!(output.status.success(), "{path}");
    output.stdout
}

/// Returns a random non-empty range below `len`, of at most 100,000 bytes.
fn random_range(rng: &mut XorShift, len: usize) -> (usize, usize) {
    let first = rng.below(len);
    let most = (len - first).min(1 + rng.below(100_000));
    (first, first + 1 + rng.below(most))
}

#[track_caller]
fn assert_ranges(client: &mut Client, url: &str, nar: &[u8], rng: &mut XorShift) -> usize {
    let len = nar.len();
    let mut ranges = vec![(0, 1), (len - 1, len), (0, len / 2), (len / 2, len)];
    ranges.extend((0..8).map(|_| random_range(rng, len)));
    for &(first, end) in &ranges {
        let field = format!("Range: bytes={first}-{}\r\n", end - 1);
        let response = client.request("GET", url, &field);
        assert_eq!(response.status, 206, "{url}: {field}");
        assert!(response.body == nar[first..end], "{url}: {field}");
    }
    let suffix = 1 + rng.below(len);
    let response = client.request("GET", url, &format!("Range: bytes=-{suffix}\r\n"));
    assert!(
        response.body == nar[len - suffix..],
        "{url}: the last {suffix}"
    );
    let (first, second) = (random_range(rng, len / 2), random_range(rng, len / 2));
    let list = format!("{}-{},{}-{}", first.0, first.1 - 1, second.0, second.1 - 1);
    let response = client.request("GET", url, &format!("Range: bytes={list}\r\n"));
    assert_eq!(response.status, 206, "{url}: {list}");
    let expected = expected_parts(&response, nar, &[first, second]);
    assert!(response.body == expected, "{url}: {list}");
    ranges.len() + 2
}

/// Returns the expected multipart body for these ranges.
fn expected_parts(response: &Response, nar: &[u8], ranges: &[(usize, usize)]) -> Vec<u8> {
    let kind = response.field("Content-Type").unwrap();
    let boundary = kind.split_once("boundary=").unwrap().1;
    let mut body = Vec::new();
    for &(first, end) in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: application/x-nix-nar\r\n\
             Content-Range: bytes {first}-{}/{}\r\n\r\n",
            end - 1,
            nar.len()
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&nar[first..end]);
    }
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

#[test]
fn nars_and_ranges_equal_nix_store_dump_under_every_url() {
    let nixes = nixes();
    for corpus in corpora() {
        let Some(nix) = nixes.first() else { return };
        let serve = ServerProcess::start(corpus.store(), &[]);
        let mut rng = XorShift(0x5eed_f10e);
        let mut compared = (0, 0);
        for path in &corpus.paths {
            let nar = dump(nix, &corpus, path);
            let mut client = serve.connect();
            let narinfo = client.request("GET", &narinfo_of(path), "");
            let hash = hash_part(path);
            let nar_hash = Hash::sha256(floe_hash::sha256(&nar)).digest_nix32();
            assert_eq!(
                narinfo.narinfo_field("NarHash"),
                format!("sha256:{nar_hash}")
            );
            let url = format!("/{}", narinfo.narinfo_field("URL"));
            assert_eq!(url, format!("/nar/{hash}-{nar_hash}.nar"));
            let others = [
                format!("/nar/{hash}.nar"),
                format!("/nar/{nar_hash}.nar?hash={hash}"),
            ];
            let urls = [&url, &others[0], &others[1]];
            // Repeat the requests: the second round is served from memory or from packed files.
            for (round, url) in urls.into_iter().chain(urls).enumerate() {
                let response = client.request("GET", url, "");
                assert_eq!(response.status, 200, "{url}");
                let length = nar.len().to_string();
                assert_eq!(
                    response.field("Content-Length"),
                    Some(length.as_str()),
                    "{url}"
                );
                assert!(response.body == nar, "{url}, round {round}");
                compared.0 += 1;
            }
            compared.1 += assert_ranges(&mut client, &url, &nar, &mut rng);
        }
        let paths = corpus.paths.len();
        assert_eq!(compared, (6 * paths, 14 * paths));
        assert!(paths >= 6);
        assert_eq!(serve.stop(), "");
    }
}

/// Lets Nix copy a corpus to a cache with NAR listings.
fn cache_with_listings(nix: &Nix, corpus: &Corpus, scratch: &Scratch) -> std::path::PathBuf {
    let cache = scratch.join("cache");
    let to = format!(
        "file://{}?compression=none&write-nar-listing=1",
        cache.display()
    );
    let mut command = nix.command("nix", ["copy", "--no-check-sigs", "--to"]);
    let store = corpus.store();
    run(command.arg(to).arg("--store").arg(store).arg(&corpus.root)).expect(0);
    cache
}

/// Counts the files of a listing, and asserts that each has an offset in the NAR.
fn count_files(node: &Value) -> usize {
    match node["type"].as_str().unwrap() {
        "regular" => {
            let is_empty = node["size"].as_u64().unwrap_or(0) == 0;
            assert!(
                is_empty || node["narOffset"].as_u64().unwrap() > 0,
                "{node}"
            );
            1
        }
        "directory" => node["entries"]
            .as_object()
            .unwrap()
            .values()
            .map(count_files)
            .sum(),
        "symlink" => 0,
        other => panic!("unexpected type {other}"),
    }
}

#[test]
fn listings_equal_those_of_nix() {
    for nix in &nixes() {
        for corpus in corpora() {
            let scratch = scratch();
            let cache = cache_with_listings(nix, &corpus, &scratch);
            let serve = ServerProcess::start(corpus.store(), &[]);
            let mut files = 0;
            for path in &corpus.paths {
                let name = format!("{}.ls", hash_part(path));
                let theirs = fs::read(cache.join(&name)).unwrap();
                let theirs: Value = serde_json::from_slice(&theirs).unwrap();
                let ours = serve.get(&format!("/{name}"));
                let ours: Value = serde_json::from_slice(&ours.body).unwrap();
                assert_eq!(ours["version"], theirs["version"], "{}", nix.version);
                let files_here = count_files(&ours["root"]);
                assert!(
                    same_tree(&ours["root"], &theirs["root"]),
                    "{}: {path}",
                    nix.version
                );
                files += files_here;
            }
            assert!(files > 300, "{files} files in {}", corpus.root);
        }
    }
}

/// Returns whether two listings are equal. Newer Nix versions write `executable: false`
/// explicitly.
fn same_tree(ours: &Value, theirs: &Value) -> bool {
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
        return ours == theirs;
    };
    let keys: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    keys.into_iter()
        .all(|key| match (ours.get(key), theirs.get(key)) {
            (Some(ours), Some(theirs)) => same_tree(ours, theirs),
            (Some(only), None) | (None, Some(only)) => {
                key == "executable" && *only == Value::Bool(false)
            }
            (None, None) => false,
        })
}

/// Returns `nix path-info --json` by path.
fn path_infos(nix: &Nix, corpus: &Corpus) -> BTreeMap<String, Value> {
    let store = corpus.store().display().to_string();
    let infos = nix.path_infos(&store, &corpus.root);
    infos
        .into_iter()
        .map(|info| (info["path"].as_str().unwrap().to_owned(), info))
        .collect()
}

/// Formats a path info as nix-serve does, with its fields in its order.
fn as_nix_serve(info: &Value, signatures: &[String]) -> String {
    let path = info["path"].as_str().unwrap();
    let base = |path: &Value| {
        path.as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    let hash = Hash::parse_any(
        info["narHash"].as_str().unwrap(),
        Some(HashAlgorithm::Sha256),
    );
    let hash = hash.unwrap().digest_nix32();
    let mut text = format!(
        "StorePath: {path}\nURL: nar/{}-{hash}.nar\nCompression: none\nNarHash: sha256:{hash}\n\
         NarSize: {}\n",
        hash_part(path),
        info["narSize"]
    );
    let mut references: Vec<String> = info["references"]
        .as_array()
        .unwrap()
        .iter()
        .map(base)
        .collect();
    references.sort();
    if !references.is_empty() {
        text += &format!("References: {}\n", references.join(" "));
    }
    if info["deriver"].is_string() {
        text += &format!("Deriver: {}\n", base(&info["deriver"]));
    }
    for signature in signatures {
        text += &format!("Sig: {signature}\n");
    }
    text
}

/// Returns the signatures in the corpus's own cache. The key is the same, and ed25519 is
/// deterministic.
fn signatures(cache: &Path, path: &str) -> Vec<String> {
    let text = fs::read_to_string(cache.join(format!("{}.narinfo", hash_part(path)))).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("Sig: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn narinfos_extend_those_of_nix_serve() {
    for nix in &nixes() {
        for corpus in corpora() {
            let key = corpus.dir.join("key.sec").display().to_string();
            let signing = ServerProcess::start(corpus.store(), &["--secret-key-file", &key]);
            let plain = ServerProcess::start(corpus.store(), &[]);
            let infos = path_infos(nix, &corpus);
            assert_eq!(infos.len(), corpus.paths.len());
            for (path, info) in &infos {
                let stored: Vec<String> = match info["signatures"].as_array() {
                    Some(list) => list.iter().map(|it| it.as_str().unwrap().into()).collect(),
                    None => Vec::new(),
                };
                let mut with_ours = stored.clone();
                with_ours.extend(signatures(&corpus.cache("none"), path));
                with_ours.sort();
                with_ours.dedup();
                assert!(!with_ours.is_empty(), "{path}");
                for (serve, signatures) in [(&signing, &with_ours), (&plain, &stored)] {
                    let response = serve.get(&narinfo_of(path));
                    let (more, same): (Vec<&str>, Vec<&str>) =
                        response.text().split_inclusive('\n').partition(|line| {
                            let names = ["FileHash: ", "FileSize: ", "CA: "];
                            names.iter().any(|name| line.starts_with(name))
                                || line.trim_end() == "References:"
                        });
                    assert_eq!(
                        same.concat(),
                        as_nix_serve(info, signatures),
                        "{}",
                        nix.version
                    );
                    let size = response.narinfo_field("NarSize");
                    assert!(more.contains(&&*format!("FileSize: {size}\n")), "{more:?}");
                    let hash = response.narinfo_field("NarHash");
                    assert!(more.contains(&&*format!("FileHash: {hash}\n")), "{more:?}");
                    let ca = more.iter().find_map(|line| line.strip_prefix("CA: "));
                    assert_eq!(ca.map(str::trim_end), info["ca"].as_str(), "{path}");
                    if info["references"].as_array().unwrap().is_empty() {
                        assert!(
                            response.text().contains("\nReferences: \n"),
                            "{}",
                            response.text()
                        );
                    }
                }
            }
        }
    }
}
