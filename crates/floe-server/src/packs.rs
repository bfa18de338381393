//! Packed plans, within a budget that is not given to whoever asked last.
//!
//! A client that goes through a whole store asks for more than fits. Making room for each path in
//! turn would then cost more than it ever gains; so what is there stays, until nobody has asked
//! for it for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_store::tree::plan::NarPlan;

use crate::identity::{Identity, Planned};
use crate::route::HashPart;

/// Plans by the path's hash part.
#[derive(Debug)]
pub(crate) struct Packs {
    packs: HashMap<HashPart, Pack>,
    /// The weights of those that are being made.
    coming: HashMap<HashPart, usize>,
    /// Of both.
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
            coming: HashMap::new(),
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

    /// Takes room for a pack that is going to be made, once what has idled is dropped. False if
    /// there is none, or somebody else is making it. [`Packs::finish`] follows in any case.
    pub(crate) fn begin(&mut self, hash: HashPart, weight: usize, now: Instant) -> bool {
        if self.coming.contains_key(&hash) {
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
            self.coming.insert(hash, weight);
            self.weight += weight;
        }
        has_room
    }

    fn has_room(&self, weight: usize) -> bool {
        self.packs.len() + self.coming.len() < COUNT_MAX
            && self.weight.saturating_add(weight) <= self.budget
    }

    /// Keeps the pack for which there is room now, or gives the room back.
    pub(crate) fn finish(&mut self, hash: HashPart, planned: Option<Planned>, now: Instant) {
        let Some(weight) = self.coming.remove(&hash) else {
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
    use crate::identity::identity;

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
        let add = |packs: &mut Packs, digit: &str, now| {
            let has_room = packs.begin(hash(digit), 60, now);
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
        let changed = identity(other.path()).unwrap();
        assert!(
            packs.get(hash("2"), changed, later).is_none(),
            "another tree"
        );
        assert_eq!((packs.packs.len(), packs.weight), (0, 0));
    }

    #[test]
    fn what_is_being_made_has_its_room_and_is_made_once() {
        let hash = |digit: &str| HashPart::parse(&digit.repeat(32)).unwrap();
        let mut packs = Packs::new(100);
        let now = Instant::now();
        assert!(packs.begin(hash("1"), 60, now));
        assert!(!packs.begin(hash("1"), 10, now), "somebody makes it");
        assert!(!packs.begin(hash("2"), 60, now), "no room");
        packs.finish(hash("2"), None, now);
        packs.finish(hash("1"), None, now);
        assert_eq!((packs.coming.len(), packs.weight), (0, 0));
        assert!(packs.begin(hash("2"), 60, now));
    }
}
