//! The benchmarks of libfloe, which are cargo's own: `cargo bench -p floe-ffi --bench NAME`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::Outcome;

pub(super) fn submit(root: &Path, arguments: &[String]) -> Result<Outcome> {
    run(root, "submit", arguments)
}

pub(super) fn codec(root: &Path, arguments: &[String]) -> Result<Outcome> {
    run(root, "codec", arguments)
}

pub(super) fn call(root: &Path, arguments: &[String]) -> Result<Outcome> {
    run(root, "call", arguments)
}

fn run(root: &Path, name: &str, arguments: &[String]) -> Result<Outcome> {
    // The word is for `bench all`; these take seconds anyway.
    let arguments = arguments.iter().filter(|argument| *argument != "--quick");
    let mut command = std::process::Command::new(env!("CARGO"));
    command.current_dir(root);
    command.args(["bench", "--package", "floe-ffi", "--bench", name, "--"]);
    let status = command.args(arguments).status();
    match status
        .with_context(|| format!("running {command:?}"))?
        .success()
    {
        true => Ok(Outcome::Good),
        false => Ok(Outcome::Bad),
    }
}
