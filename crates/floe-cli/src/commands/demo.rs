//! `floe demo`: a tour of floe on one machine, without Nix and without a network.
//!
//! 1. Make a store with floe itself and a few small trees that refer to each other.
//! 2. Copy that closure into a signed binary cache.
//! 3. Install it from the cache into a new store that trusts only this key.
//! 4. Verify the store, and run the installed floe.
//! 5. Change one byte in the cache, and show that an install refuses it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use floe_cache::{CacheOptions, CacheWriteOptions, FileCacheUri, NetworkOptions};
use floe_copy::{
    CopyRequest, CopySummary, RequestedPaths, SourceOrder, Sources, StoreConfig, local_store,
};
use floe_format::{Compression, PathInfo, SecretKey, StoreDir, StorePath, TrustedKeys};
use floe_store::tree::remove_tree;
use floe_store::{StoreLayout, StoreReader, StoreWriter};
use floe_transfer::{Cancel, CopyOptions, ErrorKind};
use indicatif::HumanBytes;

use super::{key, print};
use crate::args::DemoArgs;
use crate::messages;

pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let kept = match &args.keep {
        Some(directory) => {
            fs::create_dir(directory).with_context(|| messages::demo_directory(directory))?;
            Some(fs::canonicalize(directory)?)
        }
        None => None,
    };
    let scratch = tempfile::Builder::new().prefix("floe-demo-").tempdir()?;
    let directory = match &kept {
        Some(directory) => directory.clone(),
        None => fs::canonicalize(scratch.path())?,
    };
    let result = run_steps(&Demo {
        directory: directory.clone(),
    });
    match kept {
        Some(directory) => print(format_args!("kept everything in {}", directory.display()))?,
        // The stores are read-only, so a plain removal would fail.
        None => remove_tree(&directory)?,
    }
    result
}

struct Demo {
    directory: PathBuf,
}

fn run_steps(demo: &Demo) -> anyhow::Result<()> {
    let began = Instant::now();
    let source = demo.make_store()?;
    let root = source
        .last()
        .context("the demo store is empty")?
        .path
        .clone();
    let bytes: u64 = source.iter().map(|info| info.nar_size).sum();
    step(
        began,
        format_args!(
            "made a store with {} paths, {}",
            source.len(),
            HumanBytes(bytes)
        ),
    )?;

    let began = Instant::now();
    let key = demo.publish(&root)?;
    step(
        began,
        format_args!("published them into a cache, signed by {}", key.name()),
    )?;

    let began = Instant::now();
    let installed = demo.install("installed", &key, &root)?;
    if let Some(error) = installed.failures.into_iter().next() {
        return Err(error.into());
    }
    ensure!(
        installed.copied == source.len() as u64,
        "not every path was installed"
    );
    step(
        began,
        format_args!(
            "installed {} paths from the cache: {} fetched, {} unpacked",
            installed.copied,
            HumanBytes(installed.download_bytes),
            HumanBytes(installed.nar_bytes),
        ),
    )?;

    let began = Instant::now();
    let store = StoreReader::open(demo.layout("installed"))?;
    let found = store.verify(&[], None, &())?;
    ensure!(
        found.problems.is_empty(),
        "the installed store has problems: {:?}",
        found.problems
    );
    ensure!(
        found.paths == source.len() as u64,
        "not every path was verified"
    );
    step(
        began,
        format_args!(
            "verified the store: {} paths hashed, no problem",
            found.paths
        ),
    )?;

    let began = Instant::now();
    let version = run_installed(&store.real_path(&root).join("bin/floe"))?;
    step(
        began,
        format_args!("ran the installed floe: its version is {version:?}"),
    )?;

    let began = Instant::now();
    demo.corrupt_cache(&root)?;
    let refused = demo.install("refused", &key, &root)?;
    let Some(error) = refused.failures.first() else {
        bail!("a corrupt cache was not refused");
    };
    ensure!(
        error.kind() == ErrorKind::Untrusted,
        "a corrupt cache was refused for another reason: {error}"
    );
    ensure!(
        refused.requested_paths.is_empty(),
        "a corrupt cache was not refused"
    );
    step(
        began,
        format_args!("changed one byte in the cache, and floe refused it:"),
    )?;
    print(format_args!("         {error}"))?;
    Ok(())
}

/// Prints a finished step and its duration.
fn step(began: Instant, what: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    print(format_args!(
        "{:6.0} ms  {what}",
        began.elapsed().as_secs_f64() * 1000.0
    ))
}

impl Demo {
    fn layout(&self, name: &str) -> StoreLayout {
        StoreLayout::in_root(&self.directory.join(name), StoreDir::default())
    }

    fn cache(&self) -> FileCacheUri {
        FileCacheUri {
            directory: self.directory.join("cache"),
            options: CacheOptions::default(),
            write: CacheWriteOptions {
                compression: Compression::Zstd,
                level: None,
                secret_keys: vec![self.directory.join("demo.secret-key")],
                write_listings: true,
            },
        }
    }

    /// Makes a store with a closure. Its last path refers to all others, and holds this program.
    fn make_store(&self) -> anyhow::Result<Vec<PathInfo>> {
        let store = StoreWriter::open(self.layout("source"))?;
        let trees = self.directory.join("trees");
        fs::create_dir(&trees)?;
        let mut made: Vec<PathInfo> = Vec::new();
        let mut add = |tree: &Path, name: &str, references: &[usize]| -> anyhow::Result<()> {
            let references: BTreeSet<StorePath> = references
                .iter()
                .map(|number| made[*number].path.clone())
                .collect();
            made.push(store.add_to_store(tree, name, references)?);
            Ok(())
        };

        let greeting = trees.join("greeting");
        fs::write(&greeting, "Closures should be copied fast.\n")?;
        add(&greeting, "demo-greeting", &[])?;

        let empty = trees.join("empty");
        fs::create_dir_all(empty.join("share/empty"))?;
        fs::write(empty.join("share/nothing"), "")?;
        add(&empty, "demo-empty", &[])?;

        let tool = trees.join("tool");
        fs::create_dir_all(tool.join("bin"))?;
        fs::write(tool.join("bin/demo"), "#!/bin/sh\necho demo\n")?;
        fs::set_permissions(tool.join("bin/demo"), fs::Permissions::from_mode(0o755))?;
        symlink("demo", tool.join("bin/démo"))?;
        add(&tool, "demo-tool-1.0", &[0])?;

        let documentation = trees.join("documentation");
        fs::create_dir_all(documentation.join("share/doc/demo"))?;
        for page in 0..100 {
            let text = format!("Page {page} of the demo.\n").repeat(page + 1);
            fs::write(
                documentation.join(format!("share/doc/demo/{page:02}.txt")),
                text,
            )?;
        }
        add(&documentation, "demo-documentation-1.0", &[1, 2])?;

        let floe = trees.join("floe");
        fs::create_dir_all(floe.join("bin"))?;
        let program = std::env::current_exe().context("cannot find the executable of floe")?;
        fs::copy(&program, floe.join("bin/floe"))
            .with_context(|| messages::demo_program(&program))?;
        let name = concat!("floe-", env!("CARGO_PKG_VERSION"));
        add(&floe, name, &[0, 1, 2, 3])?;
        Ok(made)
    }

    fn publish(&self, root: &StorePath) -> anyhow::Result<SecretKey> {
        let key = key::generate("demo-1")?;
        let cache = self.cache();
        for file in &cache.write.secret_keys {
            fs::write(file, key.to_text())?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
        }
        let source = local_store(self.layout("source"));
        let outcome = copy_closure(source, Arc::new(cache), &key, root)?;
        match outcome.failures.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(key),
        }
    }

    fn install(
        &self,
        name: &str,
        key: &SecretKey,
        root: &StorePath,
    ) -> anyhow::Result<CopySummary> {
        let target = local_store(self.layout(name));
        copy_closure(Arc::new(self.cache()), target, key, root)
    }

    /// Flips one bit in the middle of the NAR of `root`.
    fn corrupt_cache(&self, root: &StorePath) -> anyhow::Result<()> {
        let cancel = Cancel::default();
        let stores: [Arc<dyn StoreConfig>; 1] = [Arc::new(self.cache())];
        let network = NetworkOptions::default();
        let sources = Sources::open(&stores, SourceOrder::AsListed, &network, &cancel)?;
        let source = sources
            .iter()
            .next()
            .context("the demo cache cannot be opened")?;
        let narinfo = source
            .query_path_info(root.hash_part(), &cancel)?
            .context("the demo cache lacks its path")?;
        let file = self.cache().directory.join(&narinfo.url);
        let mut file = File::options().read(true).write(true).open(file)?;
        let middle = SeekFrom::Start(file.metadata()?.len() / 2);
        let mut byte = [0];
        file.seek(middle)?;
        file.read_exact(&mut byte)?;
        file.seek(middle)?;
        file.write_all(&[byte[0] ^ 1])?;
        Ok(())
    }
}

fn copy_closure(
    source: Arc<dyn StoreConfig>,
    target: Arc<dyn StoreConfig>,
    key: &SecretKey,
    root: &StorePath,
) -> anyhow::Result<CopySummary> {
    let mut trusted_keys = TrustedKeys::new();
    trusted_keys.insert(key.public());
    let options = CopyOptions {
        trusted_keys,
        ..CopyOptions::default()
    };
    let paths = RequestedPaths::Named(vec![root.to_string()]);
    let request = CopyRequest {
        options,
        ..CopyRequest::new(vec![source], target, paths)
    };
    Ok(request.open()?.run(&())?)
}

fn run_installed(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| messages::demo_run(program))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        program.display(),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
