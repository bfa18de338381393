//! Outages and probes of one host.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn policy() -> RetryPolicy {
    RetryPolicy {
        jitter: false,
        ..RetryPolicy::default()
    }
}

fn failure(status: u16) -> Error {
    Error::Fetch {
        url: "http://cache.example.org/a".into(),
        reason: format!("the server answered {status}"),
        transient: true,
        status: Some(status),
        retry_after: None,
    }
}

fn state() -> (State, Instant) {
    let now = Instant::now();
    let state = State {
        outage: None,
        waiting: BTreeSet::new(),
        next_number: 0,
        last_success: None,
        pace: Pace::new(now),
    };
    (state, now)
}

fn sent(state: &mut State, now: Instant) -> Admission {
    match state.step(0, now) {
        Step::Send(admission) => admission,
        step => panic!("not sent: {step:?}"),
    }
}

/// Lets probes fail until the requests give up. Returns when each was sent.
fn probe_to_the_end(state: &mut State, mut now: Instant, error: &Error) -> Vec<Instant> {
    let (mut probes, mut announced) = (Vec::new(), 0);
    loop {
        now = match state.step(0, now) {
            Step::Send(admission) => {
                assert!(admission.is_probe);
                probes.push(now);
                match state.record_failure(admission, error, &policy(), now) {
                    Consequence::GiveUp => {
                        assert_eq!(announced, 1);
                        return probes;
                    }
                    Consequence::OutageLasts(_) => {
                        announced += 1;
                        now
                    }
                    consequence => {
                        assert!(matches!(consequence, Consequence::OutageContinues(_)));
                        now
                    }
                }
            }
            Step::Wait(until) => until,
            step => panic!("no probe: {step:?}"),
        };
    }
}

#[test]
fn failures_beside_successes_are_no_outage() {
    let (mut state, now) = state();
    let admission = sent(&mut state, now);
    state.last_success = Some(now + MS);
    let consequence = state.record_failure(admission, &failure(500), &policy(), now + 2 * MS);
    assert_eq!(consequence, Consequence::None);
    assert!(!sent(&mut state, now + 3 * MS).is_probe);
}

#[test]
fn one_probe_at_a_time_is_sent_during_an_outage() {
    let (mut state, now) = state();
    let both = [sent(&mut state, now), sent(&mut state, now)];
    let pause = policy().delay;
    let first = state.record_failure(both[0], &failure(502), &policy(), now);
    assert_eq!(first, Consequence::OutageBegins(pause));
    // The other one was sent before, so its failure changes nothing.
    let second = state.record_failure(both[1], &failure(502), &policy(), now);
    assert_eq!(second, Consequence::OutageContinues(pause));
    assert!(matches!(state.step(0, now), Step::Wait(until) if until == now + pause));
    let due = now + pause;
    assert!(sent(&mut state, due).is_probe);
    // The probe has no reply, so another one is sent after a second.
    assert!(matches!(state.step(0, due), Step::Wait(until) if until == due + PROBE_INTERVAL));
    assert!(sent(&mut state, due + PROBE_INTERVAL).is_probe);
}

#[test]
fn outage_of_30_seconds_is_noticed_within_a_second() {
    for status in [500, 502, 503, 504] {
        let (mut state, now) = state();
        let admission = sent(&mut state, now);
        state.record_failure(admission, &failure(status), &policy(), now);
        let probes = probe_to_the_end(&mut state, now, &failure(status));
        let gaps = probes.windows(2).map(|pair| pair[1] - pair[0]);
        assert_eq!(gaps.max(), Some(SECOND), "{status}");
        let last = *probes.last().unwrap() - now;
        assert!(last >= policy().outage_timeout, "{status}: {last:?}");
        assert!(probes.len() < 400, "{status}: {}", probes.len());
    }
}

#[test]
fn host_with_too_many_requests_gets_few_probes() {
    let (mut state, now) = state();
    let admission = sent(&mut state, now);
    state.record_failure(admission, &failure(429), &policy(), now);
    let probes = probe_to_the_end(&mut state, now, &failure(429));
    let of_first_minute = probes.iter().filter(|probe| **probe - now < 60 * SECOND);
    assert_eq!(of_first_minute.count(), 3);
    assert!(*probes.last().unwrap() - now >= 5 * 60 * SECOND);
}

#[test]
fn after_the_timeout_all_fail_and_later_requests_are_probes() {
    let (mut state, now) = state();
    let admission = sent(&mut state, now);
    state.record_failure(admission, &failure(502), &policy(), now);
    let probes = probe_to_the_end(&mut state, now, &failure(502));
    let end = *probes.last().unwrap();
    let Step::Fail(cause) = state.step(0, end) else {
        panic!("a request waits although the time is over");
    };
    assert_eq!(cause.status, Some(502));
    let probe = sent(&mut state, end + SECOND);
    let again = state.record_failure(probe, &failure(502), &policy(), end + SECOND);
    assert_eq!(again, Consequence::GiveUp);
    // An hour later the server gets the whole time again.
    let later = end + 3600 * SECOND;
    let probe = sent(&mut state, later);
    let consequence = state.record_failure(probe, &failure(502), &policy(), later);
    assert!(matches!(consequence, Consequence::OutageContinues(_)));
}

#[test]
fn success_of_one_releases_all() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(async {
        let health = HostHealth::new("http://cache.example.org");
        let first = health.admit().await.unwrap();
        let policy = RetryPolicy {
            delay: 3600 * SECOND,
            max_delay: 3600 * SECOND,
            rate_limited_delay: 3600 * SECOND,
            delays_unavailable: true,
            jitter: false,
            ..policy()
        };
        let began = health.record_failure(first, &failure(503), &policy);
        assert_eq!(began, Consequence::OutageBegins(3600 * SECOND));
        assert_eq!(
            health.admit_within(MS).await.unwrap_err().status,
            Some(503),
            "a request is sent during an outage"
        );
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(health.admit())).collect();
        for request in &mut waiting {
            assert!(tokio::time::timeout(MS, request).await.is_err());
        }
        let probe = Admission {
            sent_at: Instant::now(),
            is_probe: true,
        };
        // A reply to a request from before the outage shows nothing.
        health.record_success(first);
        assert!(health.is_away());
        health.record_success(probe);
        for request in waiting {
            assert!(!request.await.unwrap().is_probe);
        }
    });
}

#[test]
fn hosts_without_requests_are_forgotten() {
    let healths = HostHealths::default();
    let url = |text: &str| Url::parse(text).unwrap();
    let used = healths.of(&url("http://used.example.org/a"), false);
    for number in 0..3 * HOSTS_MAX {
        healths.of(&url(&format!("http://{number}.example.org/")), false);
        assert!(healths.0.lock().len() <= HOSTS_MAX);
    }
    let again = healths.of(&url("http://used.example.org/b"), false);
    assert!(Arc::ptr_eq(&used, &again));
    let writes = healths.of(&url("http://used.example.org/b"), true);
    assert!(!Arc::ptr_eq(&used, &writes));
}

#[test]
fn object_that_always_fails_does_not_take_the_turns_of_others() {
    let (mut state, now) = state();
    let bad = sent(&mut state, now);
    state.record_failure(bad, &failure(500), &policy(), now);
    // Two requests wait; the one that has failed came back last.
    state.waiting = BTreeSet::from([1, 2]);
    let due = now + SECOND;
    assert!(matches!(state.step(2, due), Step::Wait(_)));
    let Step::Send(probe) = state.step(1, due) else {
        panic!("the first request does not become a probe");
    };
    assert!(probe.is_probe);
}
