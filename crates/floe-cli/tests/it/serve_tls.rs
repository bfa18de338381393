//! `floe serve` with TLS.

mod bad_files;
mod client_certificates;
mod clients;
mod hostile;
mod redirects;
mod reload;

use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::http_client::narinfo_of;
use floe_testkit::{
    Authority, CommandOutput, Corpus, Issued, Scratch, corpus, find_tool, run, scratch,
};

use crate::server_process::ServerProcess;

/// A corpus, an authority, and a certificate for the loopback address.
struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
    openssl: PathBuf,
    curl: PathBuf,
    authority: Authority,
    server: Issued,
}

impl Fixture {
    /// Returns a fixture, or records a skip.
    fn new(name: &str) -> Option<Fixture> {
        let corpus = corpus(name)?;
        let openssl = find_tool("openssl", "openssl")?;
        let curl = find_tool("curl", "curl")?;
        let scratch = scratch();
        let authority = Authority::create(&openssl, scratch.path(), "authority");
        let server = authority.issue("server", "IP:127.0.0.1,DNS:floe.test", 2);
        Some(Fixture {
            corpus,
            scratch,
            openssl,
            curl,
            authority,
            server,
        })
    }

    /// Serves the corpus with the certificate of the fixture.
    fn serve(&self, args: &[&str]) -> ServerProcess {
        self.serve_as(&self.server, args)
    }

    fn serve_as(&self, issued: &Issued, args: &[&str]) -> ServerProcess {
        let key = self.corpus.dir.join("key.sec").display().to_string();
        let mut all = vec!["--secret-key-file", &key];
        all.extend(["--tls-cert", &issued.certificate, "--tls-key", &issued.key]);
        all.extend(args);
        ServerProcess::start(self.corpus.store(), &all)
    }

    /// Returns the URL of the narinfo of the corpus.
    fn narinfo(&self, server: &ServerProcess) -> String {
        format!("{}{}", server.url(), narinfo_of(&self.corpus.root))
    }

    /// Runs curl, which trusts the authority of the fixture.
    fn curl(&self, args: &[&str]) -> CommandOutput {
        run(Command::new(&self.curl)
            .args(["--silent", "--show-error", "--max-time", "30"])
            .args(["--cacert", &self.authority.certificate()])
            .args(args))
    }
}

/// Returns the port of a server.
fn port(server: &ServerProcess) -> String {
    server.url().rsplit(':').next().unwrap().to_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
