//! The limits of uploads.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_server::receive::{PushScope, ReceiveError, ReceiveErrorKind};
use floe_store::list_directory;
use floe_transfer::Size;
use parking_lot::Mutex;

/// The limits of uploads.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands::serve) struct ReceiveLimits {
    /// The largest file of a NAR in bytes.
    pub(in crate::commands::serve) nar_len_max: u64,
    /// The largest sum of all files of NARs in bytes.
    pub(in crate::commands::serve) total_max: Option<u64>,
    /// How many objects a login may upload in a minute.
    pub(in crate::commands::serve) per_minute: Option<NonZeroUsize>,
    /// Whether clients may write pins. They may not if the server serves those of another
    /// directory.
    pub(in crate::commands::serve) may_pin: bool,
}

/// Checks that an object has at most `max` bytes.
///
/// Errors: [`ReceiveErrorKind::TooLarge`].
pub(super) fn check_len(len: u64, max: u64) -> Result<(), ReceiveError> {
    if len <= max {
        return Ok(());
    }
    let message = format!(
        "the object is larger than {}, the most that is allowed",
        Size(max)
    );
    Err(ReceiveError::new(ReceiveErrorKind::TooLarge, message))
}

/// Checks that a login may push a path.
pub(super) fn check_name(may_push: &PushScope, path: &StorePath) -> Result<(), ReceiveError> {
    if may_push.allows(path) {
        return Ok(());
    }
    let message = format!(
        "cannot receive {path}: the login may push only paths whose names begin with {}",
        may_push.prefixes().join(" or ")
    );
    Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message))
}

/// The size of the files of NARs, with the room of running uploads.
#[derive(Debug, Default)]
pub(super) struct Usage {
    bytes: AtomicU64,
    /// When it was measured last.
    measured: Mutex<Option<Instant>>,
}

impl Usage {
    /// Adds the sizes of all files in the directory of NARs.
    pub(super) fn measure(&self, directory: &Path) -> io::Result<()> {
        let mut measured = self.measured.lock();
        let mut sum = 0;
        for entry in list_directory(directory)? {
            // Another process may have deleted the file since.
            sum += entry?.metadata().map_or(0, |found| found.len());
        }
        self.bytes.store(sum, Ordering::Relaxed);
        *measured = Some(Instant::now());
        Ok(())
    }

    /// Takes room for some bytes. A collection may have made room since the last measurement.
    ///
    /// Errors: [`ReceiveErrorKind::Full`]; no room is taken.
    pub(super) fn take(
        &self,
        new: u64,
        total_max: Option<u64>,
        directory: &Path,
    ) -> Result<(), ReceiveError> {
        let take = || {
            let taken = self.bytes.fetch_add(new, Ordering::Relaxed);
            let fits = total_max.is_none_or(|max| taken.saturating_add(new) <= max);
            if !fits {
                self.give_back(new);
            }
            fits
        };
        if take() {
            return Ok(());
        }
        let is_old = self
            .measured
            .lock()
            .is_none_or(|then| then.elapsed() > MEASURE_INTERVAL);
        if is_old {
            self.measure(directory)?;
        }
        if is_old && take() {
            return Ok(());
        }
        let max = Size(total_max.unwrap_or(u64::MAX));
        let message = format!("the cache is full: its NARs may have {max} in all");
        Err(ReceiveError::new(ReceiveErrorKind::Full, message))
    }

    /// Gives room back that is not needed.
    pub(super) fn give_back(&self, bytes: u64) {
        // A measurement meanwhile may have left less.
        let fewer = |all: u64| Some(all.saturating_sub(bytes));
        let _: Result<u64, u64> =
            self.bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }
}

/// The memory of the small objects that are being received, by login.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, u64>>);

impl Memory {
    /// Takes memory for some bytes of a login.
    ///
    /// Errors: [`ReceiveErrorKind::TooMany`].
    pub(super) fn take(&self, user: &str, bytes: u64) -> Result<(), ReceiveError> {
        let mut taken = self.0.lock();
        let all: u64 = taken.values().sum();
        let own = taken.get(user).copied().unwrap_or_default();
        if own + bytes > LOGIN_MEMORY_MAX || all + bytes > MEMORY_MAX {
            let message = "too many narinfos, listings and logs are being uploaded";
            return Err(ReceiveError::new(ReceiveErrorKind::TooMany, message));
        }
        taken.insert(user.to_owned(), own + bytes);
        Ok(())
    }

    pub(super) fn give_back(&self, user: &str, bytes: u64) {
        let mut taken = self.0.lock();
        if let Some(own) = taken.get_mut(user) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                taken.remove(user);
            }
        }
    }
}

/// The most bytes of all small objects that are being received.
const MEMORY_MAX: u64 = 256 << 20;

/// The bytes of all small objects of one login, so that it leaves room for the uploads of others.
const LOGIN_MEMORY_MAX: u64 = 96 << 20;

/// Places that uploads take, such as those for decoders.
#[derive(Debug)]
pub(super) struct Slots {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// A place. Dropping it leaves it to another upload.
#[derive(Debug)]
pub(super) struct Slot(Arc<AtomicUsize>);

impl Slots {
    pub(super) fn new(max: usize) -> Slots {
        let taken = Arc::default();
        Slots { taken, max }
    }

    /// Takes a place, if one is free.
    pub(super) fn take(&self) -> Option<Slot> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(self.taken.clone());
        (taken < self.max).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many NARs are decoded while they arrive; the others are read later. Each decoder needs up to
/// 9 MiB, and a slow client keeps it for long. Nix uploads 25 paths at once.
pub(super) const DECODERS_MAX: usize = 32;

/// How many NARs are read for their narinfos at once. A server has at least twice as many workers
/// for uploads, and the others serve other clients.
pub(super) const READINGS_MAX: usize = 4;

/// The uploads of each login in the current minute.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<RateState>);

#[derive(Debug, Default)]
struct RateState {
    began: Option<Instant>,
    counts: HashMap<String, usize>,
}

impl Rate {
    /// Counts an upload of a login.
    ///
    /// Errors: [`ReceiveErrorKind::TooMany`].
    pub(super) fn count(&self, user: &str, max: Option<NonZeroUsize>) -> Result<(), ReceiveError> {
        let Some(max) = max else {
            return Ok(());
        };
        let mut state = self.0.lock();
        if state.began.is_none_or(|began| began.elapsed() >= MINUTE) {
            *state = RateState {
                began: Some(Instant::now()),
                counts: HashMap::new(),
            };
        }
        let count = state.counts.entry(user.to_owned()).or_default();
        if *count >= max.get() {
            let message = format!("a login may upload {max} objects in a minute");
            return Err(ReceiveError::new(ReceiveErrorKind::TooMany, message));
        }
        *count += 1;
        Ok(())
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// A full cache is measured this often.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_free_again_after_its_use() {
        let slots = Slots::new(3);
        let mut taken: Vec<_> = (0..3).map(|_| slots.take().unwrap()).collect();
        for _ in 0..3 {
            assert!(slots.take().is_none());
        }
        drop(taken.pop());
        let last = slots.take();
        assert!(last.is_some());
        assert!(slots.take().is_none());
    }
}
