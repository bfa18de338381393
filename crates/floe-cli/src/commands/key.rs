//! `floe key`: makes and converts the keys that sign binary caches, in Nix's text form.

pub(crate) mod args;
pub(crate) mod page;

use std::io::Read as _;

use anyhow::{Context as _, anyhow};
use floe_cache::read_secret_key;
use floe_format::SecretKey;
use floe_format::signature::SEED_LEN;

use super::random;
use crate::exit::UsageError;
use crate::stdout::print;
use args::KeyCommand;

pub(crate) fn run(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Generate { name } => print(generate(&name)?.to_text()),
        KeyCommand::Public { file: Some(file) } => print(read_secret_key(&file)?.public()),
        KeyCommand::Public { file: None } => print(secret_key_on_stdin()?.public()),
    }
}

fn secret_key_on_stdin() -> anyhow::Result<SecretKey> {
    let mut text = String::new();
    let read = std::io::stdin().take(KEY_LEN_MAX).read_to_string(&mut text);
    let key = read.map_err(anyhow::Error::from).and_then(|_| {
        let key = SecretKey::parse(text.trim());
        key.map_err(|error| anyhow!(error.reason()))
    });
    key.context("cannot read a secret key from stdin")
}

/// Makes a new key from random bytes of the system.
///
/// Errors: the name cannot be that of a key.
pub(crate) fn generate(name: &str) -> anyhow::Result<SecretKey> {
    SecretKey::from_seed(name, random::<SEED_LEN>()?)
        .map_err(|error| UsageError(format!("cannot name a key {name:?}: {error}")).into())
}

/// The limit for the text of a key, far beyond any key with a sensible name.
const KEY_LEN_MAX: u64 = 64 * 1024;
