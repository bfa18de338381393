//! The data that is served: a copy of a corpus' store with some paths added by the real Nix, and
//! the same paths in caches of files. It is made once, and again when this recipe changes.

mod many;

use std::fs;
use std::io::Write as _;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::remove_tree;

use crate::corpus::Corpus;
use crate::nix::{self, Settings};

/// A store and its caches. Store paths are full, as in `/nix/store/HASH-NAME`.
pub(super) struct Workload {
    pub(super) corpus_name: String,
    /// Contains all the files.
    directory: PathBuf,
    /// The root of the store.
    pub(super) store: PathBuf,
    /// Contains the caches `PLAIN` and `ZSTD`.
    pub(super) caches: PathBuf,
    pub(super) secret_key: PathBuf,
    pub(super) public_key: String,
    pub(super) settings: Settings,
    /// All paths of a real closure, and the path whose closure it is.
    pub(super) closure: Vec<String>,
    pub(super) top: String,
    /// An empty file.
    pub(super) empty: String,
    /// A file of 10 MB.
    pub(super) big: String,
    /// Directories of 1,000 small files each.
    pub(super) small: Vec<String>,
    /// Paths with the shape of nixos-minimal; none unless they were added.
    pub(super) many: Vec<String>,
}

/// As in the announcement of nix-serve-ng.
const BIG_BYTES: usize = 10_000_000;
/// So many that requesting each once takes long enough to measure.
const SMALL_PATHS: usize = 20;
const SMALL_FILES: usize = 1000;
const SMALL_BYTES: usize = 6000;

impl Workload {
    /// The caches, below `caches` and below the address of nginx.
    pub(super) const PLAIN: &'static str = "/none";
    pub(super) const ZSTD: &'static str = "/zstd";

    /// Makes the workload in a directory, if it does not exist there.
    pub(super) fn prepare(root: &Path, directory: &Path) -> Result<Workload> {
        let corpus = Corpus::find(root, &["firefox", "firefox-esr", "jq"])?;
        let top = &corpus.root;
        let stamp = format!("{top} {BIG_BYTES} {SMALL_PATHS} {SMALL_FILES} {SMALL_BYTES} 1");
        let stamp_file = directory.join("made-of");
        let is_made = fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp);
        if !is_made {
            println!("making the store and its caches in {}", directory.display());
            remove_tree(directory)?;
        }
        let mut workload = Workload {
            corpus_name: corpus.name(),
            directory: directory.to_owned(),
            store: directory.join("store"),
            caches: directory.join("caches"),
            secret_key: corpus.secret_key_file(),
            public_key: corpus.public_key.clone(),
            settings: Settings::write(&directory.join("etc"))?,
            closure: corpus.paths.clone(),
            top: corpus.root.clone(),
            empty: String::new(),
            big: String::new(),
            small: Vec::new(),
            many: Vec::new(),
        };
        let added_file = directory.join("added");
        if is_made {
            let added = fs::read_to_string(added_file).context("cannot read the added paths")?;
            workload.set_added(&added)?;
            return Ok(workload);
        }
        let added = workload.make(&corpus, &directory.join("trees"))?;
        fs::write(added_file, added)
            .and_then(|()| fs::write(&stamp_file, stamp))
            .context("cannot write the stamp")?;
        Ok(workload)
    }

    /// Makes the store and the caches. Returns the added paths, one per line.
    fn make(&mut self, corpus: &Corpus, trees: &Path) -> Result<String> {
        let mut copy = Command::new("cp");
        run(copy.arg("-a").arg(corpus.store()).arg(&self.store))?;
        let names = write_trees(trees)?;
        let added = self.add_to_store(trees, &names)?;
        self.set_added(&added)?;
        fs::remove_dir_all(trees).context("cannot remove the added trees")?;

        for cache in [(Self::PLAIN, "none"), (Self::ZSTD, "zstd")] {
            self.copy_to_cache(cache, iter::once(self.top.as_str()).chain(added.lines()))?;
        }
        Ok(added)
    }

    /// Adds trees to the store. Returns their paths in order, one per line.
    fn add_to_store(&self, trees: &Path, names: &[String]) -> Result<String> {
        let mut add = self.nix("nix-store")?;
        add.arg("--store").arg(&self.store).arg("--add");
        run(add.args(names.iter().map(|name| trees.join(name))))
    }

    /// Copies the closures of paths to a cache with a compression.
    fn copy_to_cache<'a>(
        &self,
        (below, compression): (&str, &str),
        paths: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        let url = format!(
            "file://{}{below}?compression={compression}&secret-key={}",
            self.caches.display(),
            self.secret_key.display()
        );
        let mut copy = self.nix("nix")?;
        copy.args(["copy", "--no-check-sigs", "--from"])
            .arg(&self.store);
        run(copy.args(["--to", &url]).args(paths))?;
        Ok(())
    }

    /// Sets the paths that `nix-store --add` printed, in the order of `write_trees`.
    fn set_added(&mut self, printed: &str) -> Result<()> {
        let mut paths = printed.lines().map(String::from);
        self.empty = paths.next().unwrap_or_default();
        self.big = paths.next().unwrap_or_default();
        self.small = paths.collect();
        let is_complete = self.small.len() == SMALL_PATHS;
        ensure!(is_complete, "nix-store --add printed:\n{printed}");
        Ok(())
    }

    /// A command of the installed Nix.
    fn nix(&self, name: &str) -> Result<Command> {
        let bin = nix::installed().context("needs Nix; run apt-get install nix-bin")?;
        Ok(self.settings.command(bin.join(name)))
    }

    /// The narinfo of a path, as the real Nix wrote it.
    pub(super) fn narinfo(&self, path: &str) -> Result<NarInfoText> {
        let file = format!(
            "{}{}/{}.narinfo",
            self.caches.display(),
            Self::PLAIN,
            hash_part(path)
        );
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        Ok(NarInfoText(text))
    }

    /// The NAR of a path, as the real Nix wrote it.
    pub(super) fn nar(&self, path: &str) -> Result<Vec<u8>> {
        let narinfo = self.narinfo(path)?;
        let url = narinfo
            .get("URL")
            .with_context(|| format!("{path} has no URL"))?;
        let file = format!("{}{}/{url}", self.caches.display(), Self::PLAIN);
        fs::read(&file).with_context(|| format!("cannot read {file}"))
    }

    /// The NAR size of a path.
    fn nar_size(&self, path: &str) -> Result<usize> {
        let narinfo = self.narinfo(path)?;
        let size = narinfo.get("NarSize").and_then(|size| size.parse().ok());
        size.with_context(|| format!("{path} has no NarSize"))
    }

    /// A path of the closure without references.
    pub(super) fn leaf(&self) -> Result<&str> {
        for path in &self.closure {
            let narinfo = self.narinfo(path)?;
            if narinfo.get("References").is_none_or(str::is_empty) {
                return Ok(path);
            }
        }
        bail!("every path of the corpus has references")
    }

    /// The path of the closure whose NAR size is closest to 10 MB.
    pub(super) fn middle_sized(&self) -> Result<&str> {
        let mut closest = None;
        for path in &self.closure {
            let distance = self.nar_size(path)?.abs_diff(BIG_BYTES);
            if closest.is_none_or(|(least, _)| distance < least) {
                closest = Some((distance, path));
            }
        }
        Ok(closest.context("the closure is empty")?.1)
    }
}

/// The text of a narinfo.
pub(super) struct NarInfoText(pub(super) String);

impl NarInfoText {
    /// The value of a field.
    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let value = line.strip_prefix(field)?.strip_prefix(':')?;
            Some(value.trim())
        })
    }
}

/// The hash part of a store path.
pub(super) fn hash_part(path: &str) -> &str {
    let base = path.rsplit('/').next().unwrap_or(path);
    base.split('-').next().unwrap_or(base)
}

/// Writes the trees that are added to the store. Returns their names in order.
fn write_trees(directory: &Path) -> Result<Vec<String>> {
    let mut noise = Noise(0x_f10e);
    let small = (0..SMALL_PATHS).map(|number| format!("small-{number:02}"));
    let names: Vec<String> = ["empty".into(), "big".into()]
        .into_iter()
        .chain(small)
        .collect();
    let mut write = || {
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
    write().with_context(|| format!("cannot write {}", directory.display()))?;
    Ok(names)
}

/// Pseudorandom bytes that are the same in every run (xorshift64).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// A number from `min` to `max`.
    fn number(&mut self, min: usize, max: usize) -> usize {
        let random = self.next() % (max - min + 1) as u64;
        min + random as usize
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs a command to its end and returns its stdout.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {stderr}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narinfo_field_is_found_by_its_whole_name() {
        let narinfo = NarInfoText("URLS: x\nURL: nar/a.nar\nReferences: \n".into());
        assert_eq!(narinfo.get("URL"), Some("nar/a.nar"));
        assert_eq!(narinfo.get("References"), Some(""));
        assert_eq!(narinfo.get("Sig"), None);
    }

    #[test]
    fn hash_part_is_the_base_name_up_to_the_first_dash() {
        assert_eq!(hash_part("/nix/store/abc-x-1.0"), "abc");
        assert_eq!(hash_part("abc-x"), "abc");
    }

    #[test]
    fn noise_is_reproducible_and_does_not_repeat() {
        let (first, second) = (Noise(7).bytes(1000), Noise(7).bytes(1000));
        assert_eq!(first, second);
        assert_ne!(first[..500], first[500..]);
    }
}
