//! The access log: its forms by their names, and where it goes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use floe_server::LogFormat;

use crate::args::LogName;

/// Where lines can be written from any thread.
pub(crate) type Sink = Arc<Mutex<dyn Write + Send>>;

/// The log of that form in `file`, which `-` and nothing make stdout.
pub(crate) fn open(
    name: LogName,
    file: Option<&Path>,
) -> anyhow::Result<Option<(LogFormat, Sink)>> {
    let format = match name {
        LogName::Quiet => return Ok(None),
        LogName::Default | LogName::Normal => LogFormat::Apache,
        LogName::RealIp => LogFormat::RealIp,
        LogName::Verbose | LogName::Debug => LogFormat::Verbose,
    };
    let sink: Sink = match file.filter(|file| *file != Path::new("-")) {
        None => Arc::new(Mutex::new(io::stdout())),
        Some(file) => Arc::new(Mutex::new(append_to(file, "opening the access log")?)),
    };
    Ok(Some((format, sink)))
}

/// A file that others may rotate by copying and cutting it: every line goes to its end.
pub(crate) fn append_to(file: &Path, attempt: &str) -> anyhow::Result<std::fs::File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .with_context(|| format!("{attempt} {}", file.display()))
}
