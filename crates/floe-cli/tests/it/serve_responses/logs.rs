//! `/log`: build logs where Nix stores them, by every name of the derivation.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use floe_testkit::http_client::{Client, hash_part};
use floe_testkit::{Corpus, Nix, corpus, nixes, run, scratch};

use super::{NO_STORE_HEADERS, assert_response};
use crate::server_process::ServerProcess;

/// Returns the deriver of a path according to the database.
pub(crate) fn deriver(corpus: &Corpus, nix: &Nix, path: &str) -> String {
    let args = ["path-info", "--json", "--store"];
    let mut command = nix.command("nix", args);
    let json = run(command.arg(corpus.store()).arg(path)).expect(0).json();
    let info = json.get(0).or(json.get(path)).unwrap();
    info["deriver"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned()
}

/// Serves a corpus with another log directory.
pub(crate) fn serve_with_logs(corpus: &Corpus, log_dir: &Path) -> ServerProcess {
    let root = corpus.store();
    let store = format!("local?root={}&log={}", root.display(), log_dir.display());
    ServerProcess::start(store, &[])
}

/// Compresses a log as Nix does by default, in blocks of 900 kB.
pub(crate) fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn log_is_found_by_every_name_of_its_derivation() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let derivation = deriver(&corpus, nix, &corpus.root);
        let output = corpus.root.rsplit('/').next().unwrap();
        let text = b"building\n".repeat(20_000);
        let fanned = format!("drvs/{}/{}", &derivation[..2], &derivation[2..]);
        for (file, is_compressed) in [
            (fanned.clone(), false),
            (format!("{fanned}.bz2"), true),
            (format!("drvs/{derivation}"), false),
            (format!("drvs/{derivation}.bz2"), true),
        ] {
            let scratch = scratch();
            let serve = serve_with_logs(&corpus, scratch.path());
            let names = [
                derivation.as_str(),
                output,
                hash_part(output),
                hash_part(&derivation),
            ];
            assert_eq!(
                serve.get(&format!("/log/{output}")).status,
                404,
                "the log exists too early"
            );
            let path = scratch.join(&file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if is_compressed {
                fs::write(&path, compress(&text)).unwrap()
            } else {
                fs::write(&path, &text).unwrap()
            }
            for name in names {
                if name == hash_part(&derivation) && !file.starts_with(&fanned) {
                    continue;
                }
                let mut client = serve.connect();
                let response = client.request("GET", &format!("/log/{name}"), "");
                let length = text.len().to_string();
                let (length, chunked) = if is_compressed {
                    ("-", "chunked")
                } else {
                    (length.as_str(), "-")
                };
                let fields = [
                    ("Content-Type", "text/plain"),
                    ("Cache-Control", "no-cache"),
                    ("Content-Length", length),
                    ("Transfer-Encoding", chunked),
                ];
                assert_response(name, &response, 200, &fields);
                assert!(response.body == text, "{file}: {name}");
                let head = client.request("HEAD", &format!("/log/{name}"), "");
                assert_response(name, &head, 200, &fields[..3]);
            }
            let foreign = format!("/log/{}-other.drv", hash_part(output));
            assert_response("foreign", &serve.get(&foreign), 404, NO_STORE_HEADERS);
            assert_eq!(serve.stop(), "");
        }
    }
}

#[test]
fn truncated_compressed_log_ends_without_last_chunk() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let name = format!("{}-x.drv", "0".repeat(32));
    let file = scratch.join(&format!("drvs/00/{}.bz2", &name[2..]));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut compressed = compress(&b"0123456789".repeat(300_000));
    compressed.truncate(compressed.len() / 2);
    fs::write(&file, compressed).unwrap();
    let serve = serve_with_logs(&corpus, scratch.path());
    let broken = serve
        .connect()
        .try_request("GET", &format!("/log/{name}"), "");
    broken.unwrap_err();
    assert_eq!(serve.get("/nix-cache-info").status, 200);
    assert!(serve.stop().contains("aborting a response"));
}

#[test]
fn empty_log_is_served() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let name = format!("{}-x.drv", "0".repeat(32));
    let file = scratch.join(&format!("drvs/00/{}", &name[2..]));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "").unwrap();
    let serve = serve_with_logs(&corpus, scratch.path());
    let response = serve.get(&format!("/log/{name}"));
    assert_response("empty", &response, 200, &[("Content-Length", "0")]);
}

#[test]
fn log_behind_a_symlink_or_fifo_is_absent() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let log = scratch.join("logs/drvs/00");
    fs::create_dir_all(&log).unwrap();
    fs::write(scratch.join("secret"), "a secret").unwrap();
    let name = |kind: &str| format!("{}-{kind}.drv", "0".repeat(32));
    let file = |kind: &str| log.join(name(kind).split_at(2).1);
    fs::write(file("plain"), "a log").unwrap();
    symlink(scratch.join("secret"), file("absolute")).unwrap();
    symlink("../../../secret", file("relative")).unwrap();
    symlink(scratch.join("secret"), log.join("symlink.drv.bz2")).unwrap();
    symlink("00", scratch.join("logs/drvs/11")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, file("fifo"), fifo, mode, 0).unwrap();

    let serve = serve_with_logs(&corpus, &scratch.join("logs"));
    assert_eq!(serve.get(&format!("/log/{}", name("plain"))).body, b"a log");
    let through_directory = name("plain").replacen("00", "11", 1);
    let others = ["absolute", "relative", "symlink"].map(name);
    for absent in others.iter().chain([&through_directory]) {
        let response = serve.get(&format!("/log/{absent}"));
        assert_eq!(response.status, 404, "{absent}");
    }
    // More requests than there are workers: each would wait for a writer of the FIFO.
    let mut clients: Vec<Client> = (0..100).map(|_| serve.connect()).collect();
    let request = format!("GET /log/{} HTTP/1.1\r\nHost: floe\r\n\r\n", name("fifo"));
    for client in &mut clients {
        client.send(request.as_bytes());
    }
    for client in &mut clients {
        assert_eq!(client.read_response(false).unwrap().status, 404);
    }
    assert_eq!(serve.stop(), "");
}
