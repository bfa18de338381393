//! Disks without free bytes or inodes, and read-only file systems.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{CommandOutput, Corpus, corpus};

use super::{assert_fetched_only_missing, nars_requested_since, temporary_entries};
use crate::support::floe;
use crate::tmpfs_mount::{Mount, mount};

/// A closure of 32 paths with 35 MiB in 926 inodes, and a store on a small file system.
struct Fixture {
    corpus: Corpus,
    server: FaultServer,
    mount: Mount,
    /// The store URI, and the directory of the store paths.
    store: (String, PathBuf),
}

fn fixture(options: &str) -> Option<Fixture> {
    let corpus = corpus("curl")?;
    let mount = mount(options)?;
    let root = mount.root();
    Some(Fixture {
        server: FaultServer::start(&corpus.cache("zstd")),
        store: (root.display().to_string(), root.join("nix/store")),
        corpus,
        mount,
    })
}

impl Fixture {
    /// Installs the closure of a path, without the check for free space.
    fn install(&self, path: &str) -> CommandOutput {
        let mut command = floe(["install", "--json", "--no-check-space", "--from"]);
        command.args([
            &self.server.url(),
            "--trusted-public-keys",
            &self.corpus.key,
        ]);
        self.mount.run(command.args(["--to", &self.store.0, path]))
    }

    fn install_all(&self) -> CommandOutput {
        self.install(&self.corpus.root)
    }

    /// Installs part of the closure.
    fn install_part(&self) -> BTreeSet<String> {
        let paths = &self.corpus.paths;
        let part = paths.iter().find(|path| path.contains("-libc6-"));
        self.install(part.unwrap()).expect(0);
        self.assert_store_valid()
    }

    #[track_caller]
    fn assert_store_valid(&self) -> BTreeSet<String> {
        self.mount
            .assert_store_valid_at(&self.store.0, &self.store.1)
    }

    /// Asserts that neither staged trees nor lock files are left.
    #[track_caller]
    fn assert_no_temporary_entries(&self) {
        assert_eq!(
            temporary_entries(&self.mount.outside_path(&self.store.1)),
            [""; 0]
        );
    }

    /// Asserts that no path is lost, and that an install without the fault fetches exactly the
    /// missing ones.
    #[track_caller]
    fn assert_recovers(&self, existing: &BTreeSet<String>) {
        let kept = self.assert_store_valid();
        assert!(kept.is_superset(existing), "lost {:?}", existing - &kept);
        assert!(
            kept.len() < self.corpus.paths.len(),
            "the failed install was complete"
        );
        let since = self.server.requests().len();
        let json = self.install_all().expect(0).json();
        assert_eq!(json["alreadyValid"], kept.len());
        assert_fetched_only_missing(&self.corpus, &self.server, since, &kept);
        assert_eq!(self.assert_store_valid().len(), self.corpus.paths.len());
        self.assert_no_temporary_entries();
    }

    /// Returns the KiB in use on the small file system.
    fn used_kib(&self) -> u64 {
        100 * 1024 - self.mount.free_blocks_and_inodes().0 * 4
    }

    /// Asserts that an install fails during its work for lack of space. The failing write may be
    /// that of a tree or of the database.
    #[track_caller]
    fn assert_disk_full(&self) {
        let ran = self.install_all().expect(5);
        let place = self.mount.mount_point().display().to_string();
        let ran = ran
            .stderr_contains(&place)
            .stderr_contains("`df -h` and `df -i`");
        let words = ["No space left on device", "database or disk is full"];
        let said = words.iter().any(|words| ran.stderr.contains(words));
        assert!(said && !ran.stderr.contains("left out"), "{}", ran.stderr);
        self.assert_no_temporary_entries();
        // If nothing can be registered any more, the install ends at once. The cause may be the
        // database, a lock file or the store directory. Otherwise the failed paths are counted.
        let ends = ["the Nix database", "the lock file", "rename a tree to"];
        if !ends.iter().any(|end| ran.stderr.contains(end)) {
            let left = self.corpus.paths.len() - self.assert_store_valid().len();
            ran.stderr_contains(&format!("failed to copy {left} paths"));
        }
    }
}

#[test]
fn full_disk_fails_only_paths_without_space() {
    let Some(fixture) = fixture("size=100m") else {
        return;
    };
    let existing = fixture.install_part();
    // Leave room for two thirds of the missing paths.
    let size = fixture.used_kib() + 16 * 1024;
    fixture.mount.remount(&format!("size={size}k"));
    let since = fixture.server.requests().len();
    fixture.assert_disk_full();
    let asked = nars_requested_since(&fixture.server, since);
    assert!(asked.len() > 1, "the disk was full too early: {asked:?}");
    fixture.mount.remount("size=100m");
    fixture.assert_recovers(&existing);
}

#[test]
fn exhausted_inodes_fail_only_paths_without_inodes() {
    let Some(fixture) = fixture("size=100m,nr_inodes=5000") else {
        return;
    };
    let existing = fixture.install_part();
    let (blocks, inodes) = fixture.mount.free_blocks_and_inodes();
    assert!(blocks > 10_000);
    fixture
        .mount
        .remount(&format!("nr_inodes={}", 5000 - inodes + 300));
    fixture.assert_disk_full();
    let (blocks, _) = fixture.mount.free_blocks_and_inodes();
    assert!(blocks > 10_000, "the disk ran out of bytes, not of inodes");
    fixture.mount.remount("nr_inodes=5000");
    fixture.assert_recovers(&existing);
}

#[test]
fn full_database_disk_fails_only_unregistered_paths() {
    let Some(mut fixture) = fixture("size=100m") else {
        return;
    };
    // The database is on the small file system, the store paths are not.
    let (real, state) = (
        fixture.mount.sibling("store"),
        fixture.mount.mount_point().join("state"),
    );
    let address = format!("local?real={}&state={}", real.display(), state.display());
    fixture.store = (address, real);
    let existing = fixture.install_part();
    // Enough for temporary roots and SQLite's shared memory file, but no more.
    let size = fixture.used_kib() + 44;
    fixture.mount.remount(&format!("size={size}k"));
    let ran = fixture.install_all().expect(5);
    ran.stderr_contains("the Nix database")
        .stderr_contains("database or disk is full")
        .stderr_contains("`df -h` and `df -i`");
    fixture.assert_no_temporary_entries();
    fixture.mount.remount("size=100m");
    fixture.assert_recovers(&existing);
}

#[test]
fn read_only_file_system_is_reported_and_unchanged() {
    let Some(fixture) = fixture("size=100m") else {
        return;
    };
    let place = fixture.mount.mount_point();
    let assert_read_only = |ran: CommandOutput, path: &Path| {
        ran.expect(1)
            .stderr_contains("Read-only file system")
            .stderr_contains(&path.display().to_string())
            .stderr_contains("try a writable store with --root DIR");
    };
    // Test without a store, and with one.
    fixture.mount.remount("ro");
    assert_read_only(fixture.install_all(), &place);
    fixture.mount.remount("rw");
    let seen = fixture.mount.outside_path(&place);
    assert_eq!(fs::read_dir(seen).unwrap().count(), 0);
    let existing = fixture.install_part();
    fixture.mount.remount("ro");
    let since = fixture.server.requests().len();
    assert_read_only(fixture.install_all(), &fixture.mount.root());
    assert_eq!(nars_requested_since(&fixture.server, since), [""; 0]);
    fixture.mount.remount("rw");
    fixture.assert_recovers(&existing);
}
