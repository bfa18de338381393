//! `cargo xtask bench`: builds and runs the tool in `bench/`.
//!
//! The tool is not a dependency of xtask, so that `cargo xtask test` does not wait for its build.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{Outcome, cargo};

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let run = ["run", "--release", "--package", "bench", "--"];
    let status = cargo(root, &run)
        .args(arguments)
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() {
        Outcome::Good
    } else {
        Outcome::Bad
    })
}
