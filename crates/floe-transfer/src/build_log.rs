//! The text of the log of a build.

use std::io::{self, BufReader, Read};
use std::path::Path;

use floe_format::{Compression, StorePath};
use floe_store::BuildLog;

use crate::codec::{self, XzChecks};

/// Opens the log of a derivation, and decompresses it. `None` if there is none.
///
/// Errors: those of [`BuildLog::open`].
pub fn open_build_log(log_dir: &Path, derivation: &StorePath) -> io::Result<Option<Box<dyn Read>>> {
    let Some(log) = BuildLog::open(log_dir, derivation)? else {
        return Ok(None);
    };
    Ok(Some(match log {
        BuildLog::Plain(file) => Box::new(file),
        BuildLog::Bzip2(file) => {
            let body = BufReader::new(file);
            // bzip2 needs no window.
            let decoder = codec::decoder(Compression::Bzip2, body, 0, XzChecks::Compare)?;
            decoder.ok_or(io::ErrorKind::Unsupported)?
        }
    }))
}
