//! Plans whose small files are packed, within a budget.
//!
//! A client that copies a whole store asks for more paths than fit. To evict the oldest pack for
//! each of them would cost more than the packs gain. So packs stay until they were not used for a
//! while, and new ones are refused until then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_store::tree::plan::NarPlan;

use super::tree_identity::TreeIdentity;
use floe_format::HashPart;

#[derive(Debug)]
pub(crate) struct SmallFilePacks {
    packs: HashMap<HashPart, Pack>,
    /// The weights of packs that are being made.
    reserved: HashMap<HashPart, usize>,
    /// The weight of all packs and reservations, in bytes.
    weight: usize,
    budget: usize,
}

#[derive(Debug)]
struct Pack {
    identity: TreeIdentity,
    plan: Arc<NarPlan>,
    weight: usize,
    used: Instant,
}

impl SmallFilePacks {
    pub(crate) fn new(budget: usize) -> SmallFilePacks {
        SmallFilePacks {
            packs: HashMap::new(),
            reserved: HashMap::new(),
            weight: 0,
            budget,
        }
    }

    /// Returns the packed plan of a path. If the tree has changed, its pack is dropped.
    pub(crate) fn get(
        &mut self,
        hash: HashPart,
        identity: TreeIdentity,
        now: Instant,
    ) -> Option<Arc<NarPlan>> {
        let pack = self.packs.get_mut(&hash)?;
        if pack.identity != identity {
            self.remove(hash);
            return None;
        }
        pack.used = now;
        Some(pack.plan.clone())
    }

    pub(crate) fn has(&self, hash: HashPart, identity: TreeIdentity) -> bool {
        let pack = self.packs.get(&hash);
        pack.is_some_and(|pack| pack.identity == identity)
    }

    /// Reserves room for a pack, and drops idle packs if that is necessary. Returns `false` if
    /// there is no room, or if another thread makes this pack. Otherwise the caller must call
    /// [`SmallFilePacks::finish`].
    pub(crate) fn reserve(&mut self, hash: HashPart, weight: usize, now: Instant) -> bool {
        if self.reserved.contains_key(&hash) {
            return false;
        }
        if !self.has_room(weight) {
            let is_idle = |_: &HashPart, pack: &mut Pack| now.duration_since(pack.used) >= IDLE;
            let idle = self.packs.extract_if(is_idle);
            self.weight -= idle.map(|(_, pack)| pack.weight).sum::<usize>();
        }
        let has_room = self.has_room(weight);
        if has_room {
            self.reserved.insert(hash, weight);
            self.weight += weight;
        }
        has_room
    }

    fn has_room(&self, weight: usize) -> bool {
        self.packs.len() + self.reserved.len() < COUNT_MAX
            && self.weight.saturating_add(weight) <= self.budget
    }

    /// Keeps the pack for which room was reserved. `None` releases the room.
    pub(crate) fn finish(
        &mut self,
        hash: HashPart,
        packed: Option<(TreeIdentity, Arc<NarPlan>)>,
        now: Instant,
    ) {
        let Some(weight) = self.reserved.remove(&hash) else {
            return;
        };
        self.remove(hash);
        match packed {
            None => self.weight -= weight,
            Some((identity, plan)) => {
                let pack = Pack {
                    identity,
                    plan,
                    weight,
                    used: now,
                };
                self.packs.insert(hash, pack);
            }
        }
    }

    fn remove(&mut self, hash: HashPart) {
        if let Some(pack) = self.packs.remove(&hash) {
            self.weight -= pack.weight;
        }
    }
}

/// Each pack holds a descriptor. A server with a limit of 1,024 descriptors still has most of them
/// for connections.
const COUNT_MAX: usize = 256;

/// Longer than a client takes to copy a large closure.
const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_pack_is_not_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let same = TreeIdentity::read(dir.path()).unwrap();
        let packed = || (same, Arc::new(NarPlan::new(dir.path()).unwrap()));
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = SmallFilePacks::new(100);
        let start = Instant::now();
        let add = |packs: &mut SmallFilePacks, digit: &str, now| {
            let has_room = packs.reserve(hash(digit), 60, now);
            packs.finish(hash(digit), Some(packed()), now);
            has_room
        };
        assert!(add(&mut packs, "1", start));
        assert!(packs.get(hash("1"), same, start).is_some());
        assert!(!add(&mut packs, "2", start));
        assert!(packs.get(hash("2"), same, start).is_none(), "no room");
        let later = start + IDLE;
        assert!(add(&mut packs, "2", later));
        assert!(packs.get(hash("1"), same, later).is_none(), "idle");
        assert!(packs.get(hash("2"), same, later).is_some());
        let changed = TreeIdentity::read(other.path()).unwrap();
        let found = packs.get(hash("2"), changed, later);
        assert!(found.is_none(), "another tree");
        assert_eq!((packs.packs.len(), packs.weight), (0, 0));
    }

    #[test]
    fn reserved_pack_counts_and_is_made_once() {
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = SmallFilePacks::new(100);
        let now = Instant::now();
        assert!(packs.reserve(hash("1"), 60, now));
        assert!(!packs.reserve(hash("1"), 10, now), "is being made");
        assert!(!packs.reserve(hash("2"), 60, now), "no room");
        packs.finish(hash("2"), None, now);
        packs.finish(hash("1"), None, now);
        assert_eq!((packs.reserved.len(), packs.weight), (0, 0));
        assert!(packs.reserve(hash("2"), 60, now));
    }
}
