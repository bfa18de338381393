//! Packed plans, within a budget that is not given to whoever asked last.
//!
//! A client that goes through a whole store asks for more than fits. Making room for each path in
//! turn would then cost more than it ever gains; so what is there stays, until nobody has asked
//! for it for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_store::tree::plan::NarPlan;

use crate::caches::tree_identity::{CachedPlan, TreeIdentity};
use crate::http::route::HashPart;

/// Plans by the path's hash part.
#[derive(Debug)]
pub(crate) struct SmallFilePacks {
    packs: HashMap<HashPart, Pack>,
    /// The weights of those that are being made.
    reserved: HashMap<HashPart, usize>,
    /// Of both.
    weight: usize,
    budget: usize,
}

#[derive(Debug)]
struct Pack {
    planned: CachedPlan,
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

    /// The packed plan of a path, if the path is as it was.
    pub(crate) fn get(
        &mut self,
        hash: HashPart,
        identity: TreeIdentity,
        now: Instant,
    ) -> Option<Arc<NarPlan>> {
        let pack = self.packs.get_mut(&hash)?;
        if pack.planned.identity != identity {
            self.remove(hash);
            return None;
        }
        pack.used = now;
        Some(pack.planned.plan.clone())
    }

    /// Whether the plan of just this tree is there.
    pub(crate) fn has(&self, hash: HashPart, identity: TreeIdentity) -> bool {
        let pack = self.packs.get(&hash);
        pack.is_some_and(|pack| pack.planned.identity == identity)
    }

    /// Reserves room for a pack after idle packs are dropped. Returns false if there is no room, or
    /// if another worker makes the pack. [`SmallFilePacks::finish`] follows in any case.
    pub(crate) fn reserve(&mut self, hash: HashPart, weight: usize, now: Instant) -> bool {
        if self.reserved.contains_key(&hash) {
            return false;
        }
        if !self.has_room(weight) {
            let is_idle = |pack: &Pack| now.duration_since(pack.used) >= IDLE;
            let idle: Vec<HashPart> = self
                .packs
                .iter()
                .filter(|(_, pack)| is_idle(pack))
                .map(|(hash, _)| *hash)
                .collect();
            idle.into_iter().for_each(|hash| self.remove(hash));
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

    /// Keeps the pack for which there is room now, or gives the room back.
    pub(crate) fn finish(&mut self, hash: HashPart, planned: Option<CachedPlan>, now: Instant) {
        let Some(weight) = self.reserved.remove(&hash) else {
            return;
        };
        self.remove(hash);
        match planned {
            None => self.weight -= weight,
            Some(planned) => {
                let pack = Pack {
                    planned,
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

/// Each holds a descriptor. A server that may have 1,024 of them still has most of them for
/// connections.
pub(crate) const COUNT_MAX: usize = 256;

/// Longer than a client takes to go through a large closure.
const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::tree_identity::tree_identity;

    #[test]
    fn recently_used_pack_is_not_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let planned = || {
            let plan = NarPlan::new(dir.path()).unwrap();
            CachedPlan::new(tree_identity(dir.path()).unwrap(), plan)
        };
        let same = tree_identity(dir.path()).unwrap();
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = SmallFilePacks::new(100);
        let start = Instant::now();
        let add = |packs: &mut SmallFilePacks, digit: &str, now| {
            let has_room = packs.reserve(hash(digit), 60, now);
            packs.finish(hash(digit), Some(planned()), now);
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
        let changed = tree_identity(other.path()).unwrap();
        assert!(
            packs.get(hash("2"), changed, later).is_none(),
            "another tree"
        );
        assert_eq!((packs.packs.len(), packs.weight), (0, 0));
    }

    #[test]
    fn reserved_pack_counts_and_is_made_once() {
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = SmallFilePacks::new(100);
        let now = Instant::now();
        assert!(packs.reserve(hash("1"), 60, now));
        assert!(!packs.reserve(hash("1"), 10, now), "somebody makes it");
        assert!(!packs.reserve(hash("2"), 60, now), "no room");
        packs.finish(hash("2"), None, now);
        packs.finish(hash("1"), None, now);
        assert_eq!((packs.reserved.len(), packs.weight), (0, 0));
        assert!(packs.reserve(hash("2"), 60, now));
    }
}
