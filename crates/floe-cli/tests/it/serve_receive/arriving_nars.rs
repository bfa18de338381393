//! NARs that a receiving server verifies while they arrive.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::Compression;
use floe_testkit::{XorShift, nixes, run, wait_until, with_wrong_xz_check};
use floe_transfer::codec;
use rustix::process::Signal;

use super::uploads::{hash, nar, nar_head, narinfo, part};
use super::{Receiving, serve};
use crate::serve_logins::bearer;
use crate::support::floe;

/// The server reads the file once more only if it has not seen all of it, or another process has
/// changed it.
#[test]
fn nar_is_verified_while_it_comes() {
    let contents: String = (0..1_000_000_u32)
        .map(|number| (number.wrapping_mul(number) / 7).to_string())
        .collect();
    let nar = nar(&contents);
    for (compression, file) in [
        ("none", nar.clone()),
        ("zstd", zstd::encode_all(&nar[..], 1).unwrap()),
        ("xz", compress_xz(&nar)),
    ] {
        let mut receiving = Receiving::start(&[]);
        let name = format!("nar/{}.nar", hash(&file));
        let text = narinfo_of_file(&nar, (compression, &name));
        let publish = |receiving: &Receiving| {
            let before = receiving.read_bytes();
            let target = format!("/{}.narinfo", part("a"));
            let response = receiving.put(&target, text.as_bytes());
            let is_read = receiving.read_bytes() - before >= file.len() as u64;
            (response.status, is_read, response.text().to_owned())
        };
        assert_eq!(receiving.put(&format!("/{name}"), &file).status, 201);
        let (status, is_read, reply) = publish(&receiving);
        assert_eq!((status, is_read), (201, false), "{compression}: {reply}");
        let published = receiving
            .get(&format!("/{}.narinfo", part("a")))
            .text()
            .to_owned();
        let facts = format!(
            "FileHash: sha256:{}\nFileSize: {}\n",
            hash(&file),
            file.len()
        );
        assert!(published.contains(&facts), "{published}");
        receiving.verify();

        // A server that begins anew has not seen the file.
        fs::remove_file(receiving.directory.join(format!("{}.narinfo", part("a")))).unwrap();
        receiving.restart();
        let (status, is_read, reply) = publish(&receiving);
        assert_eq!((status, is_read), (201, true), "{compression}: {reply}");

        // Another process damages the file, and its length stays.
        fs::remove_file(receiving.directory.join(format!("{}.narinfo", part("a")))).unwrap();
        assert_eq!(receiving.put(&format!("/{name}"), &file).status, 201);
        let mut damaged = file.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        fs::write(receiving.directory.join(&name), damaged).unwrap();
        let (status, _, reply) = publish(&receiving);
        assert_eq!(status, 400, "{compression}: {reply}");
        assert_eq!(receiving.server.stop(), "");
    }
}

/// Nix compares the checks of xz, and so must the server, although the NAR has the right hash.
#[test]
fn xz_file_with_a_wrong_check_is_refused() {
    let nar = nar("contents");
    let right = compress_xz(&nar);
    let file = with_wrong_xz_check(right.clone());
    let name = format!("nar/{}.nar.xz", hash(&file));
    let text = narinfo_of_file(&nar, ("xz", &name));
    let target = format!("/{}.narinfo", part("a"));
    let mut receiving = Receiving::start(&[]);
    for is_known in [true, false] {
        if is_known {
            assert_eq!(receiving.put(&format!("/{name}"), &file).status, 201);
        } else {
            receiving.restart();
        }
        let response = receiving.put(&target, text.as_bytes());
        assert_eq!(response.status, 400, "{}", response.text());
        assert!(response.text().contains("cannot be decompressed"));
        assert_eq!(receiving.get(&target).status, 404);
    }
    fs::write(receiving.directory.join(&target[1..]), &text).unwrap();
    let uri = format!("file://{}", receiving.directory.display());
    let verified = run(&mut floe(["cache", "verify", "--contents", &uri])).expect(3);
    assert!(verified.stdout.contains("cannot decompress"));
    let path = format!("/nix/store/{}-web", part("a"));
    for (number, nix) in nixes().iter().enumerate() {
        for (file, code) in [(&file, 1), (&right, 0)] {
            fs::write(receiving.directory.join(&name), file).unwrap();
            let root = receiving.scratch.join(&format!("by-nix-{number}"));
            let mut copy = nix.command("nix", ["copy", "--no-check-sigs", "--from", &uri, "--to"]);
            run(copy.arg(root).arg(&path)).expect(code);
        }
    }
    assert_eq!(receiving.server.stop(), "");
}

/// Returns the narinfo of a path whose NAR lies compressed in a file. It does not state the hash
/// and the size of the file.
fn narinfo_of_file(nar: &[u8], (compression, file): (&str, &str)) -> String {
    let text = narinfo("a", "web", nar, "");
    let lines = text.lines().filter(|line| !line.starts_with("File"));
    lines
        .map(|line| match line.split_once(": ") {
            Some(("URL", _)) => format!("URL: {file}\n"),
            Some(("Compression", _)) => format!("Compression: {compression}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

fn compress_xz(bytes: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = codec::encoder(Compression::Xz, Some(0), &mut file).unwrap();
    let mut encoder = encoder.unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap();
    file
}

impl Receiving {
    /// Returns how many bytes the server has read from files and sockets.
    fn read_bytes(&self) -> u64 {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.server.pid())).unwrap();
        let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    }

    /// Ends the server, and starts it again.
    fn restart(&mut self) {
        let new = serve(&self.scratch, &[]);
        let old = std::mem::replace(&mut self.server, new);
        assert_eq!(old.stop(), "");
    }
}

/// Clients whose NARs decode slowly, and who send without a pause, delay neither another client nor
/// the end of the server.
#[test]
fn slow_decoding_delays_no_other_client() {
    let receiving = Receiving::start(&["--threads", "1", "--stop-timeout", "1"]);
    let mut rng = XorShift(1);
    let mut contents: Vec<u8> = (0..64 * 1024).map(|_| rng.below(256) as u8).collect();
    contents.resize(2 << 20, 0);
    let frame = zstd::encode_all(&contents[..], 1).unwrap();
    let frame = [format!("{:x}\r\n", frame.len()).as_bytes(), &frame, b"\r\n"].concat();
    let head = zstd::encode_all(&nar_head(1 << 40)[..], 1).unwrap();
    let (url, login) = (receiving.server.url(), bearer(&receiving.token));
    let address = url.strip_prefix("http://").unwrap();
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let mut client = TcpStream::connect(address).unwrap();
            let target = format!("/nar/slow-{number}.nar.zst");
            let fields = format!("Host: h\r\n{login}Transfer-Encoding: chunked\r\n");
            let mut bytes = format!("PUT {target} HTTP/1.1\r\n{fields}\r\n").into_bytes();
            bytes.extend_from_slice(format!("{:x}\r\n", head.len()).as_bytes());
            bytes.extend_from_slice(&[&head[..], b"\r\n"].concat());
            client.write_all(&bytes).unwrap();
            let frame = frame.clone();
            // More than the server decodes in a minute.
            thread::spawn(move || (0..4000).all(|_| client.write_all(&frame).is_ok()))
        })
        .collect();
    let has_begun = || {
        let files = fs::read_dir(receiving.directory.join("nar")).unwrap();
        let lens = files.map(|file| file.unwrap().metadata().map_or(0, |found| found.len()));
        lens.filter(|len| *len > 256 * 1024).count() >= 8
    };
    wait_until("the uploads", has_begun);
    let began = Instant::now();
    let file = nar(&"contents".repeat(100_000));
    let target = format!("/nar/{}.nar", hash(&file));
    assert_eq!(receiving.put(&target, &file).status, 201);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    receiving.server.signal(Signal::TERM);
    receiving.server.wait(Duration::from_secs(20));
    for client in clients {
        assert!(!client.join().unwrap(), "the client has sent everything");
    }
}
