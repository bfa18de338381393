//! Thousands of mutated and random requests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use floe_testkit::http_client::{hash_part, narinfo_of};
use floe_testkit::{XorShift, corpus, wait_until};

use super::{FAULT_TIMEOUT, assert_prompt, descriptors};
use crate::server_process::ServerProcess;

/// Valid requests that are mutated.
fn seeds(serve: &ServerProcess, root: &str) -> Vec<Vec<u8>> {
    let hash = hash_part(root);
    let nar = serve.get(&narinfo_of(root)).narinfo_field("URL").to_owned();
    let targets = [
        "/".to_owned(),
        "/nix-cache-info".into(),
        narinfo_of(root),
        format!("{}?json", narinfo_of(root)),
        format!("/{nar}"),
        format!("/nar/{hash}.nar"),
        format!("/{hash}.ls"),
        format!("/log/{hash}"),
        format!("/log/{hash}-x.drv"),
        format!("/serve/{hash}/usr/bin/../bin/jq"),
        format!("/realisations/sha256:{hash}!out.doi"),
        format!("/build-trace-v2/{hash}-x.drv/out.doi"),
        format!("http://floe{}", narinfo_of(root)),
    ];
    let fields = "Host: floe\r\nRange: bytes=0-9,20-30\r\nIf-Range: \"x\"\r\n\
                  If-None-Match: W/\"x\", \"y\"\r\nAccept-Encoding: gzip;q=0.5, zstd;q=1\r\n\
                  Connection: keep-alive\r\nContent-Length: 0\r\n";
    let heads = targets.iter().flat_map(|target| {
        ["GET", "HEAD"]
            .map(|method| format!("{method} {target} HTTP/1.1\r\n{fields}\r\n").into_bytes())
    });
    heads.collect()
}

/// Returns random bytes or a mutated request.
fn mutated_request(rng: &mut XorShift, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = &seeds[rng.below(seeds.len())];
    let mut bytes = seed.clone();
    match rng.below(6) {
        0 => (0..rng.below(300)).map(|_| random_byte(rng)).collect(),
        1 => {
            bytes.truncate(rng.below(seed.len()));
            bytes
        }
        2 => {
            let other = &seeds[rng.below(seeds.len())];
            bytes.truncate(rng.below(seed.len()));
            bytes.extend_from_slice(&other[rng.below(other.len())..]);
            bytes
        }
        3 => {
            let at = rng.below(seed.len());
            let piece = seed[at..].to_vec();
            for _ in 0..rng.below(20) {
                bytes.extend_from_slice(&piece);
            }
            bytes
        }
        _ => {
            for _ in 0..=rng.below(8) {
                let at = rng.below(bytes.len());
                match rng.below(3) {
                    0 => bytes[at] = random_byte(rng),
                    1 => bytes.insert(at, random_byte(rng)),
                    _ => drop(bytes.remove(at)),
                }
            }
            bytes
        }
    }
}

fn random_byte(rng: &mut XorShift) -> u8 {
    // Prefer bytes with a meaning in HTTP.
    let known = b"\r\n\0 /%:=-,;\xff?&.";
    match rng.below(2) {
        0 => known[rng.below(known.len())],
        _ => u8::try_from(rng.below(256)).unwrap(),
    }
}

/// Acts as one client: sends bytes in random pieces, and reads the response or not.
fn send_garbage(address: &str, rng: &mut XorShift, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    let patience = Some(Duration::from_millis(20));
    stream.set_read_timeout(patience).unwrap();
    stream.set_nodelay(true).unwrap();
    let piece = match rng.below(10) {
        0 => 1,
        1 => 1 + rng.below(40),
        _ => bytes.len().max(1),
    };
    for part in bytes.chunks(piece) {
        // The server may have closed the connection already.
        if stream.write_all(part).is_err() {
            return;
        }
    }
    match rng.below(4) {
        // Disconnect before the response, or shut down writing first.
        0 => {}
        1 => {
            let _: std::io::Result<()> = stream.shutdown(std::net::Shutdown::Write);
            read_all(&mut stream);
        }
        2 => read_all(&mut stream),
        _ => drop(stream.read(&mut [0; 100])),
    }
}

fn read_all(stream: &mut TcpStream) {
    let mut response = Vec::new();
    let _: std::io::Result<usize> = stream.read_to_end(&mut response);
    let is_answer = response.is_empty() || response.starts_with(b"HTTP/1.1 ");
    assert!(is_answer, "{:?}", String::from_utf8_lossy(&response));
}

#[test]
fn server_survives_ten_thousand_garbled_requests() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--read-timeout", FAULT_TIMEOUT]);
    let seeds = seeds(&serve, &corpus.root);
    for seed in &seeds {
        let response =
            serve.exchange(&[&seed[..seed.len() - 2], b"Connection: close\r\n\r\n"].concat());
        assert!(
            response.starts_with(b"HTTP/1.1 "),
            "{}",
            String::from_utf8_lossy(seed)
        );
    }
    let least = descriptors(&serve);
    let address = serve.url().trim_start_matches("http://").to_owned();
    thread::scope(|scope| {
        for number in 1..=CLIENTS {
            let (seeds, address) = (&seeds, &address);
            scope.spawn(move || {
                let mut rng = XorShift(0x0bad_cafe * number as u64);
                for _ in 0..REQUESTS / CLIENTS {
                    let bytes = mutated_request(&mut rng, seeds);
                    send_garbage(address, &mut rng, &bytes);
                }
            });
        }
        for _ in 0..20 {
            // Honest requests come now and then during the load.
            thread::sleep(Duration::from_millis(100));
            assert_prompt(&serve, &narinfo_of(&corpus.root), "during garbage");
        }
    });
    assert_prompt(&serve, "/nix-cache-info", "after garbage");
    wait_until("connections remain open", || {
        descriptors(&serve) <= least + super::DESCRIPTOR_TOLERANCE
    });
    let stderr = serve.stop();
    assert!(!stderr.contains("panic"), "{stderr}");
}

const REQUESTS: usize = 10_000;
/// Clients spend most of their time waiting.
const CLIENTS: usize = 40;
