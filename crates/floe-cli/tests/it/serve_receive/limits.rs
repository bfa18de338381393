//! The limits of a receiving server.

use std::fs;
use std::time::{Duration, Instant};

use floe_format::nix32;
use floe_hash::sha256;
use floe_testkit::http_client::Client;
use floe_testkit::{corpus, run};
use rustix::process::{Signal, geteuid};

use super::{Receiving, put};
use crate::serve_logins::{add_token, bearer};

fn target(contents: &[u8]) -> String {
    format!("/nar/{}.nar", nix32::encode(&sha256(contents)))
}

fn chunked(receiving: &Receiving, client: &mut Client, contents: &[u8]) -> u16 {
    let (target, login) = (target(contents), bearer(&receiving.token));
    let head =
        format!("PUT {target} HTTP/1.1\r\nHost: h\r\n{login}Transfer-Encoding: chunked\r\n\r\n");
    let len = format!("{:x}\r\n", contents.len());
    client.send(&[head.as_bytes(), len.as_bytes(), contents, b"\r\n0\r\n\r\n"].concat());
    client.read_response(false).unwrap().status
}

#[test]
fn large_and_many_uploads_are_refused() {
    let receiving = Receiving::start(&[
        "--receive-max-size",
        "100K",
        "--receive-max-total",
        "150K",
        "--receive-rate",
        "20",
    ]);
    let [large, one, other] = [200_000, 90_000, 80_000].map(|len| vec![7_u8; len]);
    let put = |contents: &[u8]| receiving.put(&target(contents), contents);
    let refused = put(&large);
    assert_eq!(refused.status, 413);
    assert!(refused.text().contains("larger than"), "{}", refused.text());
    assert_eq!(
        chunked(&receiving, &mut receiving.server.connect(), &large),
        413
    );
    assert_eq!(put(&one).status, 201);
    let refused = put(&other);
    assert_eq!(refused.status, 507);
    assert!(
        refused.text().contains("the cache is full"),
        "{}",
        refused.text()
    );
    assert_eq!(
        chunked(&receiving, &mut receiving.server.connect(), &other),
        507
    );
    let narinfo = vec![b'x'; 2_000_000];
    let place = format!("/{}.narinfo", "a".repeat(32));
    assert_eq!(receiving.put(&place, &narinfo).status, 413);
    assert_eq!(receiving.files().len(), 2, "{:?}", receiving.files());
    // A collection has made room.
    fs::remove_file(receiving.directory.join(&target(&one)[1..])).unwrap();
    let began = Instant::now();
    let mut status = 507;
    while status == 507 && began.elapsed() < Duration::from_secs(30) {
        // The server looks again after five seconds.
        std::thread::sleep(Duration::from_secs(6));
        status = put(&other).status;
    }
    assert_eq!(status, 201);
    // The same file again takes no more room.
    assert_eq!(put(&other).status, 201);
    let mut uploads = (0..21).map(|_| receiving.put(&place, b"x"));
    let many = uploads.find(|response| response.status == 429).unwrap();
    assert!(many.field("Retry-After").is_some(), "{}", many.head);
    assert_eq!(receiving.server.stop(), "");
}

/// A client that sends a byte now and then keeps no connection.
#[test]
fn slow_uploads_end() {
    let receiving = Receiving::start(&["--timeout", "1", "--read-timeout", "5"]);
    let login = bearer(&receiving.token);
    let mut client = receiving.server.connect();
    let head =
        format!("PUT /nar/x.nar HTTP/1.1\r\nHost: h\r\n{login}Content-Length: 1000000\r\n\r\n");
    client.send(head.as_bytes());
    let began = Instant::now();
    let is_open = |client: &mut Client| {
        use std::io::Write as _;
        client.stream.get_mut().write_all(b"x").is_ok()
    };
    while is_open(&mut client) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the upload goes on"
        );
        // The client is slow.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "the upload was not slow yet"
    );
    assert_eq!(receiving.files(), ["nix-cache-info"]);
    // A client that sends nothing at all ends sooner, also within the length of a chunk.
    let chunked = head.replace("Content-Length: 1000000", "Transfer-Encoding: chunked");
    for head in [head, format!("{chunked}4\r\nabcd\r\n1")] {
        let mut client = receiving.server.connect();
        client.send(head.as_bytes());
        let began = Instant::now();
        assert_eq!(client.read_rest(), b"", "{head}");
        assert!(began.elapsed() < Duration::from_secs(12), "{head}");
    }
}

#[test]
fn queries_cost_no_disk() {
    let receiving = Receiving::start(&[]);
    let login = bearer(&receiving.token);
    let mut client = receiving.server.connect();
    for number in 0..10_000 {
        let digits: String = format!("{number:032}").replace(['1', '8'], "a");
        let response = client.request("HEAD", &format!("/{digits}.narinfo"), &login);
        assert_eq!(response.status, 404);
    }
    assert_eq!(receiving.files(), ["nix-cache-info"]);
    assert_eq!(receiving.server.stop(), "");
}

#[test]
fn full_disk_is_reported() {
    if !geteuid().is_root() {
        return;
    }
    let receiving = Receiving::start(&[]);
    let mount = |args: &[&str]| {
        let place = receiving.directory.join("nar");
        let status = std::process::Command::new(args[0])
            .args(&args[1..])
            .arg(place)
            .status();
        assert!(status.unwrap().success());
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let contents = vec![7; 2_000_000];
    let refused = put(
        &mut receiving.server.connect(),
        &receiving.token,
        &target(&contents),
        &contents,
    );
    let small = vec![7; 1000];
    let next = receiving.put(&target(&small), &small);
    mount(&["umount"]);
    assert_eq!(refused.status, 507);
    assert!(
        refused.text().contains("the disk of the server is full"),
        "{}",
        refused.text()
    );
    assert_eq!(next.status, 201);
    assert_eq!(receiving.server.stop(), "");
}

/// A server with a quota slows all workers of a push together, and the push ends well.
#[test]
fn pushes_wait_for_the_quota() {
    let Some(corpus) = corpus("jq") else { return };
    let max = 2 * corpus.paths.len() - 2;
    let receiving = Receiving::start(&["--receive-rate", &max.to_string()]);
    let metrics = add_token(&receiving.logins, &["prometheus", "--scope", "metrics"]);
    receiving.server.signal(Signal::HUP);
    run(receiving.push(&corpus).args(["--jobs", "8"])).expect(0);
    receiving.verify();
    let response = receiving.server.get_with("/metrics", &bearer(&metrics));
    let refused = response
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("floe_uploads_total{result=\"refused\"} "));
    let refused: usize = refused.unwrap().parse().unwrap();
    // Workers that waited each for itself would be refused many more times in a minute.
    assert!((1..40).contains(&refused), "{refused} uploads were refused");
}

#[test]
fn full_cache_ends_a_push_with_the_words_of_the_server() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&["--receive-max-total", "10K"]);
    let began = Instant::now();
    let refused = run(&mut receiving.push(&corpus));
    assert!(refused.code != Some(0), "{}", refused.stderr);
    refused.stderr_contains("the cache is full: its NARs may have 10 KiB in all");
    assert!(began.elapsed() < Duration::from_secs(30));
}
