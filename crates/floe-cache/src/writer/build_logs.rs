//! The logs of the builds that made the paths of a cache, as `log/DERIVATION`. `nix log --store`
//! reads them there.

use std::collections::HashSet;
use std::io::{self, Read, Write as _};
use std::path::PathBuf;

use floe_format::StorePath;
use floe_transfer::{Error, Event, EventSink as _, Events, open_build_log};
use parking_lot::Mutex;

use super::nar_file::write_error;
use crate::storage::{Durability, ObjectPlan, WriteCallback, WriteStorage};

/// The logs beside a store.
#[derive(Debug)]
pub(super) struct BuildLogs {
    log_dir: PathBuf,
    events: Events,
    /// The derivations whose logs are in the cache or on their way to it.
    begun: Mutex<HashSet<StorePath>>,
}

impl BuildLogs {
    pub(super) fn new(log_dir: PathBuf, events: Events) -> BuildLogs {
        BuildLogs {
            log_dir,
            events,
            begun: Mutex::default(),
        }
    }

    /// Writes the log of a derivation, and lets `reply` receive the end of the write. Does nothing
    /// if there is no log, or if an earlier call has begun it: several outputs of a derivation
    /// share a log. A log that cannot be read is an event.
    ///
    /// Errors: those of the storage.
    pub(super) fn write(
        &self,
        storage: &dyn WriteStorage,
        derivation: &StorePath,
        reply: impl FnOnce() -> WriteCallback,
    ) -> Result<(), Error> {
        if !self.begun.lock().insert(derivation.clone()) {
            return Ok(());
        }
        let written = self.write_unless_unreadable(storage, derivation, reply);
        if written.is_err() {
            self.forget(derivation);
        }
        written
    }

    /// Lets the next call write a log again, after a failure.
    pub(super) fn forget(&self, derivation: &StorePath) {
        self.begun.lock().remove(derivation);
    }

    fn write_unless_unreadable(
        &self,
        storage: &dyn WriteStorage,
        derivation: &StorePath,
        reply: impl FnOnce() -> WriteCallback,
    ) -> Result<(), Error> {
        let (mut text, mut part) = match self.begin_reading(derivation) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.report(derivation, &error);
                return Ok(());
            }
        };
        let name = format!("log/{derivation}");
        if part.len() < PART_LEN {
            storage.put(&name, part, Durability::Synced, reply());
            return Ok(());
        }
        let plan = ObjectPlan {
            early_name: name.clone(),
            // Only the whole log would tell.
            len: u64::MAX,
        };
        let mut object = storage.begin_object(&plan)?;
        let place = object.place().to_owned();
        while !part.is_empty() {
            object.write_all(&part).map_err(write_error(&place))?;
            part = match read_part(&mut *text) {
                Ok(part) => part,
                Err(error) => {
                    self.report(derivation, &error);
                    return Ok(());
                }
            };
        }
        object.finish(&name, reply());
        Ok(())
    }

    /// Opens the log of a derivation, and reads its first part.
    fn begin_reading(&self, derivation: &StorePath) -> io::Result<Option<OpenLog>> {
        let Some(mut text) = open_build_log(&self.log_dir, derivation)? else {
            return Ok(None);
        };
        let first = read_part(&mut *text)?;
        Ok(Some((text, first)))
    }

    fn report(&self, derivation: &StorePath, error: &io::Error) {
        self.events.event(Event::SkippedBuildLog {
            derivation,
            log_dir: &self.log_dir,
            error,
        });
    }
}

/// The rest of a log, and its first part.
type OpenLog = (Box<dyn Read>, Vec<u8>);

fn read_part(text: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    text.take(PART_LEN as u64).read_to_end(&mut part)?;
    Ok(part)
}

/// The text that is read at once, in bytes. A shorter log is written from memory.
const PART_LEN: usize = 1024 * 1024;
