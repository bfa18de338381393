//! Disks without free bytes or inodes, and read-only file systems.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_brought_the_rest, leftovers, nars_since};
use crate::mounts::{Mount, mount};
use crate::server::Server;
use crate::support::{Corpus, Ran, corpus, floe};

/// A closure of 32 paths with 35 MiB in 926 inodes, and a store on a small file system.
struct Stage {
    corpus: Corpus,
    server: Server,
    mount: Mount,
    /// The store URI, and the directory of the store paths.
    store: (String, PathBuf),
}

fn stage(options: &str) -> Option<Stage> {
    let corpus = corpus("curl")?;
    let mount = mount(options)?;
    let root = mount.root();
    Some(Stage {
        server: Server::start(&corpus.cache("zstd")),
        store: (root.display().to_string(), root.join("nix/store")),
        corpus,
        mount,
    })
}

impl Stage {
    /// Installs the closure of a path, without the check for free space.
    fn install(&self, path: &str) -> Ran {
        let mut command = floe(["install", "--json", "--no-check-space", "--from"]);
        command.args([
            &self.server.url(),
            "--trusted-public-keys",
            &self.corpus.key,
        ]);
        self.mount.run(command.args(["--to", &self.store.0, path]))
    }

    fn install_all(&self) -> Ran {
        self.install(&self.corpus.root)
    }

    /// Installs part of the closure.
    fn install_a_part(&self) -> BTreeSet<String> {
        let paths = &self.corpus.paths;
        let part = paths.iter().find(|path| path.contains("-libc6-"));
        self.install(part.unwrap()).expect(0);
        self.assert_sound()
    }

    #[track_caller]
    fn assert_sound(&self) -> BTreeSet<String> {
        self.mount.assert_sound_at(&self.store.0, &self.store.1)
    }

    /// Asserts that neither staged trees nor lock files are left.
    #[track_caller]
    fn assert_tidy(&self) {
        assert_eq!(leftovers(&self.mount.seen(&self.store.1)), [""; 0]);
    }

    /// Asserts that no path is lost, and that an install without the fault fetches exactly the
    /// missing ones.
    #[track_caller]
    fn assert_goes_on(&self, had: &BTreeSet<String>) {
        let kept = self.assert_sound();
        assert!(kept.is_superset(had), "lost {:?}", had - &kept);
        assert!(
            kept.len() < self.corpus.paths.len(),
            "the failed install was complete"
        );
        let since = self.server.hits().len();
        let json = self.install_all().expect(0).json();
        assert_eq!(json["alreadyValid"], kept.len());
        assert_brought_the_rest(&self.corpus, &self.server, since, &kept);
        assert_eq!(self.assert_sound().len(), self.corpus.paths.len());
        self.assert_tidy();
    }

    /// Returns the KiB in use on the small file system.
    fn used(&self) -> u64 {
        100 * 1024 - self.mount.left().0 * 4
    }

    /// Asserts that an install fails during its work for lack of space. The failing write may be
    /// that of a tree or of the database.
    #[track_caller]
    fn assert_runs_out(&self) {
        let ran = self.install_all().expect(5);
        let place = self.mount.place().display().to_string();
        let ran = ran.says(&place).says("`df -h` and `df -i`");
        let words = ["No space left on device", "database or disk is full"];
        let said = words.iter().any(|words| ran.stderr.contains(words));
        assert!(said && !ran.stderr.contains("left out"), "{}", ran.stderr);
        self.assert_tidy();
        // If nothing can be registered any more, the install ends at once. The cause may be the
        // database, a lock file or the store directory. Otherwise the failed paths are counted.
        let ends = ["in the Nix database", "the lock file", "moving into place"];
        if !ends.iter().any(|end| ran.stderr.contains(end)) {
            let left = self.corpus.paths.len() - self.assert_sound().len();
            ran.says(&format!("{left} paths could not be moved"));
        }
    }
}

#[test]
fn a_disk_that_fills_up_in_the_middle_costs_only_what_did_not_fit() {
    let Some(stage) = stage("size=100m") else {
        return;
    };
    let had = stage.install_a_part();
    // Leave room for two thirds of the missing paths.
    let size = stage.used() + 16 * 1024;
    stage.mount.remount(&format!("size={size}k"));
    let since = stage.server.hits().len();
    stage.assert_runs_out();
    let asked = nars_since(&stage.server, since);
    assert!(asked.len() > 1, "the disk was full too early: {asked:?}");
    stage.mount.remount("size=100m");
    stage.assert_goes_on(&had);
}

#[test]
fn a_disk_that_runs_out_of_inodes_costs_only_what_did_not_fit() {
    let Some(stage) = stage("size=100m,nr_inodes=5000") else {
        return;
    };
    let had = stage.install_a_part();
    let (blocks, inodes) = stage.mount.left();
    assert!(blocks > 10_000);
    stage
        .mount
        .remount(&format!("nr_inodes={}", 5000 - inodes + 300));
    stage.assert_runs_out();
    let (blocks, _) = stage.mount.left();
    assert!(blocks > 10_000, "the disk ran out of bytes, not of inodes");
    stage.mount.remount("nr_inodes=5000");
    stage.assert_goes_on(&had);
}

#[test]
fn a_disk_without_room_for_the_database_costs_only_what_it_could_not_note() {
    let Some(mut stage) = stage("size=100m") else {
        return;
    };
    // The database is on the small file system, the store paths are not.
    let (real, state) = (
        stage.mount.beside("store"),
        stage.mount.place().join("state"),
    );
    let address = format!("local?real={}&state={}", real.display(), state.display());
    stage.store = (address, real);
    let had = stage.install_a_part();
    // Enough for temporary roots and SQLite's shared memory file, but no more.
    let size = stage.used() + 44;
    stage.mount.remount(&format!("size={size}k"));
    let ran = stage.install_all().expect(5);
    ran.says("in the Nix database")
        .says("database or disk is full")
        .says("`df -h` and `df -i`");
    stage.assert_tidy();
    stage.mount.remount("size=100m");
    stage.assert_goes_on(&had);
}

#[test]
fn a_disk_that_may_only_be_read_is_named_and_left_alone() {
    let Some(stage) = stage("size=100m") else {
        return;
    };
    let place = stage.mount.place();
    let says = |ran: Ran, path: &Path| {
        ran.expect(1)
            .says("Read-only file system")
            .says(&path.display().to_string())
            .says("choose a writable store with --root DIR");
    };
    // Test without a store, and with one.
    stage.mount.remount("ro");
    says(stage.install_all(), &place);
    stage.mount.remount("rw");
    let seen = stage.mount.seen(&place);
    assert_eq!(fs::read_dir(seen).unwrap().count(), 0);
    let had = stage.install_a_part();
    stage.mount.remount("ro");
    let since = stage.server.hits().len();
    says(stage.install_all(), &stage.mount.root());
    assert_eq!(nars_since(&stage.server, since), [""; 0]);
    stage.mount.remount("rw");
    stage.assert_goes_on(&had);
}
