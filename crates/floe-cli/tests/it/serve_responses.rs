//! Responses of `floe serve`, request by request, as docs/serve-conformance.md lists them.

mod compressed_nars;
mod files;
mod landing_page;
pub(crate) mod logs;
mod protocol;
mod ranges;

use floe_testkit::http_client::{Response, hash_part, narinfo_of};
use floe_testkit::{Corpus, corpus, nixes, run};

use crate::server_process::ServerProcess;

/// Serves the smallest corpus.
fn serve_jq() -> Option<(Corpus, ServerProcess)> {
    let corpus = corpus("jq")?;
    let serve = ServerProcess::start(corpus.store(), &[]);
    Some((corpus, serve))
}

fn libc_path(corpus: &Corpus) -> &str {
    let libc = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    libc.unwrap()
}

/// Returns the request target of a path's NAR, as its narinfo names it.
fn nar_target(serve: &ServerProcess, path: &str) -> String {
    format!("/{}", serve.get(&narinfo_of(path)).narinfo_field("URL"))
}

/// Returns the NAR hash in such a target.
fn nar_hash_in(url: &str) -> &str {
    let name = url
        .strip_prefix("/nar/")
        .unwrap()
        .strip_suffix(".nar")
        .unwrap();
    name.split_once('-').unwrap().1
}

/// Asserts status and header fields of a response. The value `-` means that the field is absent.
#[track_caller]
fn assert_response(what: &str, response: &Response, status: u16, fields: &[(&str, &str)]) {
    assert_eq!(response.status, status, "{what}: {}", response.head);
    assert_eq!(response.field("Server"), Some("floe"), "{what}");
    assert!(response.field("Date").is_some(), "{what}");
    for (name, value) in fields {
        let expected = (*value != "-").then_some(*value);
        assert_eq!(response.field(name), expected, "{what}: {}", response.head);
    }
}

const NO_STORE_HEADERS: &[(&str, &str)] = &[
    ("Content-Type", "text/plain"),
    ("Cache-Control", "no-store"),
];
const NARINFO_HEADERS: &[(&str, &str)] = &[
    ("Content-Type", "text/x-nix-narinfo"),
    ("Cache-Control", "max-age=3600"),
    ("Transfer-Encoding", "-"),
    ("Content-Encoding", "-"),
];
const NAR_HEADERS: &[(&str, &str)] = &[
    ("Content-Type", "application/x-nix-nar"),
    ("Cache-Control", "public, max-age=31536000, immutable"),
    ("Accept-Ranges", "bytes"),
    ("Transfer-Encoding", "-"),
    ("Content-Encoding", "-"),
    ("Vary", "-"),
];

#[test]
fn nix_cache_info_and_root_page_are_served() {
    let Some((_corpus, serve)) = serve_jq() else {
        return;
    };
    let info = serve.get("/nix-cache-info");
    let kind = [
        ("Content-Type", "text/x-nix-cache-info"),
        ("Transfer-Encoding", "-"),
    ];
    assert_response("cache-info", &info, 200, &kind);
    let text = "StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 30\n";
    assert_eq!(info.text(), text);
    let root = serve.get("/");
    assert_response(
        "root",
        &root,
        200,
        &[("Content-Type", "text/plain; charset=utf-8")],
    );
    assert!(root.text().contains("/nix/store"));
}

#[test]
fn existing_resources_have_documented_headers() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    for path in &corpus.paths {
        let narinfo = serve.get(&narinfo_of(path));
        assert_response("narinfo", &narinfo, 200, NARINFO_HEADERS);
        let length = narinfo.body.len().to_string();
        assert_eq!(narinfo.field("Content-Length"), Some(length.as_str()));
        assert!(narinfo.text().ends_with('\n'));
        let url = format!("/{}", narinfo.narinfo_field("URL"));
        let same = [
            &serve.get(&format!("{}?x=y", narinfo_of(path))),
            &serve.get_with(&narinfo_of(path), "Accept-Encoding: zstd, gzip, br\r\n"),
            &serve.get(&format!("/{}", narinfo_of(path))),
        ]
        .map(|response| response.body == narinfo.body);
        assert_eq!(same, [true; 3], "query, encodings, double slash");
        let nar = serve.get(&url);
        assert_response("nar", &nar, 200, NAR_HEADERS);
        assert_eq!(
            nar.field("Content-Length"),
            Some(narinfo.narinfo_field("NarSize"))
        );
        let hash = hash_part(path);
        let nar_hash = nar_hash_in(&url);
        let harmonia = serve.get(&format!("/nar/{nar_hash}.nar?hash={hash}"));
        assert_response("harmonia's", &harmonia, 200, NAR_HEADERS);
        let short = serve.get(&format!("/nar/{hash}.nar"));
        assert_response("eris's", &short, 200, &[("Cache-Control", "max-age=3600")]);
        assert!(nar.body == harmonia.body && nar.body == short.body);
        // Compression is off by default, so Accept-Encoding has no effect.
        let zstd = serve.get_with(&url, "Accept-Encoding: zstd\r\n");
        assert_eq!(zstd.stable_head(), nar.stable_head());
        let ls = serve.get(&format!("/{hash}.ls"));
        assert_response("ls", &ls, 200, &[("Content-Type", "application/json")]);
    }
    assert_eq!(serve.stop(), "");
}

#[test]
fn missing_resources_are_404_and_not_cached() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let hash = hash_part(&corpus.root);
    let url = nar_target(&serve, &corpus.root);
    let nar_hash = nar_hash_in(&url);
    let absent = "0".repeat(32);
    let wrong = "0".repeat(52);
    let bad = "e".repeat(32);
    let targets = [
        format!("/{absent}.narinfo"),
        format!("/{bad}.narinfo"),
        format!("/{}.narinfo", hash.to_uppercase()),
        format!("/{}.narinfo", &hash[1..]),
        format!("/{hash}a.narinfo"),
        "/a.narinfo".into(),
        "/.narinfo".into(),
        format!("/nar/{nar_hash}.nar"),
        format!("/nar/{hash}-{wrong}.nar"),
        format!("/nar/{wrong}.nar?hash={hash}"),
        format!("/nar/{nar_hash}.nar?hash={absent}"),
        format!("/nar/{nar_hash}.nar?hash="),
        format!("/nar/{absent}-{nar_hash}.nar"),
        format!("/nar/{absent}.nar"),
        format!("/nar/{hash}.nar.xz"),
        format!("/nar/{hash}"),
        "/nar/".into(),
        format!("/{absent}.ls"),
        format!("/log/{absent}"),
        format!("/log/{absent}-x.drv"),
        format!("/log/{absent}-x"),
        "/log/x".into(),
        format!("/serve/{absent}/"),
        "/serve/x".into(),
        "/favicon.ico".into(),
        format!("/realisations/sha256:{}!out.doi", "0".repeat(64)),
        format!("/build-trace-v2/{absent}-x.drv/out.doi"),
        "/../etc/passwd".into(),
        "/nar/../../etc/passwd".into(),
        "/%2e%2e/%2e%2e/etc/passwd".into(),
        format!("/serve/{hash}/../../../etc/passwd"),
        format!("/serve/{hash}/%2e%2e/%2e%2e/etc/passwd"),
        format!("/serve/{hash}/no/such/file"),
        format!("/serve/{hash}/%00"),
        format!("/serve/{hash}/{}", "a/".repeat(3000)),
    ];
    let mut client = serve.connect();
    for target in &targets {
        let response = client.request("GET", target, "");
        assert_response(target, &response, 404, NO_STORE_HEADERS);
        let head = client.request("HEAD", target, "");
        assert_eq!(head.stable_head(), response.stable_head(), "{target}");
    }
    assert_eq!(serve.stop(), "");
}

#[test]
fn log_request_by_hash_part_does_not_crash_the_server() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    // nix-serve-ng aborts on this request.
    for path in &corpus.paths {
        let response = serve.get(&format!("/log/{}", hash_part(path)));
        assert_response("log", &response, 404, NO_STORE_HEADERS);
    }
    assert_eq!(serve.get(&narinfo_of(&corpus.root)).status, 200);
}

#[test]
fn head_response_equals_get_without_body() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let hash = hash_part(&corpus.root);
    let small = corpus
        .paths
        .iter()
        .find(|path| *path != libc_path(&corpus))
        .unwrap();
    for target in [
        "/".to_owned(),
        "/nix-cache-info".to_owned(),
        narinfo_of(&corpus.root),
        format!("{}?json", narinfo_of(&corpus.root)),
        nar_target(&serve, &corpus.root),
        nar_target(&serve, small),
        nar_target(&serve, libc_path(&corpus)),
        format!("/nar/{hash}.nar"),
        format!("/serve/{hash}/"),
        format!("/serve/{hash}/usr/bin/jq"),
    ] {
        let mut client = serve.connect();
        let head = client.request("HEAD", &target, "");
        // If the server sent a body, this would read it as the next response head.
        let response = client.request("GET", &target, "");
        assert_eq!(head.stable_head(), response.stable_head(), "{target}");
        assert_eq!(response.status, 200, "{target}");
    }
    let ls = serve.head(&format!("/{hash}.ls"));
    assert_response("ls", &ls, 200, &[("Content-Type", "application/json")]);
}

#[test]
fn narinfo_json_equals_nix_path_info() {
    let (Some((corpus, serve)), nixes) = (serve_jq(), nixes()) else {
        return;
    };
    for path in &corpus.paths {
        let target = format!("{}?json", narinfo_of(path));
        let response = serve.get(&target);
        assert_response(
            "json",
            &response,
            200,
            &[("Content-Type", "application/json")],
        );
        let all: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        let info = &all[path];
        for nix in &nixes {
            let store = corpus.store().display().to_string();
            let args = ["path-info", "--json", "--store", &store, path];
            let theirs = run(&mut nix.command("nix", args)).expect(0).json();
            let theirs = theirs.get(0).or(theirs.get(path)).unwrap();
            for key in ["narSize", "deriver"] {
                assert_eq!(info[key], theirs[key], "{}: {key}", nix.version);
            }
            let references = |info: &serde_json::Value| {
                let list = info["references"].as_array().unwrap();
                let mut list: Vec<String> = list.iter().map(ToString::to_string).collect();
                list.sort();
                list
            };
            assert_eq!(references(info), references(theirs), "{}", nix.version);
        }
    }
}

#[test]
fn if_none_match_returns_304() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let hash = hash_part(&corpus.root);
    for target in [
        narinfo_of(&corpus.root),
        nar_target(&serve, &corpus.root),
        nar_target(&serve, libc_path(&corpus)),
        format!("/nar/{hash}.nar"),
        format!("/{hash}.ls"),
        format!("/serve/{hash}/usr/bin/jq"),
    ] {
        let response = serve.get(&target);
        let etag = response.field("ETag").unwrap().to_owned();
        assert!(
            etag.starts_with('"') && etag.ends_with('"'),
            "{target}: {etag}"
        );
        for has in [
            etag.clone(),
            format!("W/{etag}"),
            format!("\"x\", {etag}"),
            "*".into(),
        ] {
            let mut client = serve.connect();
            let field = format!("If-None-Match: {has}\r\n");
            let none = client.request("GET", &target, &field);
            assert_response(
                &target,
                &none,
                304,
                &[("ETag", &etag), ("Content-Length", "-")],
            );
            let cached = none.field("Cache-Control");
            assert_eq!(cached, response.field("Cache-Control"), "{target}");
            assert_eq!(client.request("GET", &target, "").status, 200, "{target}");
        }
        let other = serve.get_with(&target, "If-None-Match: \"x\"\r\n");
        assert_eq!(other.stable_head(), response.stable_head(), "{target}");
        let dated = "If-Modified-Since: Sun, 06 Nov 2050 08:49:37 GMT\r\n";
        assert_eq!(serve.get_with(&target, dated).status, 200, "{target}");
    }
}
