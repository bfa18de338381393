//! What the benchmarks of moves stand on: programs, corpora, a server, directories.

use std::cell::OnceCell;
use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::machine;

use super::chains;
use crate::peers;
use xtask::system;

/// Programs and directories of a run; the directories go with it.
pub(super) struct Fixture {
    pub(super) floe: PathBuf,
    /// The developer tool, built as floe is, for `baseline`.
    pub(super) baseline: PathBuf,
    /// `bin` of the newest Nix, and of the installed one where that is another.
    pub(super) nix: PathBuf,
    pub(super) older_nix: Option<PathBuf>,
    /// For what is made once and kept.
    pub(super) place: PathBuf,
    pub(super) memory: tempfile::TempDir,
    /// For homes, settings and logs.
    pub(super) aside: tempfile::TempDir,
    corpora: PathBuf,
    disk: OnceCell<Result<Disk, String>>,
}

impl Fixture {
    pub(super) fn prepare(root: &Path, place: PathBuf) -> Result<Fixture> {
        for tool in ["nginx", "tar", "xz"] {
            system::find(tool)
                .with_context(|| format!("{tool} is not installed; apt-get install it"))?;
        }
        let target = xtask::workspace::target_directory(root);
        // Both at once: apart, each would be built with other features of what they share, and
        // drive out the other's build.
        let build = [
            "build",
            "--release",
            "--package",
            "bench",
            "--package",
            "floe-cli",
        ];
        let mut build = xtask::workspace::cargo(root, &build);
        peers::built(&mut build, "floe and bench").map_err(anyhow::Error::msg)?;
        let given = |name| env::var_os(name).filter(|given| !given.is_empty());
        let corpora = given("FLOE_CORPORA").map(|given| root.join(given));
        let installed = system::find("nix-store").and_then(|it| Some(it.parent()?.to_owned()));
        let newest = match given("FLOE_BENCH_NIX") {
            Some(given) => Some(root.join(given).join("bin")),
            None => Some(target.join("newer-nix/bin")).filter(|bin| bin.is_dir()),
        };
        let nix = newest.or_else(|| installed.clone()).context(
            "no Nix; FLOE_BENCH_NIX names a directory with bin/nix, and apt-get installs nix-bin",
        )?;
        let aside = directory(&env::temp_dir())?;
        let settings = "sandbox = false\nbuild-users-group =\nsubstituters =\n\
                        experimental-features = nix-command\n";
        fs::write(aside.path().join("nix.conf"), settings)?;
        fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
        Ok(Fixture {
            floe: match given("FLOE_BIN") {
                Some(given) => root.join(given),
                None => target.join("release/floe"),
            },
            baseline: target.join("release/bench"),
            older_nix: installed.filter(|bin| *bin != nix),
            nix,
            place,
            memory: directory(Path::new("/dev/shm"))?,
            aside,
            corpora: corpora.unwrap_or_else(|| target.join("corpora")),
            disk: OnceCell::new(),
        })
    }

    /// Variables of every command: settings that are the same for all, and an empty home.
    pub(super) fn environment(&self) -> Vec<(String, Option<String>)> {
        let aside = self.aside.path().display().to_string();
        let home = self.home().display().to_string();
        vec![
            ("NIX_REMOTE".into(), Some("local".into())),
            ("NIX_CONF_DIR".into(), Some(aside)),
            ("XDG_CACHE_HOME".into(), Some(format!("{home}/.cache"))),
            ("XDG_CONFIG_HOME".into(), None),
            ("XDG_DATA_HOME".into(), None),
            ("XDG_STATE_HOME".into(), None),
            ("HOME".into(), Some(home)),
        ]
    }

    pub(super) fn home(&self) -> PathBuf {
        self.aside.path().join("home")
    }

    /// A command of the newest Nix, for preparations and checks.
    pub(super) fn nix_command(&self, tool: &str) -> Command {
        let mut command = Command::new(self.nix.join(tool));
        for (name, value) in self.environment() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What is compared, in a line for each.
    pub(super) fn versions(&self) -> Vec<String> {
        let of = |program: PathBuf| machine::first_line(Command::new(program).arg("--version"));
        let mut versions = vec![
            format!("floe: {}", of(self.floe.clone()).unwrap_or_default()),
            format!("nix: {}", of(self.nix.join("nix")).unwrap_or_default()),
        ];
        if let Some(older) = &self.older_nix {
            let version = of(older.join("nix")).unwrap_or_default();
            versions.push(format!("older nix: {version}"));
        }
        versions
    }

    /// A corpus that is there under one of its names.
    pub(super) fn corpus(&self, names: &[&str]) -> Result<Corpus> {
        if names == ["chains"] {
            let place = self.place.join("chains");
            chains::make(&place, &|tool| self.nix_command(tool))?;
            return Corpus::read(place);
        }
        let mut places = names.iter().map(|name| self.corpora.join(name));
        let place = places.find(|place| place.join("stats.json").exists());
        Corpus::read(
            place
                .with_context(|| format!("no corpus {} in {}", names[0], self.corpora.display()))?,
        )
    }

    /// A journaled ext4 on an image of its own.
    pub(super) fn disk(&self) -> Result<&Path> {
        let disk = self
            .disk
            .get_or_init(|| Disk::mount(&self.place).map_err(|e| format!("{e:#}")));
        match disk {
            Ok(disk) => Ok(&disk.point),
            Err(why) => bail!("no journaled disk: {why}"),
        }
    }
}

pub(super) fn directory(parent: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("floe-bench-")
        .tempdir_in(parent)
        .with_context(|| format!("making a directory in {}", parent.display()))
}

/// A closure with its store and its caches, as bench/corpus/make-corpus makes it.
#[derive(Clone)]
pub(super) struct Corpus {
    pub(super) directory: PathBuf,
    pub(super) root: String,
    pub(super) key: String,
    pub(super) paths: Vec<String>,
}

impl Corpus {
    fn read(directory: PathBuf) -> Result<Corpus> {
        let read = |name: &str| {
            let file = directory.join(name);
            let text = fs::read_to_string(&file);
            text.with_context(|| format!("reading {}", file.display()))
        };
        Ok(Corpus {
            root: read("root-path")?.trim().into(),
            key: read("key.pub")?.trim().into(),
            paths: read("paths")?
                .split_whitespace()
                .map(String::from)
                .collect(),
            directory,
        })
    }

    pub(super) fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    pub(super) fn cache(&self, compression: &str) -> PathBuf {
        self.directory.join(format!("cache-{compression}"))
    }

    /// The files of one of its caches, largest first; none if it has no such cache.
    pub(super) fn nars(&self, compression: &str) -> Vec<String> {
        let entries = fs::read_dir(self.cache(compression).join("nar"));
        let mut files: Vec<(u64, String)> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let len = entry.metadata().ok()?.len();
                Some((len, entry.path().display().to_string()))
            })
            .collect();
        files.sort();
        files.into_iter().rev().map(|(_, path)| path).collect()
    }
}

/// nginx over a directory, as a cache that is as fast as can be.
pub(super) struct Nginx {
    pub(super) port: u16,
    child: Child,
    _files: tempfile::TempDir,
}

impl Nginx {
    pub(super) fn start(root: &Path) -> Result<Nginx> {
        let files = directory(&env::temp_dir())?;
        let port = peers::free_port()?;
        let at = files.path().display();
        let config = format!(
            "worker_processes 1;\ndaemon off;\nmaster_process off;\npid {at}/pid;\n\
             error_log {at}/error.log;\nevents {{ worker_connections 512; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  keepalive_requests 100000;\n  \
             server {{ listen 127.0.0.1:{port}; root {}; }}\n}}\n",
            root.display()
        );
        let file = files.path().join("nginx.conf");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let mut command = peers::process_group_command("nginx");
        command
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().context("starting nginx")?;
        let server = Nginx {
            port,
            child,
            _files: files,
        };
        let deadline = Instant::now() + START_PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(Instant::now() < deadline, "nginx does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const START_PATIENCE: Duration = Duration::from_secs(20);

/// A mounted image. The disks of machines that are thrown away often have no journal, and then
/// say nothing of what users have.
struct Disk {
    point: PathBuf,
    _directory: tempfile::TempDir,
}

impl Disk {
    fn mount(place: &Path) -> Result<Disk> {
        let directory = directory(place)?;
        let image = directory.path().join("image");
        let point = directory.path().join("mounted");
        fs::create_dir(&point)?;
        fs::File::create(&image)?.set_len(IMAGE_LEN)?;
        let run = |command: &mut Command| -> Result<()> {
            let output = command
                .output()
                .with_context(|| format!("running {command:?}"))?;
            let words = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{command:?}: {}", words.trim());
            Ok(())
        };
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&point))?;
        Ok(Disk {
            point,
            _directory: directory,
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

/// Sparse; the largest closure needs less than half of it.
const IMAGE_LEN: u64 = 4 << 30;
