//! The file of a trace: a JSON array with one element a line.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use floe_store::WrittenFile;
use serde_json::Value;

/// A trace file. Viewers also open one without the closing bracket, as after a crash.
pub(super) struct TraceFile {
    /// `None` after the end.
    out: Option<BufWriter<WrittenFile>>,
    path: PathBuf,
    /// The first failure. Nothing is written after it, and the copy continues.
    failure: Option<io::Error>,
}

impl TraceFile {
    /// Creates or truncates the file, and writes its first element.
    ///
    /// Errors: the file cannot be created.
    pub(super) fn create(path: &Path, first: &Value) -> anyhow::Result<TraceFile> {
        let file = WrittenFile::create_or_truncate(path);
        let file =
            file.with_context(|| format!("cannot create the trace file {}", path.display()))?;
        let mut out = BufWriter::new(file);
        let failure = write!(out, "[\n{first}").err();
        Ok(TraceFile {
            out: Some(out),
            path: path.to_path_buf(),
            failure,
        })
    }

    /// Adds an element, unless an earlier one has failed.
    pub(super) fn write(&mut self, event: &Value) {
        if self.failure.is_none()
            && let Some(out) = &mut self.out
        {
            self.failure = write!(out, ",\n{event}").err();
        }
    }

    /// Closes the array and the file.
    ///
    /// Errors: the first failure to write or to close.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let Some(mut out) = self.out.take() else {
            return Ok(());
        };
        let ended = match self.failure.take() {
            Some(error) => Err(error),
            None => out.write_all(b"\n]\n").and_then(|()| out.flush()),
        };
        // After a failure, the rest of the buffer is not written.
        let (file, _) = out.into_parts();
        let ended = file.complete(|_| ended);
        ended.with_context(|| format!("cannot write the trace file {}", self.path.display()))
    }
}
