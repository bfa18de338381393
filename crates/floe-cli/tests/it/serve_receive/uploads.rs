//! The uploads that a receiving server accepts, and those that it refuses.

use std::fs;
use std::io::Write as _;
use std::net::Shutdown;

use floe_format::nar::write as nar_write;
use floe_format::nix32;
use floe_hash::sha256;
use floe_testkit::{corpus, run, wait_until};

use super::{Receiving, put, serve};
use crate::push::source_root;
use crate::serve_logins::{add_token, bearer};
use crate::support::floe;

/// Returns the NAR of a file.
pub(super) fn nar(contents: &str) -> Vec<u8> {
    let mut nar = nar_head(contents.len() as u64);
    nar.extend_from_slice(contents.as_bytes());
    nar_write::end_file(&mut nar, contents.len() as u64);
    nar
}

/// Returns the NAR of a file up to its contents.
pub(super) fn nar_head(len: u64) -> Vec<u8> {
    let mut nar = Vec::new();
    nar_write::begin(&mut nar);
    nar_write::begin_file(&mut nar, false, len);
    nar
}

pub(super) fn hash(bytes: &[u8]) -> String {
    nix32::encode(&sha256(bytes))
}

/// Returns the hash part of a path, whose name is a letter.
pub(super) fn part(letter: &str) -> String {
    letter.repeat(32)
}

/// Returns the narinfo of a path.
pub(super) fn narinfo(letter: &str, name: &str, nar: &[u8], references: &str) -> String {
    format!(
        "StorePath: /nix/store/{}-{name}\nURL: nar/{hash}.nar\nCompression: none\n\
         FileHash: sha256:{hash}\nFileSize: {len}\nNarHash: sha256:{hash}\nNarSize: {len}\n\
         References: {references}\n",
        part(letter),
        hash = hash(nar),
        len = nar.len()
    )
}

#[test]
fn only_true_narinfos_are_published() {
    let receiving = Receiving::start(&[]);
    let (one, other) = (nar("one"), nar("other"));
    let put = |target: &str, body: &[u8]| {
        let response = receiving.put(target, body);
        (response.status, response.text().to_owned())
    };
    let refuse = |status: u16, target: &str, body: &[u8], reason: &str| {
        let before = receiving.files();
        let (found, text) = put(target, body);
        assert_eq!(found, status, "{target}: {text}");
        assert!(text.contains(reason), "{text:?} lacks {reason:?}");
        assert_eq!(receiving.files(), before, "{target}");
        let (mut client, login) = (receiving.server.connect(), bearer(&receiving.token));
        if target.ends_with(".narinfo") && status != 409 {
            assert_eq!(client.request("GET", target, &login).status, 404);
        }
    };
    let file = |nar: &[u8]| format!("/nar/{}.nar", hash(nar));
    let target = |letter: &str| format!("/{}.narinfo", part(letter));
    let good = narinfo("a", "web", &one, "");
    refuse(409, &target("a"), good.as_bytes(), "upload it first");
    refuse(400, &file(&one), &other, "the contents of");
    assert_eq!(put(&file(&one), &one).0, 201);
    refuse(400, &target("b"), good.as_bytes(), "is that of");
    refuse(400, &target("a"), b"<html>", "web page");
    refuse(400, &target("a"), b"", "StorePath is missing");
    let change = |from: &str, to: &str| good.replacen(from, to, 1).into_bytes();
    let wrong = format!("NarHash: sha256:{}", hash(&other));
    let right = format!("NarHash: sha256:{}", hash(&one));
    refuse(
        400,
        &target("a"),
        &change(&right, &wrong),
        "has the NAR hash",
    );
    let len = one.len();
    let size = format!("NarSize: {len}");
    for wrong in ["NarSize: 8", "NarSize: 9999"] {
        let changed = change(&size, wrong);
        refuse(400, &target("a"), &changed, "has the NAR hash");
    }
    let size = format!("FileSize: {len}");
    refuse(
        400,
        &target("a"),
        &change(&size, "FileSize: 8"),
        "is a file of",
    );
    for url in [
        "../x.nar",
        "nar/../x",
        "/etc/passwd",
        "https://host/x.nar",
        "nar/.x",
    ] {
        let url = format!("URL: {url}\n");
        let changed = change(&format!("URL: nar/{}.nar\n", hash(&one)), &url);
        refuse(400, &target("a"), &changed, "");
    }
    let compressed = change("Compression: none", "Compression: xz");
    refuse(400, &target("a"), &compressed, "cannot be decompressed");
    let absent = narinfo("a", "web", &one, &format!("{}-libx", part("d")));
    refuse(409, &target("a"), absent.as_bytes(), "push it first");
    refuse(403, "/nix-cache-info", b"StoreDir: /x\n", "no such object");
    refuse(403, "/nar/../x.nar", b"x", "no such object");
    refuse(403, "/health", b"x", "no such object");

    // A path may refer to itself, to one of the cache, and to one of the store.
    assert_eq!(put(&target("a"), good.as_bytes()).0, 201);
    let base = |path: &str| path["/nix/store/".len()..].to_owned();
    let references = format!(
        "{}-web {}-x {}",
        part("a"),
        part("c"),
        base(&receiving.in_store)
    );
    assert_eq!(put(&file(&other), &other).0, 201);
    let referrer = narinfo("c", "x", &other, &references);
    assert_eq!(put(&target("c"), referrer.as_bytes()), (201, String::new()));
    // The facts of a path do not change, but signatures are added.
    let changed = narinfo("a", "web", &other, "");
    refuse(409, &target("a"), changed.as_bytes(), "another NAR hash");
    let signature = "x:".to_owned() + &"A".repeat(86) + "==";
    let signed = format!("{good}Sig: {signature}\n");
    assert_eq!(put(&target("a"), signed.as_bytes()).0, 201);
    assert_eq!(put(&target("a"), good.as_bytes()).0, 201);
    let text = receiving.get(&target("a")).text().to_owned();
    assert!(
        text.contains(&signature) && text.contains("Sig: server-1:"),
        "{text}"
    );
    assert_eq!(receiving.get(&file(&one)).body, one);
    let range = format!("{}Range: bytes=8-15\r\n", bearer(&receiving.token));
    assert_eq!(
        receiving.server.get_with(&file(&one), &range).body,
        one[8..16]
    );
    receiving.verify_facts();
    assert_eq!(receiving.server.stop(), "");
}

impl Receiving {
    /// Checks that no lease and no temporary file stays.
    fn verify_facts(&self) {
        let files = self.files();
        let is_left = |name: &String| name.starts_with("leases/") || name.contains("/.");
        assert!(!files.iter().any(is_left), "{files:?}");
    }
}

#[test]
fn logins_limit_what_is_uploaded() {
    let receiving = Receiving::start(&[]);
    let reader = add_token(&receiving.logins, &["reader"]);
    let limited = add_token(&receiving.logins, &["web", "--scope", "read,push=web-"]);
    receiving.server.signal(rustix::process::Signal::HUP);
    let contents = nar("one");
    let file = format!("/nar/{}.nar", hash(&contents));
    let upload = |token: &str, target: &str, body: &[u8]| {
        put(&mut receiving.server.connect(), token, target, body)
    };
    wait_until("the new logins", || {
        upload(&limited, &file, &contents).status == 201
    });
    assert_eq!(upload(&reader, &file, &contents).status, 403);
    assert_eq!(upload("floe_wrong", &file, &contents).status, 401);
    let own = narinfo("a", "web-1", &contents, "");
    let target = format!("/{}.narinfo", part("a"));
    assert_eq!(upload(&reader, &target, own.as_bytes()).status, 403);
    assert_eq!(upload(&limited, &target, own.as_bytes()).status, 201);
    let foreign = narinfo("b", "api-1", &contents, "");
    let target = format!("/{}.narinfo", part("b"));
    let refused = upload(&limited, &target, foreign.as_bytes());
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("names begin with web-"),
        "{}",
        refused.text()
    );
    let listing = |letter: &str| upload(&limited, &format!("/{}.ls", part(letter)), b"{}").status;
    assert_eq!((listing("a"), listing("b")), (201, 403));
    let log = |name: &str| {
        let target = format!("/log/{}-{name}.drv", part("d"));
        upload(&limited, &target, b"log").status
    };
    assert_eq!((log("web-1"), log("api-1")), (201, 403));
    let id = format!("sha256:{}!out", "0".repeat(64));
    let realisation = |token: &str, letter: &str, name: &str| {
        let text = format!(
            r#"{{"id":"{id}","outPath":"{}-{name}","signatures":[],"dependentRealisations":{{}}}}"#,
            part(letter)
        );
        upload(token, &format!("/realisations/{id}.doi"), text.as_bytes()).status
    };
    let (all, absent) = (&receiving.token, "c");
    assert_eq!(realisation(&limited, "a", "web-1"), 403);
    assert_eq!(realisation(all, absent, "web-2"), 409);
    assert_eq!(realisation(all, "a", "web-1"), 201);
    assert_eq!(upload(all, &target, foreign.as_bytes()).status, 201);
    assert_eq!(realisation(all, "b", "api-1"), 409);
    let found = receiving.get(&format!("/realisations/{id}.doi"));
    assert!(found.text().contains("-web-1"), "{}", found.text());
    let list = run(floe(["serve", "auth", "list", "--auth-file"]).arg(&receiving.logins));
    assert!(
        list.stdout.contains("web token read,push=web- never"),
        "{}",
        list.stdout
    );
}

#[test]
fn clients_change_nothing_that_others_have_uploaded() {
    let receiving = Receiving::start(&[]);
    let contents = nar("one");
    let target = format!("/{}.narinfo", part("a"));
    let put = |target: &str, body: &[u8]| {
        let response = receiving.put(target, body);
        assert_eq!(response.status, 201, "{target}: {}", response.text());
    };
    put(&format!("/nar/{}.nar", hash(&contents)), &contents);
    let good = narinfo("a", "web", &contents, "");
    let signature = format!("Sig: x:{}==", "A".repeat(86));
    put(&target, format!("{good}{signature}\n").as_bytes());
    let flood: String = (0..3000)
        .map(|number| format!("Sig: {number}:{}==\n", "A".repeat(86)))
        .collect();
    put("/nar/other.nar", &contents);
    let other = good.replace(&format!("nar/{}.nar", hash(&contents)), "nar/other.nar");
    let flooded = format!("{other}Deriver: {}-evil.drv\n{flood}", part("d"));
    put(&target, flooded.as_bytes());
    let text = receiving.get(&target).text().to_owned();
    assert!(text.len() < 20_000, "{}", text.len());
    assert!(
        !text.contains("evil") && !text.contains("other.nar"),
        "{text}"
    );
    assert!(
        text.contains(&signature) && text.contains("Sig: server-1:"),
        "{text}"
    );
    assert!(text.contains("Sig: 0:"), "new signatures are added, too");
    // Another name with the same hash is no way to other contents.
    let evil = nar("evil");
    put(&format!("/nar/{}.nar", hash(&evil)), &evil);
    for name in ["other", "web"] {
        let evil = narinfo("a", name, &evil, "");
        let refused = receiving.put(&target, evil.as_bytes());
        assert_eq!(refused.status, 409, "{}", refused.text());
    }
    let renamed = receiving.put(&target, narinfo("a", "other", &contents, "").as_bytes());
    assert_eq!(renamed.status, 409, "{}", renamed.text());
    let listing = format!("/{}.ls", part("a"));
    put(&listing, br#"{"version":1}"#);
    put(&listing, b"{}");
    assert_eq!(receiving.get(&listing).body, br#"{"version":1}"#);
}

/// NARs that take minutes to verify keep no other request waiting, and end with the server.
#[test]
fn verification_delays_no_other_request() {
    let receiving = Receiving::start(&["--threads", "1"]);
    let zeros = zstd::encode_all(&vec![0; 64 << 20][..], 1).unwrap();
    // The limit is 16 GiB.
    let len: u64 = 200 * (64 << 20);
    let mut bomb = zstd::encode_all(&nar_head(len)[..], 1).unwrap();
    (0..200).for_each(|_| bomb.extend_from_slice(&zeros));
    let file = format!("nar/{}.nar.zst", hash(&bomb));
    assert_eq!(receiving.put(&format!("/{file}"), &bomb).status, 201);
    let narinfo = |letter: &str| {
        let text = narinfo(letter, "web", &bomb, "");
        let size = format!("NarSize: {}", bomb.len());
        let text = text.replace(&size, &format!("NarSize: {len}"));
        let text = text.replace(".nar\n", ".nar.zst\n");
        text.replace("Compression: none", "Compression: zstd")
    };
    let clients: Vec<_> = "0123456789abcdfghijk"
        .chars()
        .map(|letter| {
            let letter = letter.to_string();
            let (body, login) = (narinfo(&letter), bearer(&receiving.token));
            let mut client = receiving.server.connect();
            let head = format!(
                "PUT /{}.narinfo HTTP/1.1\r\nHost: h\r\n{login}Content-Length: {}\r\n\r\n",
                part(&letter),
                body.len()
            );
            client.send(&[head.as_bytes(), body.as_bytes()].concat());
            client
        })
        .collect();
    // The workers have begun.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let began = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(receiving.get(&format!("/{file}")).body.len(), bomb.len());
        let hash_part = &receiving.in_store["/nix/store/".len()..][..32];
        assert_eq!(receiving.get(&format!("/nar/{hash_part}.nar")).status, 200);
    }
    // Nor does another upload wait.
    let other = nar("other");
    let target = format!("/nar/{}.nar", hash(&other));
    assert_eq!(receiving.put(&target, &other).status, 201);
    let target = format!("/{}.narinfo", part("z"));
    let text = super::uploads::narinfo("z", "other", &other, "");
    assert_eq!(receiving.put(&target, text.as_bytes()).status, 201);
    // One verification takes minutes, and the server has more of them than workers.
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
    assert_eq!(receiving.server.stop(), "");
    // Four are verified at once.
    let replies = clients.into_iter().map(|mut client| client.read_rest());
    let busy = replies.filter(|reply| reply.starts_with(b"HTTP/1.1 503"));
    assert!(busy.count() >= 16);
}

#[test]
fn bodies_of_all_forms_are_received() {
    let receiving = Receiving::start(&[]);
    let contents = nar("one");
    let target = format!("/nar/{}.nar", hash(&contents));
    let login = bearer(&receiving.token);
    let head =
        |fields: &str| format!("PUT {target} HTTP/1.1\r\nHost: h\r\n{login}{fields}\r\n\r\n");
    let mut client = receiving.server.connect();
    let mut chunks = head("Transfer-Encoding: chunked").into_bytes();
    for chunk in contents.chunks(7) {
        chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    // Two uploads and a request arrive in one piece.
    let get = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{login}\r\n");
    client.send(&[&chunks[..], &chunks, get.as_bytes()].concat());
    for _ in 0..2 {
        assert_eq!(client.read_response(false).unwrap().status, 201);
    }
    assert_eq!(client.read_response(false).unwrap().body, contents);
    // Byte by byte, on the same connection.
    for byte in &chunks {
        client.send(&[*byte]);
    }
    assert_eq!(client.read_response(false).unwrap().status, 201);
    let len = contents.len();
    client.send(head(&format!("Content-Length: {len}\r\nExpect: 100-continue")).as_bytes());
    assert_eq!(client.read_head().unwrap().status, 100);
    client.send(&contents);
    assert_eq!(client.read_response(false).unwrap().status, 201);
    for (fields, status) in [
        ("Content-Length: 3\r\nContent-Encoding: gzip", 415),
        ("Transfer-Encoding: gzip, chunked", 415),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
    ] {
        let mut client = receiving.server.connect();
        client.send(&[head(fields).as_bytes(), b"3\r\nabc\r\n0\r\n\r\n"].concat());
        assert_eq!(
            client.read_response(false).unwrap().status,
            status,
            "{fields}"
        );
        assert_eq!(client.read_rest(), b"", "{fields}");
    }
    let mut client = receiving.server.connect();
    client.send(&[head("Transfer-Encoding: chunked").as_bytes(), b"x\r\n"].concat());
    assert_eq!(client.read_response(false).unwrap().status, 400);
    assert_eq!(receiving.server.stop(), "");
}

/// Whatever is uploaded half never becomes visible, also if the server is killed.
#[test]
fn broken_uploads_leave_nothing() {
    let receiving = Receiving::start(&[]);
    let contents = vec![7; 3_000_000];
    let target = format!("/nar/{}.nar", hash(&contents));
    let login = bearer(&receiving.token);
    let head = format!(
        "PUT {target} HTTP/1.1\r\nHost: h\r\n{login}Content-Length: {}\r\n\r\n",
        contents.len()
    );
    let begin = |server: &crate::server_process::ServerProcess| {
        let mut client = server.connect();
        client.send(&[head.as_bytes(), &contents[..2_000_000]].concat());
        wait_until("a temporary file", || {
            let files = receiving.files();
            files.iter().any(|name| name.starts_with("nar/"))
        });
        client
    };
    let client = begin(&receiving.server);
    assert_eq!(receiving.get(&target).status, 404);
    client.stream.get_ref().shutdown(Shutdown::Both).unwrap();
    wait_until("the end of the upload", || {
        receiving.files() == ["nix-cache-info"]
    });
    let _client = begin(&receiving.server);
    receiving.server.signal(rustix::process::Signal::KILL);
    wait_until("the end of the server", || {
        std::net::TcpStream::connect(receiving.server.url().trim_start_matches("http://")).is_err()
    });
    assert_ne!(receiving.files(), ["nix-cache-info"]);
    let server = serve(&receiving.scratch, &[]);
    assert_eq!(receiving.files(), ["nix-cache-info"]);
    let mut client = server.connect();
    assert_eq!(
        put(&mut client, &receiving.token, &target, &contents).status,
        201
    );
    // A file that was damaged since is replaced.
    let file = receiving.directory.join(&target[1..]);
    fs::File::create(&file).unwrap().write_all(b"x").unwrap();
    assert_eq!(
        put(&mut client, &receiving.token, &target, &contents).status,
        201
    );
    assert_eq!(fs::read(&file).unwrap(), contents);
}

/// A collection runs beside the server, whose uploads count as those of a push.
#[test]
fn collection_deletes_what_no_pin_needs() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&[]);
    run(&mut receiving.push(&corpus)).expect(0);
    let uri = format!("file://{}", receiving.directory.display());
    let gc = |more: &[&str]| {
        let args = [
            "cache",
            "gc",
            &uri,
            "--json",
            "--keep-since",
            "0s",
            "--grace",
        ];
        run(floe(args).args(more)).expect(0).json()
    };
    assert_eq!(gc(&["1h"])["paths"].as_array().unwrap().len(), 0);
    assert_eq!(
        gc(&["0s"])["paths"].as_array().unwrap().len(),
        corpus.paths.len()
    );
    let narinfo = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    assert_eq!(receiving.get(&narinfo).status, 404);
    run(&mut receiving.push(&corpus)).expect(0);
    receiving.verify();
    assert!(source_root(&corpus).len() > 1);
}
