//! `use-sqlite-wal`: the journal mode of new and existing databases.

use std::path::{Path, PathBuf};

use floe_testkit::{Corpus, Nix, corpus, nixes, ran_in_pid_namespace, run, scratch, tree};
use rusqlite::Connection;

use super::install_args;
use crate::support::floe;

fn database(root: &Path) -> PathBuf {
    root.join("nix/var/nix/db/db.sqlite")
}

fn journal_mode(root: &Path) -> String {
    let connection = Connection::open(database(root)).unwrap();
    let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get(0));
    mode.unwrap()
}

fn install(corpus: &Corpus, root: &Path, wal: &str) {
    let mut command = floe(install_args(corpus, root));
    run(command.args(["--option", "use-sqlite-wal", wal])).expect(0);
}

/// Asserts that Nix with the same setting finds no fault.
fn assert_nix_accepts(nix: &Nix, root: &Path, wal: &str) {
    let mut command = nix.command("nix-store", ["--verify", "--check-contents", "--store"]);
    command.arg(root).args(["--option", "use-sqlite-wal", wal]);
    let ran = run(&mut command).expect(0);
    for fault in ["disappeared", "modified", "fixing", "updating size"] {
        assert!(
            !ran.stderr.contains(fault),
            "{}: {}",
            nix.version,
            ran.stderr
        );
    }
}

#[test]
fn new_database_uses_configured_journal_mode() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        // SQLite reports `truncate` as `delete` once the database is closed.
        for (wal, expected) in [("true", "wal"), ("false", "delete")] {
            let scratch = scratch();
            let root = scratch.join("root");
            install(&corpus, &root, wal);
            assert_eq!(journal_mode(&root), expected);
            assert!(tree(&root) == tree(&corpus.store()), "trees differ");
            assert_nix_accepts(&nix, &root, wal);
            assert_eq!(journal_mode(&root), expected, "{}", nix.version);
            install(&corpus, &root, wal);
            assert!(!database(&root).with_file_name("db.sqlite.lock").exists());
        }
    }
}

#[test]
fn wal_is_converted_only_while_no_process_has_it_open() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root, "true");
        let other = Connection::open(database(&root)).unwrap();
        let rows = "select count(*) from ValidPaths";
        let count = |connection: &Connection| -> i64 {
            connection.query_row(rows, (), |row| row.get(0)).unwrap()
        };
        assert_eq!(count(&other), corpus.paths.len() as i64);
        install(&corpus, &root, "false");
        assert_eq!(
            journal_mode(&root),
            "wal",
            "changed while another connection was open"
        );
        drop(other);
        // Nix itself cannot open a WAL database with this setting.
        let mut command = nix.command("nix-store", ["--gc", "--print-roots", "--store"]);
        command
            .arg(&root)
            .args(["--option", "use-sqlite-wal", "false"]);
        run(&mut command)
            .expect(1)
            .stderr_contains("unable to open database file");
        install(&corpus, &root, "false");
        assert_ne!(journal_mode(&root), "wal");
        assert_nix_accepts(&nix, &root, "false");
        // Nix converts the database back, and floe accepts that.
        assert_nix_accepts(&nix, &root, "true");
        assert_eq!(journal_mode(&root), "wal");
        install(&corpus, &root, "true");
        nix.verify(&root, corpus.paths.len());
    }
}
