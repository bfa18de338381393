//! Servers behind proxies: nginx with `X-Forwarded-For`, HAProxy with the PROXY protocol.

mod forwarded_for;
mod proxy_protocol;

use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::{Corpus, Scratch, wait_until};
use serde_json::Value;

use crate::server_process::ServerProcess;

/// A server with an access log in JSON.
struct LoggedServer {
    server: ServerProcess,
    log: PathBuf,
}

impl LoggedServer {
    /// Serves a corpus, signed with its key.
    #[track_caller]
    fn start(corpus: &Corpus, scratch: &Scratch, args: &[&str]) -> LoggedServer {
        let log = scratch.join("access.log");
        let key = corpus.dir.join("key.sec").display().to_string();
        let log_name = log.display().to_string();
        let own = ["--access-log", &log_name, "--access-log-format", "json"];
        let own = [&own[..], &["--secret-key-file", &key]].concat();
        let server = ServerProcess::start(corpus.store(), &[&own, args].concat());
        LoggedServer { server, log }
    }

    /// Returns `HOST:PORT`.
    fn address(&self) -> String {
        let url = self.server.url();
        url.split_once("://").unwrap().1.to_owned()
    }

    /// Waits for a number of lines, and returns a field of each of them. Lines of different threads
    /// have no order.
    #[track_caller]
    fn logged(&self, count: usize, field: &str) -> Vec<String> {
        wait_until("the requests are not logged", || {
            lines(&self.log).len() >= count
        });
        let lines = lines(&self.log);
        let values = lines.iter().map(|line| line[field].as_str());
        values.map(|value| value.unwrap_or("-").into()).collect()
    }
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let complete = text.split_inclusive('\n');
    let complete = complete.filter(|line| line.ends_with('\n'));
    complete
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
