//! The file of a trace: a JSON array that grows, of which each line is an element.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// An array under way. Without its closing bracket the viewers take it just as well.
pub(super) struct TraceFile {
    out: BufWriter<File>,
    path: PathBuf,
    is_empty: bool,
    /// The first failure, after which nothing more is written: a move is worth more than its trace.
    failure: Option<io::Error>,
}

impl TraceFile {
    /// Makes the file, or empties it.
    pub(super) fn create(path: &Path) -> anyhow::Result<TraceFile> {
        let file = File::create(path)
            .with_context(|| format!("creating the trace file {}", path.display()))?;
        Ok(TraceFile {
            out: BufWriter::new(file),
            path: path.to_path_buf(),
            is_empty: true,
            failure: None,
        })
    }

    /// Adds an element.
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
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let ended = match self.failure.take() {
            Some(error) => Err(error),
            None => self.out.write_all(b"\n]\n").and_then(|()| self.out.flush()),
        };
        ended.with_context(|| format!("writing the trace file {}", self.path.display()))
    }
}
