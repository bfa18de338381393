//! Opens the access log.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use floe_server::LogFormat;
use floe_server::config::LogOutput;

use crate::args::AccessLogFormat;
use crate::messages::serve::log_file;

/// Opens the log in `file`. No file and `-` mean stdout. Returns `None` for the format `quiet`.
///
/// Errors: the file cannot be opened.
pub(crate) fn open(
    format: AccessLogFormat,
    file: Option<&Path>,
) -> anyhow::Result<Option<(LogFormat, LogOutput)>> {
    let format = match format {
        AccessLogFormat::Quiet => return Ok(None),
        AccessLogFormat::Combined | AccessLogFormat::Default | AccessLogFormat::Normal => {
            LogFormat::Combined
        }
        AccessLogFormat::RealIp => LogFormat::RealIp,
        AccessLogFormat::Verbose | AccessLogFormat::Debug => LogFormat::Verbose,
        AccessLogFormat::Json => LogFormat::Json,
    };
    let sink: LogOutput = match file.filter(|file| *file != Path::new("-")) {
        None => Arc::new(Mutex::new(io::stdout())),
        Some(file) => Arc::new(Mutex::new(append_to(file, "access log")?)),
    };
    Ok(Some((format, sink)))
}

/// Opens a log file for appending. Log rotation may copy and truncate it.
pub(crate) fn append_to(file: &Path, log: &str) -> anyhow::Result<File> {
    let opened = File::options().append(true).create(true).open(file);
    opened.with_context(|| log_file(log, file))
}
