//! The access log: its forms by their names, and where it goes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use floe_server::LogFormat;

use crate::args::AccessLogFormat;

/// Where lines can be written from any thread.
pub(crate) type LogSink = Arc<Mutex<dyn Write + Send>>;

/// The log of that form in `file`, which `-` and nothing make stdout.
pub(crate) fn open(
    name: AccessLogFormat,
    file: Option<&Path>,
) -> anyhow::Result<Option<(LogFormat, LogSink)>> {
    let format = match name {
        AccessLogFormat::Quiet => return Ok(None),
        AccessLogFormat::Default | AccessLogFormat::Normal => LogFormat::Apache,
        AccessLogFormat::RealIp => LogFormat::RealIp,
        AccessLogFormat::Verbose | AccessLogFormat::Debug => LogFormat::Verbose,
    };
    let sink: LogSink = match file.filter(|file| *file != Path::new("-")) {
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
