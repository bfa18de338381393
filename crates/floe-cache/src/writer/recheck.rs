//! Checks everything again after a lease has expired.

use floe_transfer::{Cancel, CommitOutcome, Error, IncomingNar};

use super::BinaryCacheWriter;
use super::examine::Presence;
use super::nar_file::{StagedNar, write_nar_file};
use crate::error::CacheError;
use crate::storage::len_and_wait;

impl BinaryCacheWriter {
    /// Writes a NAR, and keeps its file from a collection.
    pub(super) fn write_nar_file(&self, nar: &mut IncomingNar<'_>) -> Result<StagedNar, Error> {
        write_nar_file(&*self.storage, &self.options, nar, &|name| {
            self.lease.need(std::iter::once(name))
        })
    }

    /// Removes the staged NARs whose files are gone, and forgets which paths the cache had.
    pub(super) fn check_again(
        &self,
        staged: &mut Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), Error> {
        self.whole.lock().clear();
        for nar in std::mem::take(staged) {
            let len = len_and_wait(&*self.storage, &nar.narinfo.url, &Cancel::default())?;
            if len.is_some() && len == nar.narinfo.file_size {
                staged.push(nar);
                continue;
            }
            let url = &nar.narinfo.url;
            let error = self.deleted(&format!("its NAR {url}"));
            outcome.refused.push((nar.path().clone(), error));
        }
        Ok(())
    }

    /// Examines the paths that were published while the lease expired, and those to which they
    /// refer.
    pub(super) fn check_published(&self, outcome: &mut CommitOutcome) -> Result<(), Error> {
        let published = std::mem::take(&mut outcome.valid);
        let references: Vec<_> = {
            let whole = self.whole.lock();
            let found = published.iter().map(|path| whole.get(path));
            found
                .map(|found| found.cloned().unwrap_or_default())
                .collect()
        };
        self.whole.lock().clear();
        for (path, mut needed) in published.into_iter().zip(references) {
            needed.insert(path.clone());
            let needed: Vec<_> = needed.into_iter().collect();
            let found = self.examine(&needed, &Cancel::default())?;
            let lost = found
                .iter()
                .position(|it| !matches!(it, Presence::Whole(_)));
            match lost {
                None => outcome.valid.push(path),
                Some(lost) => {
                    let error = self.deleted(&needed[lost].to_string());
                    outcome.refused.push((path, error));
                }
            }
        }
        Ok(())
    }

    /// Returns the error of a path of which a collection has deleted something.
    fn deleted(&self, what: &str) -> Error {
        let reason =
            format!("a collection has deleted {what} while this program stood still; try again");
        CacheError::Write {
            url: self.storage.name(),
            reason,
            transient: false,
        }
        .into()
    }
}
