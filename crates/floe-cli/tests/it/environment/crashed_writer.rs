//! A store whose last writer has crashed, where no command may write: the newest transactions are
//! in the log beside the database, or an unfinished one is in the database.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    Corpus, Scratch, copy_program, corpus, ran_in_pid_namespace, run, scratch, setpriv_to_nobody,
};
use rusqlite::{Connection, OpenFlags};

use super::install_args;
use crate::support::floe;
use crate::tmpfs_mount::mount;

fn database(root: &Path) -> PathBuf {
    root.join("nix/var/nix/db/db.sqlite")
}

fn copy_files(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to])).expect(0);
}

/// Makes a store at `root` inside a directory, with rows in its log and without the index of the
/// log.
fn store_with_log(corpus: &Corpus) -> Scratch {
    let scratch = scratch();
    let living = scratch.join("living");
    let mut part = install_args(corpus, &living);
    *part.last_mut().unwrap() = corpus.paths[0].clone();
    run(&mut floe(part)).expect(0);
    let reader = Connection::open(database(&living)).unwrap();
    // The log must keep what this transaction does not see.
    reader.execute_batch("begin").unwrap();
    let count = "select count(*) from ValidPaths";
    let before: u32 = reader.query_row(count, (), |row| row.get(0)).unwrap();
    run(&mut floe(install_args(corpus, &living))).expect(0);
    let crashed = scratch.join("root");
    copy_files(&living, &crashed);
    drop(reader);
    let index = database(&crashed).with_file_name("db.sqlite-shm");
    fs::remove_file(index).unwrap();
    let log = database(&crashed).with_file_name("db.sqlite-wal");
    assert!(fs::metadata(log).unwrap().len() > 0);
    assert!((before as usize) < corpus.paths.len());
    scratch
}

/// Makes a store at `root` inside a directory. A writer with a lock directory has written parts of
/// a transaction into the database.
fn store_with_journal(corpus: &Corpus) -> Scratch {
    let scratch = scratch();
    let living = scratch.join("living");
    let mut install = floe(install_args(corpus, &living));
    run(install.args(["--option", "use-sqlite-wal", "false"])).expect(0);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let opened = Connection::open_with_flags_and_vfs(database(&living), flags, c"unix-dotfile");
    let writer = opened.unwrap();
    let change = "pragma journal_mode = truncate; pragma cache_size = 1; begin exclusive; \
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
         insert into ValidPaths (path, hash, registrationTime) \
         select i, hex(randomblob(50)), 0 from n";
    writer.execute_batch(change).unwrap();
    let crashed = scratch.join("root");
    copy_files(&living, &crashed);
    drop(writer);
    let journal = database(&crashed).with_file_name("db.sqlite-journal");
    assert!(fs::metadata(journal).unwrap().len() > 0);
    scratch
}

/// Commands that read a store.
const COMMANDS: [&[&str]; 6] = [
    &["info", "--all", "--json"],
    &["list", "--all"],
    &["roots"],
    &["gc", "--dry-run"],
    &["optimise", "--dry-run"],
    &["verify"],
];

#[test]
fn commands_read_the_log_on_a_read_only_file_system() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    assert_readable_on_read_only_mount(&corpus, &store_with_log(&corpus));
}

#[test]
fn commands_roll_a_journal_back_on_a_read_only_file_system() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    assert_readable_on_read_only_mount(&corpus, &store_with_journal(&corpus));
}

fn assert_readable_on_read_only_mount(corpus: &Corpus, scratch: &Scratch) {
    let Some(mount) = mount("size=200m") else {
        return;
    };
    let root = mount.root();
    copy_files(&scratch.join("root"), &mount.outside_path(&root));
    mount.remount("ro");
    let temporary = mount.sibling("temporary");
    fs::create_dir(&temporary).unwrap();
    for arguments in COMMANDS {
        let mut command = floe(arguments);
        command.arg("--root").arg(&root).env("TMPDIR", &temporary);
        let ran = mount.run(&command).expect(0);
        if arguments.contains(&"--json") {
            assert_eq!(ran.json().as_object().unwrap().len(), corpus.paths.len());
        }
        assert_eq!(
            fs::read_dir(&temporary).unwrap().count(),
            0,
            "{arguments:?}"
        );
    }
    // A copy of the closure needs every row.
    let target = mount.sibling("target");
    let mut copy = floe(["copy", "--no-check-sigs", "--from"]);
    copy.arg(&root).arg("--to").arg(&target).arg(&corpus.root);
    mount.run(&copy).expect(0);
    // No place for the copy of the database.
    let mut command = floe(["list", "--all", "--root"]);
    command.arg(&root).env("TMPDIR", mount.mount_point());
    let database = database(&root);
    mount
        .run(&command)
        .expect(1)
        .stderr_contains(&format!(
            "cannot open the Nix database {}",
            database.display()
        ))
        .stderr_contains("a crash has left transactions in")
        .stderr_contains("try the command as a user who may write to");
}

#[test]
fn commands_read_the_log_in_a_directory_of_another_user() {
    let Some(corpus) = corpus("jq") else { return };
    assert_readable_by_nobody(&corpus, &store_with_log(&corpus), &COMMANDS);
}

#[test]
fn commands_roll_a_journal_of_another_user_back() {
    let Some(corpus) = corpus("jq") else { return };
    // Each command waits for a while, because the writer may run.
    assert_readable_by_nobody(&corpus, &store_with_journal(&corpus), &COMMANDS[..1]);
}

fn assert_readable_by_nobody(corpus: &Corpus, scratch: &Scratch, commands: &[&[&str]]) {
    if setpriv_to_nobody().is_none() {
        return;
    }
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    for arguments in commands.iter().copied() {
        let mut command = setpriv_to_nobody().unwrap();
        command
            .env("HOME", "/nonexistent")
            .arg(&program)
            .args(arguments);
        let ran = run(command.arg("--root").arg(scratch.join("root"))).expect(0);
        if arguments.contains(&"--json") {
            assert_eq!(ran.json().as_object().unwrap().len(), corpus.paths.len());
        }
    }
    // The next command of the owner finds the log as it was.
    let mut verify = floe(["verify", "--json", "--root"]);
    let verified = run(verify.arg(scratch.join("root"))).expect(0);
    assert_eq!(verified.json()["paths"], corpus.paths.len());
}
