//! How many queries a cache gets at once.
//!
//! The limit adapts as the congestion window of TCP does (RFC 5681): each healthy reply raises it
//! by one until the first sign of overload, afterwards only each full round of replies does. Signs
//! of overload are an error, a status such as 429, and a round in which even the fastest reply took
//! much longer than the fastest reply of all. Each sign halves the limit, at most once for the
//! queries that were in flight.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The limit of the queries of one cache.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    permits: Semaphore,
    state: Mutex<State>,
}

/// The part of the limit that depends on no runtime.
#[derive(Debug)]
struct State {
    limit: usize,
    max: usize,
    /// Whether each healthy reply still raises the limit.
    is_first_rise: bool,
    /// The replies that are left of this round.
    left_of_round: usize,
    /// The shortest time of a reply in this round.
    fastest_of_round: Duration,
    /// The shortest time of a reply.
    fastest: Duration,
    /// The replies after which an overload counts again.
    ignored: usize,
    /// The permits that return from queries in flight and that the lower limit does not have any
    /// more.
    excess: usize,
}

/// The result of a query, as far as it concerns the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryOutcome {
    /// A reply came after this time.
    Healthy(Duration),
    /// The server, or the network, has too many requests.
    Overloaded,
}

impl AdaptiveLimit {
    /// Makes a limit of `first` queries that may rise to `max`. Both are at least one.
    pub(super) fn new(first: usize, max: usize) -> AdaptiveLimit {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let limit = first.clamp(1, max);
        AdaptiveLimit {
            permits: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                max,
                is_first_rise: true,
                left_of_round: limit,
                fastest_of_round: Duration::MAX,
                fastest: Duration::MAX,
                ignored: 0,
                excess: 0,
            }),
        }
    }

    /// Waits until another query may be in flight. Queries are sent in their order.
    pub(super) async fn acquire(&self) -> QueryPermit<'_> {
        QueryPermit {
            limit: self,
            // The semaphore is never closed.
            permit: self.permits.acquire().await.ok(),
        }
    }

    /// Adapts the limit to a reply.
    pub(super) fn record(&self, outcome: QueryOutcome) {
        let mut state = self.state.lock();
        let before = state.limit;
        state.record(outcome);
        match state.limit.checked_sub(before) {
            Some(raised) => {
                let repaid = raised.min(state.excess);
                state.excess -= repaid;
                self.permits.add_permits(raised - repaid);
            }
            None => {
                let lowered = before - state.limit;
                state.excess += lowered - self.permits.forget_permits(lowered);
            }
        }
    }
}

impl State {
    fn record(&mut self, outcome: QueryOutcome) {
        self.ignored = self.ignored.saturating_sub(1);
        let QueryOutcome::Healthy(time) = outcome else {
            return self.lower();
        };
        self.fastest = self.fastest.min(time);
        self.fastest_of_round = self.fastest_of_round.min(time);
        self.left_of_round = self.left_of_round.saturating_sub(1);
        let is_round_complete = self.left_of_round == 0;
        let limit = self.fastest.saturating_mul(SLOW_FACTOR).max(SLOW_TIME_MIN);
        if is_round_complete && self.fastest_of_round > limit {
            self.begin_round();
            // Bodies on the same network slow the replies down too.
            if self.limit > LIMIT_MIN_FOR_SLOW {
                self.lower();
            }
            return;
        }
        if is_round_complete || self.is_first_rise {
            self.limit = (self.limit + 1).min(self.max);
        }
        if is_round_complete {
            self.begin_round();
        }
    }

    fn lower(&mut self) {
        if self.ignored > 0 {
            return;
        }
        self.ignored = self.limit;
        self.is_first_rise = false;
        self.limit = (self.limit / 2).max(1);
        self.begin_round();
    }

    fn begin_round(&mut self) {
        self.left_of_round = self.limit;
        self.fastest_of_round = Duration::MAX;
    }
}

/// Permission to have one query in flight.
#[derive(Debug)]
pub(super) struct QueryPermit<'a> {
    limit: &'a AdaptiveLimit,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for QueryPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        if let (Some(excess), Some(permit)) = (state.excess.checked_sub(1), self.permit.take()) {
            state.excess = excess;
            permit.forget();
        }
    }
}

/// Slow replies do not lower a limit of this number of queries.
const LIMIT_MIN_FOR_SLOW: usize = 4;

/// A round is slow if its fastest reply took this many times the time of the fastest of all.
const SLOW_FACTOR: u32 = 4;

/// A round with a faster reply is never slow: a server that reads from a disk may need so long.
const SLOW_TIME_MIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: QueryOutcome = QueryOutcome::Healthy(Duration::from_millis(50));
    const SLOW: QueryOutcome = QueryOutcome::Healthy(Duration::from_millis(300));

    fn record(limit: &AdaptiveLimit, outcome: QueryOutcome, times: usize) -> usize {
        (0..times).for_each(|_| limit.record(outcome));
        let limit_now = limit.state.lock().limit;
        assert_eq!(limit.permits.available_permits(), limit_now);
        limit_now
    }

    #[test]
    fn limit_rises_by_one_for_each_healthy_reply() {
        let limit = AdaptiveLimit::new(4, 25);
        assert_eq!(record(&limit, FAST, 1), 5);
        assert_eq!(record(&limit, FAST, 15), 20);
        assert_eq!(record(&limit, FAST, 100), 25);
    }

    #[test]
    fn overload_halves_limit_once_for_all_queries_in_flight() {
        let limit = AdaptiveLimit::new(16, 25);
        assert_eq!(record(&limit, QueryOutcome::Overloaded, 16), 8);
        assert_eq!(record(&limit, QueryOutcome::Overloaded, 1), 4);
        assert_eq!(record(&limit, QueryOutcome::Overloaded, 100), 1);
        // Now the limit rises by one for each round.
        assert_eq!(record(&limit, FAST, 1), 2);
        assert_eq!(record(&limit, FAST, 2), 3);
        assert_eq!(record(&limit, FAST, 3 + 4 + 5), 6);
    }

    #[test]
    fn round_of_slow_replies_halves_limit() {
        let limit = AdaptiveLimit::new(8, 8);
        record(&limit, FAST, 8);
        assert_eq!(record(&limit, SLOW, 7), 8);
        assert_eq!(record(&limit, SLOW, 1), 4);
        assert_eq!(record(&limit, SLOW, 100), 4);
        // One fast reply shows that the others were slow for reasons of their own.
        let limit = AdaptiveLimit::new(8, 8);
        record(&limit, FAST, 8);
        for _ in 0..10 {
            record(&limit, SLOW, 7);
            assert_eq!(record(&limit, FAST, 1), 8);
        }
    }

    #[test]
    fn queries_in_flight_return_fewer_permits_after_overload() {
        let limit = AdaptiveLimit::new(8, 8);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let mut permits = Vec::new();
            for _ in 0..8 {
                permits.push(limit.acquire().await);
            }
            limit.record(QueryOutcome::Overloaded);
            permits.truncate(4);
            assert_eq!(limit.permits.available_permits(), 0);
            permits.truncate(1);
            assert_eq!(limit.permits.available_permits(), 3);
            drop(permits);
            assert_eq!(limit.permits.available_permits(), 4);
        });
    }
}
