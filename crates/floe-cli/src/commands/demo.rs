//! `floe demo`: a tour of floe on one machine, without Nix and without a network.
//!
//! 1. Make a store with floe itself and a few small trees that refer to each other.
//! 2. Copy that closure into a signed binary cache.
//! 3. Install it from the cache into a new store that trusts only this key.
//! 4. Verify the store, and run the installed floe.
//! 5. Change one byte in the cache, and show that an install refuses it.

pub(crate) mod page;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use floe_cache::{CacheWriteOptions, FileCacheUri};
use floe_copy::{CopyRequest, CopySummary, RequestedPaths, local_store};
use floe_format::drv_name::name_and_version;
use floe_format::{Compression, NarInfo, PathInfo, SecretKey, StoreDir, StorePath};
use floe_store::tree::remove_tree;
use floe_store::{StoreLayout, StoreReader, StoreWriter, WrittenFile, write_file};
use floe_transfer::{Cancel, Error, ErrorKind, Size, StoreConfig};
use rustix::fs::Mode;

use super::key;
use crate::messages;
use crate::signals;
use crate::stdout::print;

pub(crate) fn run(keep: Option<&Path>) -> Result<()> {
    if let Some(directory) = keep {
        fs::create_dir(directory).with_context(|| messages::directory(directory))?;
    }
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let scratch = match keep {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("floe-demo-").tempdir()?),
    };
    let scratch_path = scratch.as_ref().map(tempfile::TempDir::path);
    let directory = keep
        .or(scratch_path)
        .context("the demo needs a directory")?;
    let directory = fs::canonicalize(directory)?;
    let demo = Demo { directory, cancel };
    let result = demo.run_steps();
    match keep {
        Some(_) => print(format_args!(
            "kept everything in {}",
            demo.directory.display()
        ))?,
        // The stores are read-only, so a plain removal would fail.
        None => remove_tree(&demo.directory)?,
    }
    result
}

struct Demo {
    directory: PathBuf,
    /// Ends the demo after the current step, so that it can remove its files.
    cancel: Cancel,
}

/// The current step.
struct Step<'a> {
    began: Instant,
    cancel: &'a Cancel,
}

impl Step<'_> {
    /// Prints the finished step with its duration, and begins the next one.
    ///
    /// Errors: [`Error::Cancelled`] after an interrupt.
    fn finish(&mut self, what: impl std::fmt::Display) -> Result<()> {
        if self.cancel.is_raised() {
            bail!(Error::Cancelled);
        }
        let milliseconds = self.began.elapsed().as_secs_f64() * 1000.0;
        print(format_args!("{milliseconds:6.0} ms  {what}"))?;
        self.began = Instant::now();
        Ok(())
    }
}

impl Demo {
    fn run_steps(&self) -> Result<()> {
        let mut step = Step {
            began: Instant::now(),
            cancel: &self.cancel,
        };
        let source = self.make_store()?;
        let root = &source.last().context("the demo store is empty")?.path;
        let count = source.len();
        let bytes = Size(source.iter().map(|info| info.nar_size).sum());
        self.write_names(&source)?;
        step.finish(format_args!("made a store with {count} paths, {bytes}"))?;

        let key = self.publish(root)?;
        let name = key.name();
        step.finish(format_args!(
            "published them into a cache, signed by {name}"
        ))?;

        let installed = self.install("installed", &key, root)?;
        fail_with_first(installed.failures)?;
        let copied = installed.copied;
        ensure!(copied == count as u64, "not every path was installed");
        let [fetched, unpacked] = [installed.download_bytes, installed.nar_bytes].map(Size);
        step.finish(format_args!(
            "installed {copied} paths from the cache: {fetched} fetched, {unpacked} unpacked",
        ))?;

        let store = StoreReader::open(self.layout("installed"))?;
        let found = store.verify(&[], None, &())?;
        let (verified, problems) = (found.paths, found.problems);
        ensure!(
            problems.is_empty(),
            "the installed store has problems: {problems:?}"
        );
        ensure!(verified == count as u64, "not every path was verified");
        step.finish(format_args!(
            "verified the store: {verified} paths hashed, no problem"
        ))?;

        let version = run_installed(&store.real_path(root).join("bin/floe"))?;
        step.finish(format_args!(
            "ran the installed floe: its version is {version:?}"
        ))?;

        self.corrupt_cache(root)?;
        let refused = self.install("refused", &key, root)?;
        let (Some(error), []) = (refused.failures.first(), &*refused.requested_paths) else {
            bail!("a corrupt cache was not refused");
        };
        ensure!(
            error.kind() == ErrorKind::Untrusted,
            "a corrupt cache was refused for another reason: {error}"
        );
        step.finish("changed one byte in the cache, and floe refused it:")?;
        print(format_args!("         {error}"))
    }

    fn layout(&self, name: &str) -> StoreLayout {
        StoreLayout::in_root(&self.directory.join(name), StoreDir::default())
    }

    /// Writes a name source with the paths.
    fn write_names(&self, paths: &[PathInfo]) -> Result<()> {
        let dir = StoreDir::default();
        let lines = paths.iter().map(|info| {
            let (name, _) = name_and_version(info.path.name());
            format!("{name} = {:?}\n", dir.full_path(&info.path))
        });
        let file = self.directory.join("names.toml");
        write_file(&file, lines.collect::<String>().as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn secret_key_file(&self) -> PathBuf {
        self.directory.join("demo.secret-key")
    }

    fn cache(&self) -> Arc<dyn StoreConfig> {
        Arc::new(FileCacheUri {
            directory: self.directory.join("cache"),
            write: CacheWriteOptions {
                compression: Compression::Zstd,
                secret_keys: vec![self.secret_key_file()],
                write_listings: true,
                ..CacheWriteOptions::default()
            },
            ..FileCacheUri::default()
        })
    }

    /// Makes a store with a closure. Its last path refers to all others, and holds this program.
    fn make_store(&self) -> Result<Vec<PathInfo>> {
        let trees = self.directory.join("trees");
        let write = |name: &str, text: &str| -> io::Result<PathBuf> {
            let file = trees.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&trees))?;
            write_file(&file, text.as_bytes())?;
            Ok(file)
        };
        write("greeting", "Closures should be copied fast.\n")?;
        write("empty/share/nothing", "")?;
        fs::create_dir(trees.join("empty/share/empty"))?;
        let script = write("tool/bin/demo", "#!/bin/sh\necho demo\n")?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        symlink("demo", trees.join("tool/bin/démo"))?;
        for page in 0..100 {
            let text = format!("Page {page} of the demo.\n").repeat(page + 1);
            let name = format!("documentation/share/doc/demo/{page:02}.txt");
            write(&name, &text)?;
        }
        let program = std::env::current_exe().context("cannot find the executable of floe")?;
        fs::create_dir_all(trees.join("floe/bin"))?;
        copy_program(&program, &trees.join("floe/bin/floe"))
            .with_context(|| format!("cannot copy {}", program.display()))?;

        let store = StoreWriter::open(self.layout("source"))?;
        let mut made: Vec<PathInfo> = Vec::new();
        let floe = concat!("floe-", env!("CARGO_PKG_VERSION"));
        for (tree, name, references) in [
            ("greeting", "demo-greeting", &[][..]),
            ("empty", "demo-empty", &[]),
            ("tool", "demo-tool-1.0", &[0]),
            ("documentation", "demo-documentation-1.0", &[1, 2]),
            ("floe", floe, &[0, 1, 2, 3]),
        ] {
            let path = |number: &usize| made[*number].path.clone();
            let references = references.iter().map(path).collect();
            made.push(store.add_to_store(&trees.join(tree), name, references)?);
        }
        Ok(made)
    }

    fn publish(&self, root: &StorePath) -> Result<SecretKey> {
        let key = key::generate("demo-1")?;
        let file = self.secret_key_file();
        let new = WrittenFile::create(&file, Mode::from_raw_mode(0o600))?;
        new.complete(|new| new.write_all(key.to_text().as_bytes()))?;
        let source = local_store(self.layout("source"));
        let published = self.copy_closure((source, self.cache()), &key, root)?;
        fail_with_first(published.failures)?;
        Ok(key)
    }

    fn install(&self, name: &str, key: &SecretKey, root: &StorePath) -> Result<CopySummary> {
        let target = local_store(self.layout(name));
        self.copy_closure((self.cache(), target), key, root)
    }

    fn copy_closure(
        &self,
        (source, target): (Arc<dyn StoreConfig>, Arc<dyn StoreConfig>),
        key: &SecretKey,
        root: &StorePath,
    ) -> Result<CopySummary> {
        let paths = RequestedPaths::Named(vec![root.to_string()]);
        let mut request = CopyRequest::new(vec![source], target, paths);
        request.options.trusted_keys.insert(key.public());
        request.options.cancel = self.cancel.clone();
        Ok(request.open()?.run()?)
    }

    /// Flips one bit in the middle of the NAR of `root`.
    fn corrupt_cache(&self, root: &StorePath) -> Result<()> {
        let cache = self.directory.join("cache");
        let narinfo = fs::read(cache.join(format!("{}.narinfo", root.hash_part())))?;
        let narinfo = NarInfo::parse(&narinfo, &StoreDir::default())?;
        let file = cache.join(&narinfo.url);
        let mut nar = fs::read(&file)?;
        let middle = nar.len() / 2;
        nar[middle] ^= 1;
        write_file(&file, &nar)?;
        Ok(())
    }
}

fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let new = WrittenFile::create(to, Mode::from_raw_mode(0o755))?;
    new.complete(|new| io::copy(&mut from, new).map(drop))
}

fn fail_with_first(failures: Vec<Error>) -> Result<(), Error> {
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn run_installed(program: &Path) -> Result<String> {
    let shown = program.display();
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {shown}"))?;
    let status = output.status;
    ensure!(status.success(), "{shown} ended with {status}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
