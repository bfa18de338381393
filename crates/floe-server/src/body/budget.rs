//! Budgets: how much memory, or how many streams, the responses of a server may hold for one
//! purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bounded amount, in a unit that its user chooses. All clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    used: Arc<AtomicU64>,
    max: u64,
}

/// A part of a budget, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Budget,
    amount: u64,
}

impl Budget {
    pub(crate) fn new(max: u64) -> Budget {
        Budget {
            used: Arc::default(),
            max,
        }
    }

    /// Returns a permit for an amount. `None` if less than that is left.
    pub(crate) fn acquire(&self, amount: u64) -> Option<Permit> {
        let permit = Permit {
            budget: self.clone(),
            amount,
        };
        let before = self.used.fetch_add(amount, Ordering::AcqRel);
        // A permit beyond the budget is dropped here, and subtracts the amount again.
        (before + amount <= self.max).then_some(permit)
    }

    /// Whether nothing is left.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used.load(Ordering::Acquire) >= self.max
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_released() {
        let budget = Budget::new(4);
        let permits: Vec<Permit> = (0..10).filter_map(|_| budget.acquire(2)).collect();
        assert_eq!(permits.len(), 2);
        assert!(budget.is_exhausted());
        drop(permits);
        assert!(!budget.is_exhausted());
        assert!(budget.acquire(5).is_none());
        assert!(budget.acquire(4).is_some());
        assert_eq!(budget.used.load(Ordering::Acquire), 0);
    }
}
