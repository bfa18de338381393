//! The finished rows of a run, in files, so that the next run continues after them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use floe_bench::Row;
use serde_json::{Value, json};

/// The directory of the rows. A row counts only under the circumstances of its run.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    /// The binary, the machine and the other programs.
    circumstances: Value,
}

impl Journal {
    pub(crate) fn new(directory: PathBuf, circumstances: Value) -> Journal {
        Journal {
            directory,
            circumstances,
        }
    }

    /// Returns a finished row; `None` if there is none, or if it was measured under other
    /// circumstances.
    pub(crate) fn load(&self, benchmark: &str, row: &str) -> Option<Row> {
        let text = fs::read_to_string(self.file(benchmark, row)).ok()?;
        let saved: Value = serde_json::from_str(&text).ok()?;
        let is_same = saved["circumstances"] == self.circumstances;
        let found = Row::from_json(&saved["row"]).filter(|_| is_same)?;
        (found.name == row).then_some(found)
    }

    /// Saves a finished row.
    pub(crate) fn save(&self, benchmark: &str, row: &Row) -> Result<()> {
        let file = self.file(benchmark, &row.name);
        let saved = json!({
            "benchmark": benchmark,
            "circumstances": self.circumstances,
            "row": row.json(),
        });
        fs::create_dir_all(&self.directory)
            .and_then(|()| write_whole(&file, &format!("{saved:#}\n")))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// The names of rows have characters that are not for files.
    fn file(&self, benchmark: &str, row: &str) -> PathBuf {
        let hash = floe_hash::sha256(row.as_bytes());
        let hash: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let words = row.split(|it: char| !it.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let name = format!("{benchmark}-{}-{hash}.json", words.join("-"));
        self.directory.join(name)
    }
}

/// Writes a file that is either complete or not there, because the run may be ended at any time.
fn write_whole(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, file)
}
