//! Power cuts: a disk that recorded all writes is cut at many points, and floe runs again.

mod collection;
mod first_run;
mod profile_switch;
mod record;
mod sequences;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use floe_format::{Hash, NarInfo, StoreDir};
use floe_testkit::recording_disk::{FileSystemKind, Mount, RecordingDisk, recording_disk};
use floe_testkit::{Corpus, Scratch, XorShift, corpus, nixes, run, scratch};
use parking_lot::{Mutex, MutexGuard};

use crate::support::floe;

/// The number of power cuts of each test: more in full runs.
fn cuts() -> usize {
    if is_full() { 40 } else { 20 }
}

fn is_full() -> bool {
    std::env::var_os("FLOE_TEST_FULL").is_some()
}

fn kinds() -> &'static [FileSystemKind] {
    use FileSystemKind::{Btrfs, Ext4, Xfs};
    if is_full() {
        &[Ext4, Xfs, Btrfs]
    } else {
        &[Ext4]
    }
}

/// Lets one test with images of XFS and btrfs run at a time. A command of another test in its own
/// mount namespace would keep a copy of an image mounted.
fn run_alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    is_full().then(|| ALONE.lock())
}

/// A recorded run of floe.
struct Recording {
    _alone: Option<MutexGuard<'static, ()>>,
    scratch: Scratch,
    disk: RecordingDisk,
    /// The positions at the beginning and at the end of the run, and when all data was on disk.
    begin: usize,
    end: usize,
    synced: usize,
}

/// Runs `command` with a disk, and then waits until all its data is on disk.
fn record(kind: FileSystemKind, command: impl Fn(&Path) -> Command) -> Option<Recording> {
    record_after(kind, |_| {}, command)
}

/// Does the same after `prepare`, which is on disk before the run begins.
fn record_after(
    kind: FileSystemKind,
    prepare: impl Fn(&Path),
    command: impl Fn(&Path) -> Command,
) -> Option<Recording> {
    let alone = run_alone();
    let scratch = scratch();
    let mut disk = recording_disk(scratch.path(), kind, DISK_LEN)?;
    prepare(disk.mount_point());
    sync(&disk);
    let begin = disk.position();
    run(&mut command(disk.mount_point())).expect(0);
    let end = disk.position();
    // The file system writes metadata now, and contents later.
    thread::sleep(Duration::from_secs(3));
    sync(&disk);
    let synced = disk.position();
    disk.unmount();
    Some(Recording {
        _alone: alone,
        scratch,
        disk,
        begin,
        end,
        synced,
    })
}

fn sync(disk: &RecordingDisk) {
    run(Command::new("sync").arg("-f").arg(disk.mount_point())).expect(0);
}

impl Recording {
    /// Calls `check` with the file system after each of several power cuts: one right after the
    /// run, one when all data was on disk, the others at random points, half of them after the run.
    fn for_each_cut(&self, mut check: impl FnMut(&Path, &str)) {
        let mut random = XorShift(0x5eed);
        let place = self.scratch.join("cut");
        for cut in 0..cuts() {
            let range = match cut % 2 {
                0 => self.begin..=self.end,
                _ => self.end..=self.synced,
            };
            let position = match cut {
                0 => self.end,
                1 => self.synced,
                _ => range.start() + random.below(range.end() - range.start() + 1),
            };
            let seed = random.below(usize::MAX) as u64;
            // A new file each time: the system may still cache the blocks of the last one.
            let image = self.scratch.join(&format!("image-{cut}"));
            self.disk.write_image(&image, position, seed);
            let mount = Mount::of_image(&image, &place);
            let (begin, end) = (self.begin, self.end);
            check(
                mount.path(),
                &format!("cut {cut} at {position} of {begin}..{end}"),
            );
            drop(mount);
            fs::remove_file(&image).unwrap();
        }
    }
}

/// Returns a command that runs in a system with another boot id than this one.
fn after_restart(command: &Command, boot_id: &Path) -> Command {
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script]).arg(boot_id);
    unshare.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare
}

fn install<S: AsRef<OsStr>>(
    corpus: &Corpus,
    root: &Path,
    options: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = floe(["install", "--from", &corpus.file_url("zstd")]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).args(options).arg(&corpus.root);
    command
}

/// Verifies a store. Returns the number of valid paths and of problems; `None` without a store.
fn verify(root: &Path) -> Option<(u64, usize)> {
    let ran = run(floe(["verify", "--json", "--root"]).arg(root));
    if !ran.stdout.starts_with('{') {
        return None;
    }
    let found = ran.json();
    let problems = found["problems"].as_array().unwrap().len();
    Some((found["paths"].as_u64().unwrap(), problems))
}

fn boot_id(scratch: &Scratch) -> PathBuf {
    let file = scratch.join("boot-id");
    fs::write(&file, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    file
}

/// The stores that power cuts left: with and without damaged paths.
#[derive(Debug, Default)]
struct Found {
    damaged: usize,
    whole: usize,
}

/// Checks installs until cuts damaged a path and left a store without damage, at most three times.
/// On a busy machine, the file system may write the contents of all paths before floe registers
/// them.
fn check_installs(corpus: &Corpus, kind: FileSystemKind, options: &[&str]) {
    let mut all = Found::default();
    for _ in 0..3 {
        let Some(found) = check_install(corpus, kind, options) else {
            return;
        };
        all.damaged += found.damaged;
        all.whole += found.whole;
        if all.damaged > 0 && all.whole > 0 {
            return;
        }
    }
    panic!("{kind:?}: the cuts left {all:?}");
}

/// Installs, and checks that the next install, with or without the options, repairs the store after
/// each cut. Returns `None` without a disk.
fn check_install(corpus: &Corpus, kind: FileSystemKind, options: &[&str]) -> Option<Found> {
    let root = |place: &Path| place.join("root");
    let profile = |place: &Path| place.join("profile");
    let command = |place: &Path, options: &[&str]| {
        let mut command = install(corpus, &root(place), options);
        command.arg("--profile").arg(profile(place));
        command
    };
    let recording = record(kind, |place| command(place, options))?;
    let boot_id = boot_id(&recording.scratch);
    let mut found = Found::default();
    recording.for_each_cut(|place, cut| {
        match verify(&root(place)) {
            Some((_, problems)) if problems > 0 => found.damaged += 1,
            Some((paths, _)) if paths > 0 => found.whole += 1,
            _ => {}
        }
        let options = if found.damaged % 2 == 1 { &[] } else { options };
        run(&mut after_restart(&command(place, options), &boot_id)).expect(0);
        let (paths, problems) = verify(&root(place)).unwrap();
        assert_eq!((paths, problems), (corpus.paths.len() as u64, 0), "{cut}");
        let generation = fs::read_link(profile(place)).unwrap();
        let target = fs::read_link(place.join(generation)).unwrap();
        assert_eq!(target, Path::new(&corpus.root), "{cut}");
        if cut.starts_with("cut 0 ") {
            for nix in nixes() {
                nix.verify(&root(place), corpus.paths.len());
            }
        }
    });
    Some(found)
}

#[test]
fn install_after_power_cut_repairs_the_store() {
    let Some(corpus) = corpus("curl") else { return };
    for kind in kinds() {
        check_installs(&corpus, *kind, &[]);
    }
}

#[test]
fn optimising_install_after_power_cut_repairs_the_store() {
    let Some(corpus) = corpus("curl") else { return };
    for kind in kinds() {
        check_installs(&corpus, *kind, &["--optimise"]);
    }
}

#[test]
fn synced_paths_are_whole_after_every_power_cut() {
    let Some(corpus) = corpus("curl") else { return };
    for setting in ["fsync-store-paths", "sync-before-registering"] {
        for kind in kinds() {
            let options = ["--option", setting, "true"];
            let command = |place: &Path| install(&corpus, &place.join("root"), options);
            let Some(recording) = record(*kind, command) else {
                return;
            };
            let mut valid = 0;
            recording.for_each_cut(|place, cut| {
                if let Some((paths, problems)) = verify(&place.join("root")) {
                    assert_eq!(problems, 0, "{setting}, {cut}");
                    valid += paths;
                }
            });
            assert!(valid > 0, "{setting}: no cut left a valid path");
        }
    }
}

/// Checks that every narinfo of a cache describes a whole NAR. Returns the number of narinfos.
fn check_cache(cache: &Path, cut: &str) -> usize {
    let Ok(entries) = fs::read_dir(cache) else {
        return 0;
    };
    let mut narinfos = 0;
    for entry in entries {
        let file = entry.unwrap().path();
        if file.extension() != Some(OsStr::new("narinfo")) {
            continue;
        }
        let contents = fs::read(&file).unwrap();
        let narinfo = NarInfo::parse(&contents, &StoreDir::default());
        let narinfo = narinfo.unwrap_or_else(|error| panic!("{cut}: {}: {error}", file.display()));
        let nar = fs::read(cache.join(&narinfo.url)).unwrap();
        let hash = Hash::sha256(floe_hash::sha256(&nar));
        assert_eq!(narinfo.file_hash, Some(hash), "{cut}: {}", file.display());
        narinfos += 1;
    }
    narinfos
}

#[test]
fn cache_is_whole_after_every_power_cut() {
    let Some(corpus) = corpus("curl") else { return };
    for kind in kinds() {
        let copy = |place: &Path| {
            let to = format!("file://{}?compression=zstd", place.join("cache").display());
            let mut command = floe(["copy", "--no-check-sigs", "--from"]);
            command
                .arg(corpus.store())
                .args(["--to", &to, &corpus.root]);
            command
        };
        let Some(recording) = record(*kind, copy) else {
            return;
        };
        let (mut whole, mut partial) = (0, 0);
        recording.for_each_cut(|place, cut| {
            let cache = place.join("cache");
            match check_cache(&cache, cut) {
                count if count == corpus.paths.len() => whole += 1,
                _ => partial += 1,
            }
            run(&mut copy(place)).expect(0);
            assert_eq!(check_cache(&cache, cut), corpus.paths.len(), "{cut}");
            let root = place.join("root");
            let mut command = floe(["install", "--from"]);
            let from = format!("file://{}", cache.display());
            let install = command
                .args([&from, "--no-check-sigs", "--root"])
                .arg(&root);
            run(install.arg(&corpus.root)).expect(0);
        });
        assert!(
            whole > 0 && partial > 0,
            "{kind:?}: {whole} whole, {partial} partial"
        );
    }
}

/// Large enough for btrfs and XFS, which refuse smaller disks.
const DISK_LEN: u64 = 512 << 20;
