//! Tests of the figures of all threads together.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::*;
use crate::http::refusal::Refusal;
use crate::http::response::{CacheKind, CacheUse};
use crate::http::route_kind::RouteKind;
use counters::ListenerKind;

/// Returns the value of a sample, by its name with its labels.
#[track_caller]
fn value(text: &str, sample: &str) -> f64 {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(name, _)| *name == sample);
    let (_, value) = found.unwrap_or_else(|| panic!("no {sample}: {text}"));
    value.parse().unwrap()
}

#[test]
fn sum_over_many_threads_is_exact() {
    let metrics = Metrics::new(10, 8, None);
    let scraped = thread::scope(|scope| {
        for _ in 0..THREADS {
            let mut counters = metrics.register();
            scope.spawn(move || {
                for _ in 0..RESPONSES {
                    counters.count_response(RouteKind::Nar, 200, 10);
                    counters.count_response(RouteKind::Nar, 404, 0);
                    counters.count_cache_use(CacheKind::Nar, CacheUse::Hit);
                    counters.count_duration(RouteKind::Nar, Duration::from_micros(1));
                }
            });
        }
        // A scrape meanwhile sees a part.
        metrics.text()
    });
    let all = f64::from(THREADS * RESPONSES);
    let sample = "floe_http_requests_total{route=\"nar\",status=\"200\"}";
    assert!((0.0..=all).contains(&value(&scraped, sample)));
    let text = metrics.text();
    for (sample, expected) in [
        (sample, all),
        (
            "floe_http_requests_total{route=\"nar\",status=\"404\"}",
            all,
        ),
        (
            "floe_http_response_body_bytes_total{route=\"nar\"}",
            10.0 * all,
        ),
        (
            "floe_cache_requests_total{cache=\"nar\",result=\"hit\"}",
            all,
        ),
        (
            "floe_http_request_duration_seconds_count{route=\"nar\"}",
            all,
        ),
        (
            "floe_http_request_duration_seconds_bucket{route=\"nar\",le=\"0.00005\"}",
            all,
        ),
        (
            "floe_http_request_duration_seconds_bucket{route=\"nar\",le=\"+Inf\"}",
            all,
        ),
        (
            "floe_http_request_duration_seconds_count{route=\"narinfo\"}",
            0.0,
        ),
    ] {
        assert_eq!(value(&text, sample), expected, "{sample}");
    }
    let sum = value(
        &text,
        "floe_http_request_duration_seconds_sum{route=\"nar\"}",
    );
    assert!((sum - all / 1e6).abs() < 1e-9, "{sum}");
}

#[test]
fn gauges_are_differences_of_counters() {
    let metrics = Metrics::new(10, 8, None);
    let (mut network, mut worker) = (metrics.register(), metrics.register());
    for kind in [ListenerKind::Tcp, ListenerKind::Unix, ListenerKind::Tcp] {
        network.count_accepted(kind);
    }
    network.count_closed();
    (0..3).for_each(|_| network.count_queued_job());
    (0..2).for_each(|_| worker.count_begun_job());
    worker.count_ended_job();
    network.count_refusal(Refusal::AddressLimit);
    network.note_database_reopenings(2);
    worker.note_database_reopenings(3);
    let text = metrics.text();
    for (sample, expected) in [
        ("floe_connections_accepted_total{listener=\"tcp\"}", 2.0),
        (
            "floe_connections_accepted_total{listener=\"monitoring\"}",
            0.0,
        ),
        ("floe_connections_open", 2.0),
        ("floe_connections_max", 10.0),
        ("floe_workers", 8.0),
        ("floe_workers_busy", 1.0),
        ("floe_worker_queue_length", 1.0),
        ("floe_http_refusals_total{reason=\"addressLimit\"}", 1.0),
        ("floe_database_reopenings_total", 5.0),
    ] {
        assert_eq!(value(&text, sample), expected, "{sample}");
    }
}

#[test]
fn logins_and_certificates_are_set() {
    let logins: Arc<LoginCounters> = Arc::default();
    let metrics = Metrics::new(10, 8, Some(logins.clone()));
    let expiry = "floe_tls_certificate_expiry_timestamp_seconds";
    assert!(
        !metrics.text().contains(expiry),
        "there are no certificates"
    );
    logins.failed.fetch_add(1, Ordering::Relaxed);
    logins.waiting.store(3, Ordering::Relaxed);
    let expiries = [
        ("a".into(), Duration::from_secs(1_800_000_000)),
        ("b".into(), Duration::from_secs(5)),
    ];
    metrics.set_certificate_expiries(expiries.into());
    let text = metrics.text();
    assert_eq!(value(&text, "floe_login_failures_total"), 1.0);
    assert_eq!(value(&text, "floe_logins_waiting"), 3.0);
    let sample = format!("{expiry}{{certificate=\"a\"}}");
    assert_eq!(value(&text, &sample), 1_800_000_000.0);
    metrics.set_certificate_expiries([("b".into(), Duration::from_secs(6))].into());
    let text = metrics.text();
    assert!(!text.contains(&sample), "the certificate was replaced");
    assert_eq!(value(&text, &format!("{expiry}{{certificate=\"b\"}}")), 6.0);
}

const THREADS: u32 = 8;
const RESPONSES: u32 = 20_000;
