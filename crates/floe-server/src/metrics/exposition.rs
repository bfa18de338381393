//! The figures of a server as metrics. docs/operating.md lists them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Metrics;
use super::counters::{DURATION_BOUNDS, ListenerKind, STATUSES, UploadResult};
use super::families::{Families, Histogram};
use crate::auth::logins::LoginCounters;
use crate::http::refusal::Refusal;
use crate::http::response::CacheKind;
use crate::http::route_kind::RouteKind;

/// Returns all metrics in the text format of Prometheus.
pub(super) fn text(metrics: &Metrics) -> String {
    let mut families = Families::default();
    families.gauge(
        "floe_build_info",
        "The version of floe; the value is always 1.",
        [(vec![("version", env!("CARGO_PKG_VERSION").into())], 1.0)],
    );
    add_responses(&mut families, metrics);
    add_connections(&mut families, metrics);
    add_uploads(&mut families, metrics);
    add_workers(&mut families, metrics);
    add_store(&mut families, metrics);
    add_limits(&mut families, metrics);
    add_security(&mut families, metrics);
    metrics.process.add_to(&mut families);
    families.into_text()
}

fn add_responses(families: &mut Families, metrics: &Metrics) {
    let mut responses = Vec::new();
    for route in RouteKind::ALL {
        for (number, status) in STATUSES.into_iter().enumerate() {
            let count = metrics.sum(|cells| &cells.responses[route as usize][number]);
            // A rate needs the zero before the first error.
            if count > 0 || matches!(status, 200 | 404 | 500 | 503) {
                let labels = [
                    ("route", route.name().into()),
                    ("status", status.to_string()),
                ];
                responses.push((labels.into(), as_float(count)));
            }
        }
    }
    families.counter(
        "floe_http_requests_total",
        "Requests with a response, or refused without one, by route and status.",
        responses,
    );
    let labels = |route: RouteKind| vec![("route", route.name().into())];
    families.counter(
        "floe_http_response_body_bytes_total",
        "Lengths of response bodies as announced, also if the client did not read all of it. \
         Bodies without a length do not count.",
        RouteKind::ALL.map(|route| {
            let bytes = metrics.sum(|cells| &cells.body_bytes[route as usize]);
            (labels(route), as_float(bytes))
        }),
    );
    families.histogram(
        "floe_http_request_duration_seconds",
        "Time from the receipt of a request until its response is ready. For a response from \
         memory, the time of all requests that were received together.",
        RouteKind::ALL.map(|route| (labels(route), durations(metrics, route))),
    );
    families.counter(
        "floe_http_refusals_total",
        "Requests and connections that the server refused, by reason.",
        Refusal::ALL.map(|refusal| {
            let count = metrics.sum(|cells| &cells.refusals[refusal as usize]);
            (vec![("reason", refusal.name().into())], as_float(count))
        }),
    );
}

fn durations(metrics: &Metrics, route: RouteKind) -> Histogram {
    let bucket =
        |number: usize| metrics.sum(move |cells| &cells.durations[route as usize].buckets[number]);
    let nanos = metrics.sum(|cells| &cells.durations[route as usize].sum);
    let mut count = 0;
    let buckets = DURATION_BOUNDS
        .into_iter()
        .enumerate()
        .map(|(number, bound)| {
            count += bucket(number);
            (as_float(bound) / NANOS_PER_SECOND, count)
        });
    let buckets = buckets.collect();
    Histogram {
        buckets,
        count: count + bucket(DURATION_BOUNDS.len()),
        sum: as_float(nanos) / NANOS_PER_SECOND,
    }
}

fn add_connections(families: &mut Families, metrics: &Metrics) {
    // Counted in this order, a connection that closes meanwhile does not make the difference
    // negative.
    let closed = metrics.sum(|cells| &cells.closed);
    let accepted = ListenerKind::ALL.map(|kind| {
        let count = metrics.sum(|cells| &cells.accepted[kind as usize]);
        (kind, count)
    });
    let all: u64 = accepted.iter().map(|(_, count)| count).sum();
    families.counter(
        "floe_connections_accepted_total",
        "Connections that the server accepted, by kind of listener.",
        accepted.map(|(kind, count)| {
            let labels = vec![("listener", kind.name().into())];
            (labels, as_float(count))
        }),
    );
    families.single_gauge(
        "floe_connections_open",
        "Connections that are open.",
        as_float(all.saturating_sub(closed)),
    );
    families.single_gauge(
        "floe_connections_max",
        "Connections that may be open at once.",
        metrics.connections_max.load(Ordering::Relaxed) as f64,
    );
    families.single_counter(
        "floe_connections_sent_bytes_total",
        "Bytes that the sockets of clients have taken, with the heads of responses. The figure may \
         be half a second late.",
        as_float(metrics.sum(|cells| &cells.sent_bytes)),
    );
}

fn add_uploads(families: &mut Families, metrics: &Metrics) {
    families.counter(
        "floe_uploads_total",
        "Uploads that have ended, by result: received, refused, or broken off by the client.",
        UploadResult::ALL.map(|result| {
            let count = metrics.sum(|cells| &cells.uploads[result as usize]);
            (vec![("result", result.name().into())], as_float(count))
        }),
    );
    families.single_counter(
        "floe_upload_bytes_total",
        "Bytes of the bodies of uploads that the server has read.",
        as_float(metrics.sum(|cells| &cells.upload_bytes)),
    );
}

fn add_workers(families: &mut Families, metrics: &Metrics) {
    // The later steps of a job are counted first, as above.
    let ended = metrics.sum(|cells| &cells.jobs_ended);
    let begun = metrics.sum(|cells| &cells.jobs_begun);
    let queued = metrics.sum(|cells| &cells.jobs_queued);
    families.single_gauge(
        "floe_workers",
        "Threads that read files and wait for the database.",
        metrics.workers as f64,
    );
    families.single_gauge(
        "floe_workers_busy",
        "Workers that respond to a request.",
        as_float(begun.saturating_sub(ended)),
    );
    families.single_gauge(
        "floe_worker_queue_length",
        "Connections that wait for a worker.",
        as_float(queued.saturating_sub(begun)),
    );
}

fn add_store(families: &mut Families, metrics: &Metrics) {
    let uses = CacheKind::ALL.into_iter().flat_map(|kind| {
        ["hit", "miss"]
            .into_iter()
            .enumerate()
            .map(move |(number, result)| {
                let count = metrics.sum(|cells| &cells.cache_uses[kind as usize][number]);
                let labels = vec![
                    ("cache", cache_name(kind).into()),
                    ("result", result.into()),
                ];
                (labels, as_float(count))
            })
    });
    families.counter(
        "floe_cache_requests_total",
        "Responses by whether their contents were in a cache of the server: narinfos, whole NARs \
         of up to 64 KiB, and compressed NARs.",
        uses,
    );
    families.single_counter(
        "floe_database_reopenings_total",
        "Times that a thread opened the database again, because its file was replaced or could \
         not be read. Each thread counts by itself.",
        as_float(metrics.sum(|cells| &cells.database_reopenings)),
    );
}

fn add_limits(families: &mut Families, metrics: &Metrics) {
    families.single_counter(
        "floe_encoder_limit_total",
        "NARs sent uncompressed because all encoders were in use.",
        as_float(metrics.encoder_limit.load(Ordering::Relaxed)),
    );
}

fn add_security(families: &mut Families, metrics: &Metrics) {
    // Without logins, all of them are 0: an alert needs the zero.
    let none = LoginCounters::default();
    add_logins(families, metrics.logins.as_deref().unwrap_or(&none));
    let certificates = metrics.certificates.lock().clone();
    families.gauge(
        "floe_tls_certificate_expiry_timestamp_seconds",
        "The time at which a certificate expires, in seconds since 1970.",
        certificates
            .into_iter()
            .map(|(name, expiry)| (vec![("certificate", name)], expiry.as_secs_f64())),
    );
}

fn add_logins(families: &mut Families, logins: &LoginCounters) {
    let load = |counter: &AtomicU64| as_float(counter.load(Ordering::Relaxed));
    families.single_counter(
        "floe_login_failures_total",
        "Attempts to log in with wrong credentials.",
        load(&logins.failed),
    );
    families.single_counter(
        "floe_logins_accepted_total",
        "Logins that were accepted. Further requests of a connection do not count.",
        load(&logins.accepted),
    );
    families.single_counter(
        "floe_logins_throttled_total",
        "Logins that were refused unseen, because too many of their address had failed.",
        load(&logins.throttled),
    );
    families.single_gauge(
        "floe_logins_waiting",
        "Connections that wait for their password to be verified.",
        load(&logins.waiting),
    );
    families.single_counter(
        "floe_login_file_reload_failures_total",
        "Attempts to read the login file again that have failed.",
        load(&logins.reloads_failed),
    );
}

fn cache_name(kind: CacheKind) -> &'static str {
    match kind {
        CacheKind::NarInfo => "narinfo",
        CacheKind::Nar => "nar",
        CacheKind::CompressedNar => "compressed_nar",
    }
}

/// Converts a count. Prometheus has no other numbers; they are exact up to 2^53.
fn as_float(count: u64) -> f64 {
    count as f64
}

const NANOS_PER_SECOND: f64 = 1e9;
