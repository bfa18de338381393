//! Collections of stores with many paths, and other commands, on a disk with little space or none.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use floe_format::nar::write;
use floe_format::{Hash, StoreDir};
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::ran_in_pid_namespace;
use rusqlite::Connection;

use super::floe_in;
use crate::server_process::ServerProcess;
use crate::support::floe;
use crate::tmpfs_mount::{Mount, mount};

/// A store on a small file system, and its copy beside it, which has space.
pub(super) struct SmallDisk {
    pub(super) mount: Mount,
    pub(super) seed: PathBuf,
    dead: Vec<String>,
}

impl SmallDisk {
    /// Creates a store with ten live paths and `dead` dead ones. Each path is a file of `len` bytes
    /// and has up to five references.
    pub(super) fn create(mib: u64, dead: usize, len: usize) -> Option<SmallDisk> {
        let mount = mount(&format!("size={mib}m"))?;
        let seed = mount.sibling("seed");
        let layout = StoreLayout::in_root(&seed, StoreDir::default());
        drop(StoreWriter::open(layout.clone()).unwrap());
        let contents = vec![b'x'; len];
        let nar_hash = hash(&contents);
        let database = Connection::open(seed.join("nix/var/nix/db/db.sqlite")).unwrap();
        let row = "insert into ValidPaths (path, hash, registrationTime, narSize, deriver) \
                   values (?1, ?2, 1, ?3, ?1 || '.drv')";
        let reference = "insert or ignore into Refs values (?1, ?2)";
        let mut names = Vec::new();
        database.execute_batch("begin").unwrap();
        for number in 0..LIVE + dead {
            let name = format!("{}-path-{number}", hash_part(number));
            let file = layout.real_store_dir.join(&name);
            fs::write(&file, &contents).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
            let opened = File::open(&file).unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(1);
            opened.set_modified(time).unwrap();
            let path = format!("/nix/store/{name}");
            let nar_len = nar(&contents).len() as i64;
            database.execute(row, (&path, &nar_hash, nar_len)).unwrap();
            let id = database.last_insert_rowid();
            // The first reference keeps all live paths. The others spread over the table.
            for step in [1, 7919, 104_729, 1_299_709, 15_485_863] {
                if id > 1 {
                    let earlier = id - 1 - (step - 1) * id % (id - 1);
                    database.execute(reference, [id, earlier]).unwrap();
                }
            }
            names.push(name);
        }
        database.execute_batch("commit").unwrap();
        let checkpoint = "pragma wal_checkpoint(truncate)";
        database.query_row(checkpoint, (), |_| Ok(())).unwrap();
        drop(database);
        let state = layout.state_dir;
        let live = format!("/nix/store/{}", names[LIVE - 1]);
        symlink(live, state.join("gcroots/kept")).unwrap();
        fs::remove_file(state.join("db/reserved")).unwrap();
        let disk = SmallDisk {
            dead: names.split_off(LIVE),
            seed,
            mount,
        };
        let mut copy = Command::new("cp");
        let copy = copy.arg("-a").args([&disk.seed, &disk.root()]);
        disk.mount.run(copy).expect(0);
        Some(disk)
    }

    pub(super) fn root(&self) -> PathBuf {
        self.mount.root()
    }

    pub(super) fn database(&self) -> PathBuf {
        self.root().join("nix/var/nix/db/db.sqlite")
    }

    /// Returns a file in `db` for access from outside.
    pub(super) fn database_file(&self, name: &str) -> PathBuf {
        let file = self.database().with_file_name(name);
        self.mount.outside_path(&file)
    }

    /// Fills the disk so that this many bytes are free.
    pub(super) fn fill(&self, free: u64) {
        let filler = self.mount.mount_point().join("filler");
        let output = format!("of={}", filler.display());
        let mut fill = Command::new("dd");
        let fill = fill.args(["if=/dev/zero", "bs=4k", "oflag=append", "conv=notrunc"]);
        let ran = self.mount.run(fill.arg(output)).expect(1);
        ran.stderr_contains("No space left");
        let filler = self.mount.outside_path(&filler);
        let len = fs::metadata(&filler).unwrap().len();
        let file = File::options().write(true).open(filler).unwrap();
        file.set_len(len - free).unwrap();
        assert_eq!(self.mount.free_blocks_and_inodes().0, free / 4096);
    }

    pub(super) fn gc(&self) -> Command {
        floe_in(&self.root(), &["gc", "--json"])
    }

    /// Makes room for Nix: the newest one fills a disk with less than 8 MiB by its file `reserved`,
    /// and then has no space to open the database.
    fn enlarge(&self) {
        self.mount.remount("size=400m");
    }

    /// Asserts that only the live paths exist.
    #[track_caller]
    pub(super) fn assert_collected(&self) {
        self.enlarge();
        let names = self.mount.assert_store_valid();
        assert_eq!(names.len(), LIVE, "{names:?}");
        assert!(!self.dead.iter().any(|name| names.contains(name)));
    }
}

/// A process that reads a database. It ends with its input.
pub(super) struct Reader {
    process: Child,
    _output: BufReader<ChildStdout>,
}

impl Reader {
    pub(super) fn start(disk: &SmallDisk) -> Reader {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "collect::full_disk::reader_holds_its_snapshot";
        command.args(["--exact", test, "--nocapture"]);
        command.env(DATABASE_VARIABLE, disk.database());
        let mut command = disk.mount.inside(&command);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with(READING)));
        Reader {
            process,
            _output: output,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

/// The program of [`Reader`]; without a database it reads an empty one.
#[test]
fn reader_holds_its_snapshot() {
    let Some(file) = env::var_os(DATABASE_VARIABLE) else {
        return;
    };
    let database = Connection::open(file).unwrap();
    let text = "begin; select count(*) from ValidPaths";
    database.execute_batch(text).unwrap();
    println!("{READING}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn disk_with_one_mebibyte_is_collected_in_one_run() {
    if ran_in_pid_namespace() {
        return;
    }
    let (mib, dead) = match env::var_os("FLOE_TEST_FULL") {
        Some(_) => (200, 50_000),
        None => (30, 5000),
    };
    let Some(disk) = SmallDisk::create(mib, dead, 0) else {
        return;
    };
    disk.fill(1024 * 1024);
    let result = disk.mount.run(&disk.gc()).expect(0).json();
    assert_eq!(result["paths"], dead);
    disk.assert_collected();
}

#[test]
fn files_of_deleted_rows_make_room_beside_a_reader() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(80, 1200, 32 * 1024) else {
        return;
    };
    let reader = Reader::start(&disk);
    disk.fill(128 * 1024);
    let result = disk.mount.run(&disk.gc()).expect(0).json();
    assert_eq!(result["paths"], 1200);
    let log = disk.database_file("db.sqlite-wal");
    assert!(fs::metadata(&log).unwrap().len() > 1024 * 1024);
    drop(reader);
    disk.assert_collected();
}

#[test]
fn reader_that_blocks_the_collection_is_named() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(30, 2000, 0) else {
        return;
    };
    let reader = Reader::start(&disk);
    disk.fill(256 * 1024);
    let ran = disk.mount.run(&disk.gc()).expect(5);
    let named = format!("it is being read by process {} (", reader.process.id());
    let ran = ran.stderr_contains(&named);
    let ran = ran.stderr_contains("try stopping it, then floe gc again");
    let deleted = ran.json()["paths"].as_u64().unwrap();
    assert!((1..2000).contains(&deleted), "{deleted}");
    drop(reader);
    let result = disk.mount.run(&disk.gc()).expect(0).json();
    assert_eq!(result["paths"], 2000 - deleted);
    disk.assert_collected();
}

/// A Nix daemon keeps the database open, so that SQLite does not truncate the log at the end.
#[test]
fn large_log_is_truncated_after_the_collection() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(120, 3000, 10) else {
        return;
    };
    let serve = floe_in(&disk.root(), &["serve", "--listen", "127.0.0.1:0"]);
    let server = ServerProcess::spawn(&mut disk.mount.inside(&serve));
    disk.mount.run(&disk.gc()).expect(0);
    let log = disk.database_file("db.sqlite-wal");
    let len = fs::metadata(&log).unwrap().len();
    drop(server);
    assert!(len <= 1024 * 1024, "{len}");
    disk.assert_collected();
}

#[test]
fn rows_of_many_new_paths_need_no_space_for_a_log() {
    let Some(disk) = SmallDisk::create(30, 3000, 0) else {
        return;
    };
    let mut remove = Command::new("rm");
    disk.mount.run(remove.arg("-r").arg(disk.root())).expect(0);
    disk.fill(6 * 1024 * 1024);
    let mut copy = floe([
        "copy",
        "--all",
        "--no-check-sigs",
        "--no-check-space",
        "--from",
    ]);
    copy.arg(&disk.seed).arg("--to").arg(disk.root());
    disk.mount.run(&copy).expect(0);
    disk.enlarge();
    assert_eq!(disk.mount.assert_store_valid().len(), LIVE + 3000);
}

#[test]
fn commands_without_space_end_with_5_and_a_fix() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(20, 100, 10) else {
        return;
    };
    let (root, seed) = (disk.root(), disk.seed.display().to_string());
    let dead = format!("/nix/store/{}", disk.dead[99]);
    let damaged = root.join("nix/store").join(&disk.dead[50]);
    let damaged = disk.mount.outside_path(&damaged);
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&damaged, "damaged").unwrap();
    let new = disk.mount.mount_point().join("new");
    let commands: [(&Path, &[&str]); 6] = [
        (&root, &["copy", "--all", "--from", &seed]),
        (&root, &["optimise"]),
        (&root, &["verify", "--repair", "--from", &seed]),
        (&root, &["delete", &dead]),
        (&root, &["gc"]),
        (&new, &["copy", "--all", "--from", &seed]),
    ];
    for (root, arguments) in commands {
        for suffix in ["reserved", "db.sqlite-wal", "db.sqlite-shm"] {
            let _: std::io::Result<()> = fs::remove_file(disk.database_file(suffix));
        }
        disk.fill(0);
        let target = match arguments[0] {
            "copy" => "--to",
            _ => "--root",
        };
        let mut command = floe([arguments[0]]);
        command.arg(target).arg(root).args(&arguments[1..]);
        let ran = disk.mount.run(&command).expect(5);
        ran.stderr_contains("; try ");
    }
    // The reserved file makes room for a collection.
    fs::remove_file(
        disk.mount
            .outside_path(&disk.mount.mount_point().join("filler")),
    )
    .unwrap();
    fs::write(disk.database_file("reserved"), vec![0; 8 << 20]).unwrap();
    disk.fill(0);
    let result = disk.mount.run(&disk.gc()).expect(0).json();
    assert_eq!(result["paths"], 100);
    disk.assert_collected();
}

/// The lock of a profile needs an inode, which only the reserved file has left.
#[test]
fn old_generations_go_after_the_reserved_file() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = SmallDisk::create(20, 100, 10) else {
        return;
    };
    // Creates the lock and the socket of the collector, and the reserved file.
    let mut none = disk.gc();
    disk.mount.run(none.args(["--max-freed", "0"])).expect(0);
    let profiles = disk.root().join("nix/var/nix/profiles");
    let profiles = disk.mount.outside_path(&profiles);
    for (number, name) in disk.dead.iter().take(2).enumerate() {
        let link = profiles.join(format!("p-{}-link", number + 1));
        symlink(format!("/nix/store/{name}"), link).unwrap();
    }
    symlink("p-2-link", profiles.join("p")).unwrap();
    let mut command = Command::new("find");
    let ran = disk.mount.run(command.arg(disk.mount.mount_point()));
    let inodes = ran.expect(0).stdout.lines().count();
    disk.mount.remount(&format!("nr_inodes={inodes}"));
    assert_eq!(disk.mount.free_blocks_and_inodes().1, 0);
    let mut gc = disk.gc();
    disk.mount
        .run(gc.args(["--keep-generations", "1"]))
        .expect(0);
    assert!(!profiles.join("p-1-link").is_symlink());
    assert!(profiles.join("p-2-link").is_symlink());
}

/// A hash part that spreads over the index, as real ones do.
fn hash_part(number: usize) -> String {
    let digits = b"0123456789abcdfghijklmnpqrsvwxyz";
    let hash = floe_hash::sha256(&number.to_le_bytes());
    let digit = |byte: &u8| char::from(digits[usize::from(byte % 32)]);
    hash.iter().map(digit).collect()
}

fn hash(contents: &[u8]) -> String {
    Hash::sha256(floe_hash::sha256(&nar(contents))).to_base16()
}

fn nar(contents: &[u8]) -> Vec<u8> {
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::begin_file(&mut nar, false, contents.len() as u64);
    nar.extend(contents);
    write::end_file(&mut nar, contents.len() as u64);
    nar
}

/// The number of live paths. The last one refers to others, and has a root.
const LIVE: usize = 10;

/// The variable with the database of [`Reader`].
const DATABASE_VARIABLE: &str = "FLOE_TEST_DATABASE";

/// The line of a [`Reader`] that has begun to read.
const READING: &str = "reading";
