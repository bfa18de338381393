//! NARs written to descriptors whose reader is slow or inactive.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use floe_messages::{Error, ErrorKind, Method, NarReply, NarRequest};
use floe_testkit::{Corpus, corpus};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::host::*;

/// A pipe whose writing end the host passes to the library, and the request for it.
struct Dump {
    reader: std::io::PipeReader,
    writer: OwnedFd,
    store: String,
    path: String,
}

impl Dump {
    fn new(corpus: &Corpus) -> Dump {
        let (reader, writer) = std::io::pipe().unwrap();
        let largest = corpus.paths.iter().max_by_key(|path| {
            let path = corpus.store().join(&path[1..]);
            std::fs::read_dir(path).map_or(0, Iterator::count)
        });
        Dump {
            reader,
            writer: writer.into(),
            store: corpus.store().display().to_string(),
            path: largest.unwrap().clone(),
        }
    }

    fn submit(&self, host: &Host, deadline: Option<Duration>) -> u64 {
        let request = NarRequest {
            store: &self.store,
            path: &self.path,
            ..Default::default()
        };
        let mut ask = TestRequest::new(Method::Nar, &request);
        ask.request.flags = floe::HAS_DESCRIPTOR;
        ask.request.descriptor = self.writer.as_raw_fd();
        ask.request.deadline_ms = deadline.map_or(0, |time| time.as_millis() as u64);
        ask.submit(host.engine).unwrap()
    }

    /// Waits until the pipe is full.
    fn fill(&self) {
        let begun = Instant::now();
        let mut before = 0;
        loop {
            // A full pipe holds the same number of bytes twice.
            std::thread::sleep(Duration::from_millis(200));
            let held = rustix::io::ioctl_fionread(&self.reader).unwrap();
            if held > 0 && held == before {
                return;
            }
            before = held;
            assert!(begun.elapsed() < DEADLINE, "the pipe never fills");
        }
    }
}

#[test]
fn full_pipe_delays_no_cancel_deadline_or_close() {
    let Some(corpus) = corpus("curl") else { return };
    let host = Host::new();
    let dump = Dump::new(&corpus);
    let request = dump.submit(&host, None);
    dump.fill();
    assert_eq!(floe::floe_cancel(host.engine, request), OK);
    assert_eq!(host.end().kind, CANCELLED);

    let dump = Dump::new(&corpus);
    dump.submit(&host, Some(Duration::from_millis(600)));
    let got = host.end();
    assert_eq!(got.kind, FAILED);
    assert_eq!(got.message::<Error<'_>>().kind, ErrorKind::Deadline);

    let dump = Dump::new(&corpus);
    dump.submit(&host, None);
    dump.fill();
    assert_eq!(floe::floe_engine_close(host.engine), OK);
    assert_eq!(host.end().kind, SHUT_DOWN);
}

#[test]
fn nonblocking_pipe_gets_whole_nar() {
    let Some(corpus) = corpus("curl") else { return };
    let host = Host::new();
    let mut dump = Dump::new(&corpus);
    let flags = fcntl_getfl(&dump.writer).unwrap();
    fcntl_setfl(&dump.writer, flags | OFlags::NONBLOCK).unwrap();
    dump.submit(&host, None);
    dump.fill();
    let (reader, writer) = (&mut dump.reader, dump.writer);
    drop(writer);
    let mut nar = Vec::new();
    reader.read_to_end(&mut nar).unwrap();
    let got = host.end();
    assert_eq!(got.reply::<NarReply>().nar_size, nar.len() as u64);
    let mut whole: Vec<u8> = Vec::new();
    let path = corpus.store().join(&dump.path[1..]);
    floe_store::tree::dump_path(&path, &mut |chunk: &[u8]| {
        whole.extend_from_slice(chunk);
        Ok::<(), floe_store::StoreError>(())
    })
    .unwrap();
    assert!(nar == whole && !nar.is_empty());
}
