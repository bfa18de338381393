//! Two threads for the first time that a NAR of many small files is asked for.
//!
//! Reading a thousand small files takes longer than sending them. While a worker sends the first
//! half, a second thread reads the other half into memory; the client gets the NAR in less time,
//! though not for less work. So this is done for one NAR at a time, and later hits are served
//! from a pack.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use floe_store::StoreError;
use floe_store::tree::plan::{NarPlan, PlanPart, open_tree_root};
use rustix::io::{Errno, pread};

use super::{NarRange, Piece, SendError};
use crate::caches::nar_cache::NarCache;

/// The second half of a NAR, which another thread reads.
pub(crate) struct Readahead {
    thread: Option<JoinHandle<Result<Vec<u8>, StoreError>>>,
    _permit: Arc<Permit>,
}

/// The pieces of a NAR of which the second half is read ahead, if it is one of those that gain by
/// it and no other is being read so.
pub(crate) fn split(
    nars: &NarCache,
    plan: &Arc<NarPlan>,
    path: &Path,
) -> Result<Option<[Piece; 2]>, StoreError> {
    let size = plan.nar_size();
    let (small, _) = plan.small_files(SMALL_FILE_MAX);
    if plan.is_packed() || size > NAR_MAX || small < FILES_MIN {
        return Ok(None);
    }
    let Some(permit) = Permit::take(&nars.ahead, size) else {
        return Ok(None);
    };
    let first = NarRange::begin(plan.clone(), path, 0, size / 2)?;
    let permit = Arc::new(permit);
    let second = {
        let (plan, path, permit) = (plan.clone(), path.to_path_buf(), permit.clone());
        thread::Builder::new().spawn(move || {
            // The memory is taken for as long as anybody has it.
            let _permit = permit;
            read(&plan, path, size / 2)
        })
    };
    // Without a second thread it goes the usual way.
    Ok(second.ok().map(|thread| {
        let second = Readahead {
            thread: Some(thread),
            _permit: permit,
        };
        [Piece::Nar(first), Piece::Readahead(second)]
    }))
}

impl Readahead {
    /// Whether the bytes were taken.
    pub(crate) fn is_consumed(&self) -> bool {
        self.thread.is_none()
    }

    /// Waits for the bytes, which a disk may hold up, and nothing else.
    pub(crate) fn take(&mut self) -> Result<Vec<u8>, SendError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(read)) => Ok(read?),
            _ => Err(SendError::ReadaheadPanicked),
        }
    }
}

/// The NAR from an offset to its end.
fn read(plan: &NarPlan, path: PathBuf, start: u64) -> Result<Vec<u8>, StoreError> {
    let mut root = open_tree_root(&path)?;
    let mut bytes = Vec::with_capacity((plan.nar_size() - start) as usize + 1);
    while let Some(part) = plan.part(start + bytes.len() as u64) {
        match part {
            PlanPart::Framing(framing) => bytes.extend_from_slice(framing),
            PlanPart::Contents {
                file, offset: 0, ..
            } => plan.read(&mut root, file, &mut bytes)?,
            PlanPart::Contents { file, offset, len } => {
                let opened = plan.open(&mut root, file)?;
                let before = bytes.len();
                bytes.resize(before + len as usize, 0);
                let rest = bytes.get_mut(before..).unwrap_or_default();
                read_exact(rest, |buffer, at| pread(&opened, buffer, offset + at)).map_err(
                    |source| StoreError::Io {
                        action: "reading a file of",
                        path: path.clone(),
                        source: source.into(),
                    },
                )?;
            }
            // Nobody reads ahead what is packed.
            PlanPart::Packed { .. } => return Err(StoreError::FileChanged { path }),
        }
    }
    Ok(bytes)
}

fn read_exact(
    buffer: &mut [u8],
    read: impl Fn(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(rest @ [_, ..]) = buffer.get_mut(filled..) {
        match read(rest, filled as u64) {
            // Its length was just compared: it has been cut in this moment.
            Ok(0) => return Err(Errno::IO),
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A share of the memory that may be read ahead.
#[derive(Debug)]
struct Permit {
    taken: Arc<AtomicU64>,
    size: u64,
}

impl Permit {
    /// A share for a NAR of some size, if there is as much left.
    fn take(taken: &Arc<AtomicU64>, size: u64) -> Option<Permit> {
        let permit = Permit {
            taken: taken.clone(),
            size,
        };
        let before = taken.fetch_add(size, Ordering::AcqRel);
        // One that is refused gives back what it has added.
        (before + size <= BUDGET).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.size, Ordering::AcqRel);
    }
}

/// With fewer files the second thread costs more than it gains.
const FILES_MIN: usize = 200;

/// A larger file is sent without passing through memory, which nothing can beat.
const SMALL_FILE_MAX: u64 = 16 * 1024;

/// The largest NAR of which a half may wait in memory.
const NAR_MAX: u64 = 16 * 1024 * 1024;

/// As many bytes as one NAR may have: one at a time, or a few that are small.
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
        let nars = NarCache::new();
        let pieces = split(&nars, &plan, dir.path()).unwrap().unwrap();
        assert!(nars.ahead.load(Ordering::Acquire) > 0);
        let [_, Piece::Readahead(mut ahead)] = pieces else {
            panic!("no second half");
        };
        assert_eq!(ahead.take().unwrap(), &whole[whole.len() / 2..]);
        drop(ahead);
        assert_eq!(nars.ahead.load(Ordering::Acquire), 0);
    }

    #[test]
    fn readahead_permits_are_bounded_and_released() {
        let taken = Arc::new(AtomicU64::new(0));
        let permits: Vec<Permit> = (0..10)
            .filter_map(|_| Permit::take(&taken, NAR_MAX / 2))
            .collect();
        assert_eq!(permits.len(), 2);
        drop(permits);
        assert_eq!(taken.load(Ordering::Acquire), 0);
        assert!(Permit::take(&taken, NAR_MAX).is_some());
    }
}
