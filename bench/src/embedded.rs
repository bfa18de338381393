//! The benchmarks of libfloe, which are cargo's own: `cargo bench -p floe-ffi --bench NAME`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use floe_bench::machine;

use super::record;
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
    let records = arguments.iter().any(|argument| argument == "--record");
    // `--quick` is for `bench all`; these take seconds anyway.
    let own = ["--quick", "--record"];
    let arguments = arguments
        .iter()
        .filter(|argument| !own.contains(&argument.as_str()));
    // What is said of the load at the start must not be that of the benchmark.
    let machine = machine::describe(&machine::machine());
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    command.args(["bench", "--package", "floe-ffi", "--bench", name, "--"]);
    command.args(arguments).stdout(Stdio::piped());
    let failed = || format!("running cargo bench --bench {name}");
    let mut child = command.spawn().with_context(failed)?;
    let mut text = String::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.with_context(failed)?;
            println!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
    }
    let status = child.wait().with_context(failed)?;
    if records {
        let file = root.join(format!("bench/results/{name}.md"));
        record::write(&file, &format!("# libfloe: {name}\n\n{machine}\n{text}"))?;
    }
    match status.success() {
        true => Ok(Outcome::Good),
        false => Ok(Outcome::Bad),
    }
}
