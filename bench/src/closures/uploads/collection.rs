//! The collection of a synthetic cache in a bucket.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use floe_bench::BenchError;
use floe_format::nix32;

use super::super::fixture::Fixture;
use super::super::rows::PreparedRow;
use super::super::variants::{self, strings};
use super::{BUCKET, KEYS, Place, bucket_url, new_link, on_link, serve};
use crate::aims::FLOE;

/// The paths of the cache. A pin keeps a tree of the first [`LIVE`] ones.
pub(super) const PATHS: u32 = 100_000;

const LIVE: u32 = 70_000;

/// The references of a path of the tree.
const CHILDREN: u32 = 8;

pub(super) fn prepare(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let link = new_link(20)?;
    let end = link.enter()?;
    let (server, scratch) = serve(fixture, &link, Place::S3)?;
    let cache = scratch.join("buckets").join(BUCKET);
    let info = "StoreDir: /nix/store\nWantMassQuery: 1\nPriority: 40\n";
    fs::create_dir_all(cache.join("nar")).context("cannot create a directory")?;
    fs::write(cache.join("nix-cache-info"), info).context("cannot write nix-cache-info")?;
    write_paths(&cache, 0..LIVE).context("cannot write the cache")?;
    pin_root(fixture, &scratch)?;
    let floe = fixture.floe()?.path.display().to_string();
    let arguments = strings(&[&floe, "cache", "gc", "--grace", "0s", &bucket_url()]);
    let mut variant = variants::variant(fixture, FLOE, arguments, None);
    let keys = KEYS.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    variant.invocation.environment.extend(keys);
    let dead = cache.clone();
    variant.prepare = Box::new(move || {
        write_paths(&dead, LIVE..PATHS).map_err(|error| BenchError::Result(error.to_string()))
    });
    variant.check = Box::new(move || check(&cache));
    let row = PreparedRow {
        guards: vec![Box::new(server)],
        ..PreparedRow::new(vec![variant])
    };
    Ok(on_link(row, link, end))
}

/// Signs a pin of the root of the tree.
fn pin_root(fixture: &Fixture, scratch: &Path) -> Result<()> {
    let program = fixture.floe()?;
    let floe = || fixture.settings.command(program.path.clone());
    let key = floe().args(["key", "generate", "bench-1"]).output()?;
    let file = scratch.join("key");
    fs::write(&file, key.stdout).context("cannot write a key")?;
    let mut pin = floe();
    pin.args(["pin", "web", &base_name(0), "--to", &bucket_url()]);
    pin.arg("--secret-key-file").arg(file).envs(KEYS);
    let output = pin.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "floe cannot pin: {stderr}");
    Ok(())
}

/// Writes narinfos and the files of their NARs.
fn write_paths(cache: &Path, numbers: std::ops::Range<u32>) -> std::io::Result<()> {
    for number in numbers {
        let (part, hash) = (hash_part(number), file_hash(number));
        let children = number.saturating_mul(CHILDREN) + 1..=(number + 1).saturating_mul(CHILDREN);
        let is_in_tree = |child: &u32| number < LIVE && *child < LIVE;
        let references: Vec<String> = children.filter(is_in_tree).map(base_name).collect();
        let narinfo = format!(
            "StorePath: /nix/store/{}\nURL: nar/{hash}.nar.zst\nCompression: zstd\n\
             FileHash: sha256:{hash}\nFileSize: 4\nNarHash: sha256:{hash}\nNarSize: 120\n\
             References: {}\n",
            base_name(number),
            references.join(" ")
        );
        fs::write(cache.join(format!("{part}.narinfo")), narinfo)?;
        fs::write(cache.join(format!("nar/{hash}.nar.zst")), "nar\n")?;
    }
    Ok(())
}

fn base_name(number: u32) -> String {
    format!("{}-path-{number}", hash_part(number))
}

fn hash_part(number: u32) -> String {
    let digest = floe_hash::sha256(&number.to_le_bytes());
    nix32::encode(&digest[..20])
}

fn file_hash(number: u32) -> String {
    nix32::encode(&floe_hash::sha256(&number.to_be_bytes()))
}

/// Checks that exactly the paths of the tree are left.
fn check(cache: &Path) -> Result<(), BenchError> {
    let count = |directory: PathBuf, suffix: &str| -> std::io::Result<usize> {
        let entries = fs::read_dir(directory)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| name.ends_with(suffix)).count())
    };
    let counted = || {
        Ok((
            count(cache.to_owned(), ".narinfo")?,
            count(cache.join("nar"), ".nar.zst")?,
        ))
    };
    let counted: std::io::Result<(usize, usize)> = counted();
    let counted = counted.map_err(|error| BenchError::Result(error.to_string()))?;
    let expected = (LIVE as usize, LIVE as usize);
    if counted == expected {
        return Ok(());
    }
    let message = format!("{counted:?} narinfos and NARs are left, not {expected:?}");
    Err(BenchError::Result(message))
}
