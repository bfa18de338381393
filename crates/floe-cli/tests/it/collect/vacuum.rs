//! `floe gc --vacuum`: the database gives the space of deleted rows back.

use std::fs;
use std::process::Command;

use floe_testkit::ran_in_pid_namespace;
use rusqlite::Connection;

use super::full_disk::{Reader, SmallDisk};

impl SmallDisk {
    /// Returns the size of the database file, in bytes.
    fn database_len(&self) -> u64 {
        fs::metadata(self.database_file("db.sqlite")).unwrap().len()
    }
}

#[test]
fn vacuum_makes_the_database_of_a_mass_deletion_small() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(80, 10_000, 0) else {
        return;
    };
    let before = disk.database_len();
    let gc = super::floe_in(&disk.root(), &["gc"]);
    let ran = disk.mount.run(&gc).expect(0);
    ran.stderr_contains("of the database are unused; floe gc --vacuum makes it smaller");
    assert_eq!(disk.database_len(), before);
    let result = disk.mount.run(disk.gc().arg("--vacuum")).expect(0).json();
    let after = disk.database_len();
    assert!(after < before / 4, "{before} {after}");
    assert_eq!(result["databaseBytesFreed"], before - after);
    let ran = disk.mount.run(&gc).expect(0);
    assert!(!ran.stderr.contains("--vacuum"), "{}", ran.stderr);
    disk.assert_collected();
}

#[test]
fn reader_keeps_its_view_during_a_vacuum() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(80, 5000, 0) else {
        return;
    };
    let before = disk.database_len();
    let reader = Reader::start(&disk);
    let gc = super::floe_in(&disk.root(), &["gc", "--vacuum"]);
    let ran = disk.mount.run(&gc).expect(0);
    ran.stderr_contains("deleted 5000 paths")
        .stderr_contains("made the database ")
        .stderr_contains("its file becomes smaller when the processes that read it end");
    assert_eq!(disk.database_len(), before);
    drop(reader);
    disk.mount.run(&disk.gc()).expect(0);
    assert!(disk.database_len() < before / 2);
    disk.assert_collected();
}

#[test]
fn vacuum_without_space_keeps_the_database() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(80, 5000, 0) else {
        return;
    };
    // More than SQLite keeps in memory.
    let seed = disk.seed.join("nix/var/nix/db/db.sqlite");
    let connection = Connection::open(&seed).unwrap();
    let rows = "create table Large (contents); insert into Large values (zeroblob(16000000)); \
                pragma wal_checkpoint(truncate)";
    connection.execute_batch(rows).unwrap();
    drop(connection);
    let mut copy = Command::new("cp");
    disk.mount
        .run(copy.arg(&seed).arg(disk.database()))
        .expect(0);
    let before = disk.database_len();
    let temporary = disk.mount.mount_point().join("temporary");
    disk.mount
        .run(Command::new("mkdir").arg(&temporary))
        .expect(0);
    let mut small = Command::new("mount");
    small.args(["-t", "tmpfs", "-o", "size=16k", "none"]);
    disk.mount.run(small.arg(&temporary)).expect(0);
    let mut gc = disk.gc();
    gc.arg("--vacuum").env("SQLITE_TMPDIR", &temporary);
    let ran = disk.mount.run(&gc).expect(5);
    let ran = ran.stderr_contains("cannot vacuum the Nix database");
    let ran = ran.stderr_contains("; try again with as much free space");
    assert_eq!(ran.json()["paths"], 5000);
    assert_eq!(disk.database_len(), before);
    disk.assert_collected();
}
