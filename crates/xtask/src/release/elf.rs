//! Checks of programs and libraries, with readelf, which also reads files of other processors.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::output;

/// Refuses a program that needs a loader or a library.
pub(super) fn refuse_dynamic(program: &Path) -> Result<()> {
    let text = readelf(program, &["--program-headers", "--dynamic", "--wide"])?;
    ensure!(
        text.contains("LOAD") && !text.contains("INTERP") && !text.contains("(NEEDED)"),
        "{} is not static: {text}",
        program.display()
    );
    Ok(())
}

fn readelf(file: &Path, options: &[&str]) -> Result<String> {
    output(
        Command::new("readelf")
            .env("LC_ALL", "C")
            .args(options)
            .arg(file),
    )
}
