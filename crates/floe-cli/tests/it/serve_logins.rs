//! Servers that need logins: the file, the clients, failures, and secrets in the output.

mod bad_files;
mod clients;
mod commands;
mod failures;

use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use floe_testkit::{CommandOutput, Corpus, Scratch, run};

use crate::server_process::ServerProcess;
use crate::support::floe;

/// A login file with the user alice and the token `ci`.
pub(crate) struct Logins {
    pub(crate) file: PathBuf,
    pub(crate) token: String,
}

/// The password of alice. The test for secrets searches the output for it.
pub(crate) const PASSWORD: &str = "right-Passw0rd";

impl Logins {
    #[track_caller]
    pub(crate) fn new(scratch: &Scratch) -> Logins {
        let file = scratch.join("logins");
        add_user(&file, PASSWORD, &["alice"]).expect(0);
        let token = add_token(&file, &["ci"]);
        Logins { file, token }
    }

    /// Serves a corpus to clients with these logins.
    #[track_caller]
    pub(crate) fn serve(&self, corpus: &Corpus, args: &[&str]) -> ServerProcess {
        let file = self.file.display().to_string();
        let key = corpus.dir.join("key.sec").display().to_string();
        let own = ["--auth-file", &file, "--secret-key-file", &key];
        ServerProcess::start(corpus.store(), &[&own, args].concat())
    }
}

/// Runs `floe serve auth COMMAND --auth-file FILE ARGS`.
#[track_caller]
fn auth(file: &Path, command: &str, args: &[&str]) -> CommandOutput {
    let mut floe = floe(["serve", "auth", command, "--auth-file"]);
    run(floe.arg(file).args(args))
}

/// Adds a user with a password on stdin.
#[track_caller]
fn add_user(file: &Path, password: &str, args: &[&str]) -> CommandOutput {
    let mut stdin = tempfile::tempfile().unwrap();
    writeln!(stdin, "{password}").unwrap();
    stdin.rewind().unwrap();
    let mut floe = floe(["serve", "auth", "add-user", "--auth-file"]);
    run(floe.arg(file).args(args).stdin(stdin))
}

/// Adds a token, and returns it.
#[track_caller]
pub(crate) fn add_token(file: &Path, args: &[&str]) -> String {
    let stdout = auth(file, "add-token", args).expect(0).stdout;
    stdout.trim_end().to_owned()
}

/// Returns the header field of a name and a password.
fn basic(name: &str, password: &str) -> String {
    let text = format!("{name}:{password}");
    let text = floe_format::base64::encode(text.as_bytes());
    format!("Authorization: Basic {text}\r\n")
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}
