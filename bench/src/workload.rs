//! What is served: a copy of a corpus' store with some paths added by the real Nix, and the same
//! paths exported by it into caches of files. Made once, and again when this recipe changes.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use xtask::system;

/// A store and its caches. Store paths are written in full, as `/nix/store/HASH-NAME`.
pub(super) struct Workload {
    pub(super) corpus: String,
    /// A root with `nix/store` and `nix/var/nix`.
    pub(super) store: PathBuf,
    /// Holds the caches below `PLAIN` and `ZSTD`.
    pub(super) caches: PathBuf,
    pub(super) secret_key: PathBuf,
    pub(super) public_key: String,
    /// A directory with a `nix.conf` that suits a developer's machine.
    pub(super) nix_conf: PathBuf,
    /// A real closure, and its top.
    pub(super) closure: Vec<String>,
    pub(super) top: String,
    pub(super) empty: String,
    pub(super) big: String,
    pub(super) small: Vec<String>,
}

/// As the announcement of nix-serve-ng has it.
const BIG_BYTES: usize = 10_000_000;
/// Store paths with small files, so many that asking for each once takes long enough to time.
const SMALL_PATHS: usize = 20;
const SMALL_FILES: usize = 1000;
const SMALL_BYTES: usize = 6000;

impl Workload {
    /// Where the caches lie, below `caches` and below the address of nginx.
    pub(super) const PLAIN: &'static str = "/none";
    pub(super) const ZSTD: &'static str = "/zstd";

    /// Makes it in `place`, if it does not lie there already.
    pub(super) fn prepare(root: &Path, place: &Path) -> Result<Workload> {
        let corpus = corpus(root)?;
        let read = |name: &str| {
            let file = corpus.join(name);
            let text = fs::read_to_string(&file);
            let text = text.with_context(|| format!("reading {}", file.display()))?;
            Ok::<String, anyhow::Error>(text.trim().to_string())
        };
        let top = read("root-path")?;
        let stamp = format!("{top} {BIG_BYTES} {SMALL_PATHS} {SMALL_FILES} {SMALL_BYTES} 1");
        let stamp_file = place.join("made-of");
        let mut work = Workload {
            corpus: corpus.file_name().unwrap_or_default().display().to_string(),
            store: place.join("store"),
            caches: place.join("caches"),
            secret_key: corpus.join("key.sec"),
            public_key: read("key.pub")?,
            nix_conf: place.join("etc"),
            closure: read("paths")?.lines().map(String::from).collect(),
            top,
            empty: String::new(),
            big: String::new(),
            small: Vec::new(),
        };
        if fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp) {
            let added =
                fs::read_to_string(place.join("added")).context("reading what was added")?;
            work.added(&added)?;
            return Ok(work);
        }
        println!("making the store and its caches in {}", place.display());
        work.make(&corpus, place)?;
        fs::write(&stamp_file, stamp).context("writing the stamp")?;
        Ok(work)
    }

    fn make(&mut self, corpus: &Path, place: &Path) -> Result<()> {
        if place.exists() {
            fs::remove_dir_all(place).with_context(|| format!("removing {}", place.display()))?;
        }
        fs::create_dir_all(&self.nix_conf).context("making the place of the workload")?;
        let settings = "sandbox = false\nbuild-users-group =\nsubstituters =\n\
             experimental-features = nix-command\n";
        fs::write(self.nix_conf.join("nix.conf"), settings).context("writing nix.conf")?;
        let mut copy = Command::new("cp");
        run(copy.arg("-a").arg(corpus.join("store")).arg(&self.store))?;

        let trees = place.join("trees");
        let names = plant(&trees)?;
        let mut add = self.nix("nix-store")?;
        add.arg("--store").arg(&self.store).arg("--add");
        let added = run(add.args(names.iter().map(|name| trees.join(name))))?;
        fs::write(place.join("added"), &added).context("writing what was added")?;
        self.added(&added)?;
        fs::remove_dir_all(&trees).context("removing the planted trees")?;

        for (below, compression) in [(Self::PLAIN, "none"), (Self::ZSTD, "zstd")] {
            let url = format!(
                "file://{}{below}?compression={compression}&secret-key={}",
                self.caches.display(),
                self.secret_key.display()
            );
            let mut export = self.nix("nix")?;
            export
                .args(["copy", "--no-check-sigs", "--from"])
                .arg(&self.store);
            run(export.args(["--to", &url, &self.top]).args(added.lines()))?;
        }
        Ok(())
    }

    /// Takes in the paths that `nix-store --add` printed, in the order of `plant`.
    fn added(&mut self, printed: &str) -> Result<()> {
        let mut paths = printed.lines().map(String::from);
        self.empty = paths.next().unwrap_or_default();
        self.big = paths.next().unwrap_or_default();
        self.small = paths.collect();
        ensure!(
            self.small.len() == SMALL_PATHS,
            "nix-store --add printed:\n{printed}"
        );
        Ok(())
    }

    /// A command of the Nix that is installed.
    fn nix(&self, name: &str) -> Result<Command> {
        let found = system::find(name);
        let found = found.with_context(|| format!("needs {name}: apt-get install nix-bin"))?;
        let mut command = Command::new(found);
        self.configure(&mut command);
        Ok(command)
    }

    /// Lets a Nix work on stores of ours alone.
    pub(super) fn configure(&self, command: &mut Command) {
        command
            .env("NIX_CONF_DIR", &self.nix_conf)
            .env("NIX_REMOTE", "local")
            .env("HOME", &self.nix_conf)
            .env("XDG_CACHE_HOME", self.nix_conf.join("cache"))
            .stdin(Stdio::null());
    }

    /// What the real Nix wrote of a path.
    pub(super) fn narinfo(&self, path: &str) -> Result<Narinfo> {
        let file = format!(
            "{}{}/{}.narinfo",
            self.caches.display(),
            Self::PLAIN,
            hash_part(path)
        );
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        Ok(Narinfo(text))
    }

    /// The NAR of a path, as the real Nix wrote it.
    pub(super) fn nar(&self, path: &str) -> Result<Vec<u8>> {
        let narinfo = self.narinfo(path)?;
        let url = narinfo
            .get("URL")
            .with_context(|| format!("no URL for {path}"))?;
        let file = format!("{}{}/{url}", self.caches.display(), Self::PLAIN);
        fs::read(&file).with_context(|| format!("reading {file}"))
    }

    /// A path of the closure that refers to nothing.
    pub(super) fn leaf(&self) -> Result<&str> {
        for path in &self.closure {
            if self
                .narinfo(path)?
                .get("References")
                .is_none_or(str::is_empty)
            {
                return Ok(path);
            }
        }
        bail!("every path of the corpus refers to another")
    }

    /// The path of the closure whose NAR is nearest to 10 MB: what a real one of this size costs.
    pub(super) fn middling(&self) -> Result<&str> {
        let mut nearest = None;
        for path in &self.closure {
            let narinfo = self.narinfo(path)?;
            let size: Option<usize> = narinfo.get("NarSize").and_then(|size| size.parse().ok());
            let distance = size
                .with_context(|| format!("no NarSize of {path}"))?
                .abs_diff(BIG_BYTES);
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, path));
            }
        }
        Ok(nearest.context("the closure is empty")?.1)
    }
}

/// The fields of a narinfo.
pub(super) struct Narinfo(pub(super) String);

impl Narinfo {
    pub(super) fn get(&self, field: &str) -> Option<&str> {
        let value = |line: &'_ str| line.strip_prefix(field)?.strip_prefix(':').map(str::len);
        let line = self.0.lines().find(|line| value(line).is_some())?;
        Some(line[field.len() + 1..].trim())
    }
}

/// The 32 characters by which caches know a path.
pub(super) fn hash_part(path: &str) -> &str {
    let base = path.rsplit('/').next().unwrap_or(path);
    base.split('-').next().unwrap_or(base)
}

/// The largest of the corpora that is there.
fn corpus(root: &Path) -> Result<PathBuf> {
    let given = env::var_os("FLOE_CORPORA").filter(|given| !given.is_empty());
    let directory = match given {
        Some(given) => root.join(given),
        None => xtask::workspace::target_directory(root).join("corpora"),
    };
    ["firefox", "firefox-esr", "jq"]
        .iter()
        .map(|name| directory.join(name))
        .find(|place| place.join("stats.json").exists())
        .with_context(|| {
            let directory = directory.display();
            format!(
                "no corpus in {directory}; `cargo xtask test` makes them, FLOE_CORPORA names them"
            )
        })
}

/// Writes the trees that are added, and gives back their names in order.
fn plant(directory: &Path) -> Result<Vec<String>> {
    let mut noise = Noise(0x_f10e);
    let small = (0..SMALL_PATHS).map(|number| format!("small-{number:02}"));
    let names: Vec<String> = ["empty".into(), "big".into()]
        .into_iter()
        .chain(small)
        .collect();
    let plant = || {
        fs::create_dir_all(directory)?;
        fs::File::create(directory.join("empty"))?;
        fs::write(directory.join("big"), noise.bytes(BIG_BYTES))?;
        for name in &names[2..] {
            let tree = directory.join(name);
            fs::create_dir(&tree)?;
            for number in 0..SMALL_FILES {
                let mut file = fs::File::create(tree.join(format!("{number:04}")))?;
                file.write_all(&noise.bytes(SMALL_BYTES))?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let mut plant = plant;
    plant().with_context(|| format!("writing {}", directory.display()))?;
    Ok(names)
}

/// Bytes that look random and are the same in every run (xorshift64).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.extend(self.0.to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

/// Runs it to its end and gives back what it printed.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("starting {name}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {words}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let narinfo = Narinfo("URLS: x\nURL: nar/a.nar\nReferences: \n".into());
        assert_eq!(narinfo.get("URL"), Some("nar/a.nar"));
        assert_eq!(narinfo.get("References"), Some(""));
        assert_eq!(narinfo.get("Sig"), None);
    }

    #[test]
    fn a_hash_part_is_what_stands_before_the_name() {
        assert_eq!(hash_part("/nix/store/abc-x-1.0"), "abc");
        assert_eq!(hash_part("abc-x"), "abc");
    }

    #[test]
    fn noise_is_the_same_in_every_run_and_nowhere_repeats() {
        let (first, second) = (Noise(7).bytes(1000), Noise(7).bytes(1000));
        assert_eq!(first, second);
        assert_ne!(first[..500], first[500..]);
    }
}
