//! The logs of the builds that made the paths of a cache, as `log/DERIVATION`. `nix log --store`
//! reads them there.

use std::collections::HashSet;
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use floe_format::{Compression, StorePath};
use floe_store::BuildLog;
use floe_transfer::{Error, codec};
use parking_lot::Mutex;

use crate::storage::{ObjectPlan, WriteCallback, WriteStorage, file_error};

/// The logs beside a store, and those that the cache has got already.
#[derive(Debug)]
pub(super) struct BuildLogs {
    log_dir: PathBuf,
    written: Mutex<HashSet<StorePath>>,
}

impl BuildLogs {
    pub(super) fn new(log_dir: PathBuf) -> BuildLogs {
        BuildLogs {
            log_dir,
            written: Mutex::default(),
        }
    }

    /// Writes the log of a derivation, and lets `reply` receive the end of the write. Does nothing
    /// if there is no log, or if an earlier call has written it: several outputs of a derivation
    /// share a log.
    ///
    /// Errors: [`Error::File`], those of the storage.
    pub(super) fn write(
        &self,
        storage: &dyn WriteStorage,
        derivation: &StorePath,
        reply: impl FnOnce() -> WriteCallback,
    ) -> Result<(), Error> {
        if self.written.lock().contains(derivation) {
            return Ok(());
        }
        let to_read_error =
            |error| file_error("read the build log of", Path::new(derivation.as_str()))(error);
        let read = || -> io::Result<Option<(Box<dyn Read>, u64)>> {
            let Some(log) = BuildLog::open(&self.log_dir, derivation)? else {
                return Ok(None);
            };
            reader(log).map(Some)
        };
        let (mut text, len) = match read() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => return Err(to_read_error(error)),
        };
        let name = format!("log/{derivation}");
        let plan = ObjectPlan {
            early_name: name.clone(),
            len,
        };
        let mut object = storage.begin_object(&plan)?;
        let place = object.place().to_owned();
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            match text.read(&mut buffer).map_err(to_read_error)? {
                0 => break,
                len => object
                    .write_all(&buffer[..len])
                    .map_err(file_error("write", &place))?,
            }
        }
        self.written.lock().insert(derivation.clone());
        object.finish(&name, reply());
        Ok(())
    }
}

/// Returns the text of a log, and its length or a larger number.
fn reader(log: BuildLog) -> io::Result<(Box<dyn Read>, u64)> {
    Ok(match log {
        BuildLog::Plain(file) => {
            let len = file.metadata()?.len();
            (Box::new(file), len)
        }
        BuildLog::Bzip2(file) => {
            let decoder = codec::decoder(Compression::Bzip2, BufReader::new(file), 0)?;
            (decoder.unwrap_or_else(|| Box::new(io::empty())), u64::MAX)
        }
    })
}

/// The text that is read at once, in bytes.
const BUFFER_LEN: usize = 64 * 1024;
