//! The file of a trace: a JSON array with one element a line.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::messages::copy::trace_file;

/// A trace file. Viewers also open one without the closing bracket, as after a crash.
pub(super) struct TraceFile {
    out: BufWriter<File>,
    path: PathBuf,
    is_empty: bool,
    /// The first failure. Nothing is written after it, and the copy continues.
    failure: Option<io::Error>,
}

impl TraceFile {
    /// Creates or truncates the file.
    ///
    /// Errors: the file cannot be created.
    pub(super) fn create(path: &Path) -> anyhow::Result<TraceFile> {
        let file = File::create(path).with_context(|| trace_file("create", path))?;
        Ok(TraceFile {
            out: BufWriter::new(file),
            path: path.to_path_buf(),
            is_empty: true,
            failure: None,
        })
    }

    /// Adds an element, unless an earlier one has failed.
    pub(super) fn write(&mut self, event: &Value) {
        let before = match std::mem::take(&mut self.is_empty) {
            true => "[\n",
            false => ",\n",
        };
        if self.failure.is_none() {
            self.failure = write!(self.out, "{before}{event}").err();
        }
    }

    /// Closes the array.
    ///
    /// Errors: the first failure to write.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let ended = match self.failure.take() {
            Some(error) => Err(error),
            None => self.out.write_all(b"\n]\n").and_then(|()| self.out.flush()),
        };
        ended.with_context(|| trace_file("write", &self.path))
    }
}
