//! A second thread for the first request for a NAR of many small files.
//!
//! To read a thousand small files takes longer than to send them. While a worker sends the first
//! half of the NAR, a second thread reads the other half into memory. The client gets the NAR
//! sooner, but the work is not less, so a budget allows this for about one NAR at a time. Later
//! requests are served from a pack.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use floe_store::StoreError;
use floe_store::tree::plan::{NarPlan, PlanPart, open_tree_root};

use super::Piece;
use super::budget::{Budget, Permit};
use super::nar_range::NarRange;

/// The second half of a NAR, which another thread reads.
pub(crate) struct Readahead {
    thread: Option<JoinHandle<Result<Vec<u8>, StoreError>>>,
    _permit: Arc<Permit>,
}

/// How many bytes all readaheads of a server hold.
#[derive(Clone, Debug)]
pub(crate) struct ReadaheadBudget(Budget);

impl Default for ReadaheadBudget {
    fn default() -> ReadaheadBudget {
        ReadaheadBudget(Budget::new(BUDGET))
    }
}

impl Readahead {
    /// Whether [`Readahead::join`] has returned the bytes.
    pub(crate) fn is_consumed(&self) -> bool {
        self.thread.is_none()
    }

    /// Waits for the bytes. Only a disk can delay them.
    pub(crate) fn join(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(read)) => read,
            Some(Err(panic)) => resume_unwind(panic),
            None => Ok(Vec::new()),
        }
    }
}

impl ReadaheadBudget {
    /// Splits a NAR into a half to be sent at once and a half that another thread reads meanwhile.
    /// `None` if the NAR has too few small files to gain by it, or if the budget is used up.
    pub(crate) fn split(
        &self,
        plan: &Arc<NarPlan>,
        path: &Path,
    ) -> Result<Option<[Piece; 2]>, StoreError> {
        let size = plan.nar_size();
        let (small, _) = plan.small_files(SMALL_FILE_MAX);
        if plan.is_packed() || size > NAR_MAX || small < FILES_MIN {
            return Ok(None);
        }
        let Some(permit) = self.0.acquire(size) else {
            return Ok(None);
        };
        let first = NarRange::open(plan.clone(), path, 0..size / 2)?;
        let permit = Arc::new(permit);
        let second = {
            let (plan, path, permit) = (plan.clone(), path.to_path_buf(), permit.clone());
            thread::Builder::new().spawn(move || {
                // If the client goes away, this thread still uses the memory.
                let _permit = permit;
                read(&plan, path, size / 2)
            })
        };
        // If the system refuses another thread, the NAR is sent without one.
        Ok(second.ok().map(|thread| {
            let second = Readahead {
                thread: Some(thread),
                _permit: permit,
            };
            [Piece::Nar(first), Piece::Readahead(second)]
        }))
    }
}

/// Reads a NAR from an offset to its end.
fn read(plan: &NarPlan, path: PathBuf, start: u64) -> Result<Vec<u8>, StoreError> {
    let mut root = open_tree_root(&path)?;
    let mut bytes = Vec::with_capacity((plan.nar_size() - start) as usize + 1);
    while let Some(part) = plan.part(start + bytes.len() as u64) {
        match part {
            PlanPart::Framing(framing) => bytes.extend_from_slice(framing),
            // Only the first file can begin before the offset.
            PlanPart::Contents { file, offset, .. } => {
                let before = bytes.len();
                plan.read(&mut root, file, &mut bytes)?;
                bytes.drain(before..before + offset as usize);
            }
            // Only plans without packed files are read ahead.
            PlanPart::Packed { .. } => return Err(StoreError::FileChanged(path)),
        }
    }
    Ok(bytes)
}

/// With fewer files the second thread costs more than it gains.
const FILES_MIN: usize = 200;

/// Larger files are sent with `sendfile`, which is faster than any copy through memory.
const SMALL_FILE_MAX: u64 = 16 * 1024;

/// The largest NAR of which a half may wait in memory.
const NAR_MAX: u64 = 16 * 1024 * 1024;

/// The size of the largest NAR: one at a time, or a few that are smaller.
const BUDGET: u64 = NAR_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_returns_the_second_half_of_the_nar() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..250u32 {
            let bytes = number.to_string().repeat(number as usize);
            std::fs::write(dir.path().join(format!("{number:03}")), bytes).unwrap();
        }
        let plan = Arc::new(NarPlan::new(dir.path()).unwrap());
        let whole = read(&plan, dir.path().into(), 0).unwrap();
        for start in [1, 1000, plan.nar_size() / 2, plan.nar_size()] {
            let rest = read(&plan, dir.path().into(), start).unwrap();
            assert_eq!(rest, &whole[start as usize..], "{start}");
        }
        let budget = ReadaheadBudget::default();
        let pieces = budget.split(&plan, dir.path()).unwrap().unwrap();
        assert!(budget.0.acquire(BUDGET).is_none(), "no permit is held");
        let [_, Piece::Readahead(mut half)] = pieces else {
            panic!("no second half");
        };
        assert_eq!(half.join().unwrap(), &whole[whole.len() / 2..]);
        drop(half);
        assert!(budget.0.acquire(BUDGET).is_some(), "a permit is left");
    }
}
