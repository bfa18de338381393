//! floe as the other side of Nix's protocols: real clients copy to and from its stores.

mod bare_machine;
mod daemon;
mod deploy_tools;
mod floe_to_floe;
mod hostile_clients;
mod interruptions;
mod nix_adding_names;
mod nix_names;
mod nix_paths_names;
mod nix_store_names;
mod serve_protocol;
mod worker_protocol;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    Corpus, Nix, Scratch, corpus, hide_nix_conf, nixes, ran_in_pid_namespace, run, scratch,
};
use serde_json::Value;

use crate::support::floe;

/// A client with the store that floe hosts for it.
struct Host<'a> {
    nix: &'a Nix,
    corpus: Corpus,
    scratch: Scratch,
}

impl Host<'_> {
    fn root(&self) -> PathBuf {
        self.scratch.join("hosted")
    }

    /// floe under a name of Nix.
    fn program(&self, name: &str) -> PathBuf {
        let program = self.scratch.join(name);
        if !program.exists() {
            symlink(floe([""; 0]).get_program(), &program).unwrap();
        }
        program
    }

    /// The URI of the hosted store.
    fn uri(&self, scheme: &str, program: &str) -> String {
        let (program, root) = (self.program(program), self.root());
        let (program, root) = (program.display(), root.display());
        format!("{scheme}://localhost?remote-program={program}&remote-store={root}")
    }

    /// `nix copy` of the corpus.
    fn nix_copy(&self, from: &str, to: &str) -> Command {
        let words = ["copy", "--from", from, "--to", to, &self.corpus.root];
        let mut command = self.nix.command("nix", words);
        command.env_remove("NIX_REMOTE");
        command.env("NIX_CONFIG", "experimental-features = nix-command");
        command
    }

    fn rows(&self, root: &Path) -> Vec<Value> {
        let root = root.to_str().unwrap();
        let infos = self.nix.path_infos(root, &self.corpus.root);
        assert_eq!(infos.len(), self.corpus.paths.len());
        infos
    }

    /// Makes a store with the corpus whose paths have no signatures.
    fn unsigned_store(&self) -> String {
        let store = self.scratch.join("unsigned");
        let text = store.to_str().unwrap();
        let mut copy = self.nix_copy(&self.corpus.file_url("xz"), text);
        run(copy.arg("--no-check-sigs")).expect(0);
        let database = store.join("nix/var/nix/db/db.sqlite");
        let connection = rusqlite::Connection::open(database).unwrap();
        let change = "update ValidPaths set sigs = null, ca = null, ultimate = 0";
        connection.execute(change, []).unwrap();
        let rows = self.nix.path_infos(text, &self.corpus.root);
        let has_none = |row: &Value| row["signatures"].as_array().is_none_or(Vec::is_empty);
        assert!(rows.iter().all(has_none));
        text.to_owned()
    }

    /// Checks with Nix that a store has the corpus, with the rows of the original.
    fn check_store(&self, root: &Path) {
        self.nix.verify(root, self.corpus.paths.len());
        assert_eq!(self.rows(root), self.rows(&self.corpus.store()));
    }
}

/// Runs a check for each Nix. The commands of other hosts are in the environment of their
/// processes, where collectors would find them.
fn with_hosts(check: impl Fn(&Host<'_>)) {
    if ran_in_pid_namespace() {
        return;
    }
    for nix in &nixes() {
        let Some(corpus) = corpus("jq") else { return };
        check(&Host {
            nix,
            corpus,
            scratch: scratch(),
        });
    }
}
