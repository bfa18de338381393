//! `cargo xtask bench`: builds and runs the tool in `bench/`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{Outcome, cargo};

/// The tool is not a dependency of this one, so that `cargo xtask test` need not build it first.
pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let run = ["run", "--release", "--package", "bench", "--"];
    let status = cargo(root, &run)
        .args(arguments)
        .status()
        .context("starting cargo run")?;
    Ok(match status.success() {
        true => Outcome::Good,
        false => Outcome::Bad,
    })
}
