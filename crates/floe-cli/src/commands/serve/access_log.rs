//! Opens the access log.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use floe_server::LogFormat;

use crate::args::AccessLogFormat;
use crate::messages::serve::log_file;

/// A writer for lines of all threads.
pub(crate) type LogSink = Arc<Mutex<dyn Write + Send>>;

/// Opens the log in `file`. No file and `-` mean stdout. Returns `None` for the format `quiet`.
///
/// Errors: the file cannot be opened.
pub(crate) fn open(
    format: AccessLogFormat,
    file: Option<&Path>,
) -> anyhow::Result<Option<(LogFormat, LogSink)>> {
    let format = match format {
        AccessLogFormat::Quiet => return Ok(None),
        AccessLogFormat::Default | AccessLogFormat::Normal => LogFormat::Apache,
        AccessLogFormat::RealIp => LogFormat::RealIp,
        AccessLogFormat::Verbose | AccessLogFormat::Debug => LogFormat::Verbose,
    };
    let sink: LogSink = match file.filter(|file| *file != Path::new("-")) {
        None => Arc::new(Mutex::new(io::stdout())),
        Some(file) => Arc::new(Mutex::new(append_to(file, "access log")?)),
    };
    Ok(Some((format, sink)))
}

/// Opens a log file for appending. Log rotation may copy and truncate it.
pub(crate) fn append_to(file: &Path, log: &str) -> anyhow::Result<std::fs::File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .with_context(|| log_file(log, file))
}
