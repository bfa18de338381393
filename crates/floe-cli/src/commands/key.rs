//! `floe key`: the keys that sign binary caches, in Nix's text form.

use std::io::Read as _;

use anyhow::{Context as _, anyhow};
use floe_format::SecretKey;
use floe_format::signature::SEED_LEN;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::print;
use crate::args::KeyCommand;
use crate::exit::UsageError;

pub(crate) fn run(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Generate { name } => print(generate(&name)?.to_text())?,
        KeyCommand::Public => {
            let mut text = String::new();
            std::io::stdin()
                .take(KEY_LEN_MAX)
                .read_to_string(&mut text)
                .context("reading a secret key from stdin")?;
            let key = SecretKey::parse(text.trim()).context("reading a secret key from stdin")?;
            print(key.public())?;
        }
    }
    Ok(())
}

/// A new key from the system's randomness.
pub(crate) fn generate(name: &str) -> anyhow::Result<SecretKey> {
    let mut seed = [0; SEED_LEN];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| anyhow!("the system gave no randomness for a key"))?;
    SecretKey::from_seed(name, seed)
        .map_err(|error| UsageError(format!("no key can be named {name:?}: {error}")).into())
}

/// Far beyond any key with any sensible name.
const KEY_LEN_MAX: u64 = 64 * 1024;
