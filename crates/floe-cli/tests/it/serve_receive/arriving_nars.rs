//! NARs that a receiving server verifies while they arrive.

use std::fs;
use std::io::Write as _;

use floe_format::Compression;
use floe_transfer::codec;

use super::uploads::{hash, nar, narinfo, part};
use super::{Receiving, serve};

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
        let text = narinfo("a", "web", &nar, "");
        let text = text.replace("Compression: none", &format!("Compression: {compression}"));
        let url = text.lines().find(|line| line.starts_with("URL")).unwrap();
        let text = text.replace(url, &format!("URL: {name}"));
        let is_stated = |line: &&str| !line.starts_with("File");
        let text: String = text
            .lines()
            .filter(is_stated)
            .flat_map(|line| [line, "\n"])
            .collect();
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
