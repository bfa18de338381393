//! Packed plans, within a budget that is not given to whoever asked last.
//!
//! A client that goes through a whole store asks for more than fits. Making room for each path in
//! turn would then cost more than it ever gains; so what is there stays, until nobody has asked
//! for it for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_store::tree::plan::NarPlan;

use crate::nars::{Identity, Planned};
use crate::route::HashPart;

/// Plans by the path's hash part.
#[derive(Debug)]
pub(crate) struct Packs {
    packs: HashMap<HashPart, Pack>,
    weight: usize,
    budget: usize,
}

#[derive(Debug)]
struct Pack {
    planned: Planned,
    weight: usize,
    used: Instant,
}

impl Packs {
    pub(crate) fn new(budget: usize) -> Packs {
        Packs {
            packs: HashMap::new(),
            weight: 0,
            budget,
        }
    }

    /// The packed plan of a path, if the path is as it was.
    pub(crate) fn get(
        &mut self,
        hash: HashPart,
        identity: Identity,
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
    pub(crate) fn has(&self, hash: HashPart, identity: Identity) -> bool {
        let pack = self.packs.get(&hash);
        pack.is_some_and(|pack| pack.planned.identity == identity)
    }

    /// Whether there is room for so many bytes, once what has idled is dropped.
    pub(crate) fn make_room(&mut self, weight: usize, now: Instant) -> bool {
        if self.packs.len() >= COUNT_MAX || self.weight + weight > self.budget {
            let is_idle = |pack: &Pack| now.duration_since(pack.used) >= IDLE;
            let idle: Vec<HashPart> = self
                .packs
                .iter()
                .filter(|(_, pack)| is_idle(pack))
                .map(|(hash, _)| *hash)
                .collect();
            idle.into_iter().for_each(|hash| self.remove(hash));
        }
        self.packs.len() < COUNT_MAX && self.weight.saturating_add(weight) <= self.budget
    }

    /// Keeps a packed plan, if there still is room.
    pub(crate) fn put(&mut self, hash: HashPart, planned: Planned, weight: usize, now: Instant) {
        self.remove(hash);
        if self.make_room(weight, now) {
            let pack = Pack {
                planned,
                weight,
                used: now,
            };
            self.packs.insert(hash, pack);
            self.weight += weight;
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
    use crate::nars::identity;

    #[test]
    fn what_is_in_use_keeps_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let planned = || {
            let plan = NarPlan::of(dir.path()).unwrap();
            Planned::new(identity(dir.path()).unwrap(), plan)
        };
        let same = identity(dir.path()).unwrap();
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = Packs::new(100);
        let start = Instant::now();
        packs.put(hash("1"), planned(), 60, start);
        packs.put(hash("2"), planned(), 60, start);
        assert!(packs.get(hash("1"), same, start).is_some());
        assert!(packs.get(hash("2"), same, start).is_none(), "no room");
        let later = start + IDLE;
        packs.put(hash("2"), planned(), 60, later);
        assert!(packs.get(hash("1"), same, later).is_none(), "idle");
        assert!(packs.get(hash("2"), same, later).is_some());
        let changed = identity(other.path()).unwrap();
        assert!(
            packs.get(hash("2"), changed, later).is_none(),
            "another tree"
        );
        assert_eq!((packs.packs.len(), packs.weight), (0, 0));
    }
}
