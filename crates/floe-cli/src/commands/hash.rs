//! `floe hash`: prints the hashes of files and trees, and other forms of hashes.

pub(crate) mod args;
pub(crate) mod page;

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use floe_format::hash::HashError;
use floe_format::{Hash, HashAlgorithm};
use floe_hash::Hasher;
use floe_store::StoreError;
use floe_store::tree::{CHUNK_LEN, dump_path};
use serde_json::{Value, json};

use crate::exit::UsageError;
use crate::stdout::print;
use args::HashArgs;

pub(crate) fn run(args: &HashArgs) -> anyhow::Result<()> {
    if !args.convert {
        check_words(args)?;
    }
    let mut objects = Vec::new();
    for input in &args.inputs {
        let name = input.to_string_lossy();
        let (hash, facts) = if args.convert {
            (convert(&name, args.algorithm)?, json!({ "input": name }))
        } else {
            let algorithm = args.algorithm.unwrap_or(HashAlgorithm::Sha256);
            let (hash, size) = hash_file(Path::new(input), algorithm, args)?;
            (hash, json!({ "file": name, "bytes": size }))
        };
        let text = args.format.text(&hash);
        if args.json {
            objects.push(with_hash(facts, &hash, text));
        } else {
            // A caller sees each hash before the next file is read.
            print(text)?;
        }
    }
    if args.json {
        print(json!({ "hashes": objects }))?;
    }
    Ok(())
}

fn with_hash(mut facts: Value, hash: &Hash, text: String) -> Value {
    facts["algorithm"] = hash.algorithm().name().into();
    facts["hash"] = text.into();
    facts
}

/// Refuses the command words of `nix hash`, unless they are files.
fn check_words(args: &HashArgs) -> Result<(), UsageError> {
    let word = args.inputs.first().and_then(|word| word.to_str());
    let fix = match word {
        Some("path") => "floe hash FILE",
        Some("file") => "floe hash --flat FILE",
        Some("convert" | "to-sri") => "floe hash --convert HASH",
        Some("to-base16") => "floe hash --convert --to base16 HASH",
        Some("to-base32") => "floe hash --convert --to nix32 HASH",
        Some("to-base64") => "floe hash --convert --to base64 HASH",
        _ => return Ok(()),
    };
    let word = word.unwrap_or_default();
    if fs::symlink_metadata(word).is_ok() {
        return Ok(());
    }
    Err(UsageError(format!(
        "cannot hash {word}: there is no such file, and it is a word of nix hash; try {fix}"
    )))
}

fn convert(text: &str, algorithm: Option<HashAlgorithm>) -> Result<Hash, UsageError> {
    Hash::parse_any(text, algorithm).map_err(|error| {
        UsageError(match &error {
            HashError::MissingAlgorithm(_) => format!("{error}; try --type sha256"),
            _ => error.to_string(),
        })
    })
}

/// Returns the hash of a file or tree, and the number of bytes that were hashed.
fn hash_file(
    path: &Path,
    algorithm: HashAlgorithm,
    args: &HashArgs,
) -> anyhow::Result<(Hash, u64)> {
    let (mut hasher, mut size) = (Hasher::new(algorithm), 0);
    let mut update = |chunk: &[u8]| {
        hasher.update(chunk);
        size += chunk.len() as u64;
    };
    if args.is_flat() {
        read_flat(path, &mut update)?;
    } else {
        // As for Nix, a slash at the end of a symbolic link does not follow it.
        let path: PathBuf = path.components().collect();
        dump_path(&path, &mut |chunk| {
            update(chunk);
            Ok::<_, StoreError>(())
        })?;
    }
    Ok((Hash::new(algorithm, &hasher.finish())?, size))
}

/// Reads a file, or a pipe such as that of `<(command)`.
fn read_flat(path: &Path, update: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let found = fs::metadata(path).with_context(failed)?.file_type();
    if found.is_dir() {
        bail!("{}: it is a directory; leave out --flat", failed());
    }
    // A device may have no end.
    if !found.is_file() && !found.is_fifo() {
        bail!("{}: it is neither a file nor a pipe", failed());
    }
    let mut file = File::open(path).with_context(failed)?;
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => update(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(failed),
        }
    }
}
