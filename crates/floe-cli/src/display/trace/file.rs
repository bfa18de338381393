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
    /// The first failure. Nothing is written after it, and the copy continues.
    failure: Option<io::Error>,
}

impl TraceFile {
    /// Creates or truncates the file, and writes its first element.
    ///
    /// Errors: the file cannot be created.
    pub(super) fn create(path: &Path, first: &Value) -> anyhow::Result<TraceFile> {
        let file = File::create(path).with_context(|| trace_file("create", path))?;
        let mut out = BufWriter::new(file);
        let failure = write!(out, "[\n{first}").err();
        let path = path.to_path_buf();
        Ok(TraceFile { out, path, failure })
    }

    /// Adds an element, unless an earlier one has failed.
    pub(super) fn write(&mut self, event: &Value) {
        if self.failure.is_none() {
            self.failure = write!(self.out, ",\n{event}").err();
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
