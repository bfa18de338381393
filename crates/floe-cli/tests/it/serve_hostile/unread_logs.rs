//! Clients that request compressed build logs and do not read them.

use std::fs;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{corpus, scratch};

use super::{assert_prompt, memory};
use crate::serve_responses::logs::{compress, serve_with_logs};

/// A text that is larger than the buffers of a connection.
fn long_text() -> Vec<u8> {
    let lines = (0..1_000_000).map(|number: u32| format!("line {number}\n"));
    lines.collect::<String>().into_bytes()
}

#[test]
fn unread_compressed_logs_hold_few_decoders() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (text, name) = (long_text(), format!("{}-x.drv", "0".repeat(32)));
    let file = scratch.join(&format!("drvs/00/{}.bz2", &name[2..]));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, compress(&text)).unwrap();
    let serve = serve_with_logs(&corpus, scratch.path());
    let log = format!("/log/{name}");
    assert!(serve.get(&log).body == text, "the log differs");

    let before = memory(&serve, "VmRSS:");
    let mut unread: Vec<Client> = (0..200).map(|_| serve.connect()).collect();
    for client in &mut unread {
        client.send(format!("GET {log} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
    }
    let heads: Vec<_> = unread
        .iter_mut()
        .map(|client| client.read_head().unwrap())
        .collect();
    let sent = heads.iter().filter(|head| head.status == 200).count();
    assert_eq!(sent, DECODERS);
    for refused in heads.iter().filter(|head| head.status != 200) {
        assert_eq!(refused.status, 503);
        assert_eq!(refused.field("Retry-After"), Some("1"));
    }
    assert_prompt(&serve, &narinfo_of(&corpus.root), "a narinfo");
    assert_eq!(serve.head(&log).status, 200, "HEAD needs no decoder");
    let grown = memory(&serve, "VmHWM:") - before;
    assert!(grown < MEMORY_MAX, "{grown} KiB");

    // The unread responses end, so that other clients get the log.
    let start = Instant::now();
    let response = loop {
        let response = serve.get(&log);
        if response.status != 503 {
            break response;
        }
        assert!(start.elapsed() < SLOW_MAX, "the decoders stay in use");
        // The client tries again later.
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(response.status, 200);
    assert!(response.body == text, "the log differs afterwards");
    let stderr = serve.stop();
    assert!(stderr.contains("decoders for compressed logs"), "{stderr}");
}

/// The number of decoders in the server.
const DECODERS: usize = 16;

/// KiB for the decoders and for the buffers of the connections. A decoder for each connection
/// would need 800 MiB.
const MEMORY_MAX: u64 = (DECODERS as u64 * 4 + 32) * 1024;

/// Two windows of the rate, and some seconds.
const SLOW_MAX: Duration = Duration::from_secs(60);
