//! `/health`, `/ready`, `/version` and `/metrics`, for programs that watch the server.

use std::time::Instant;

use serde_json::json;

use crate::context::Context;
use crate::http::response::Response;
use crate::readiness::{Reply, Report};

/// Responds that this network thread turns.
pub(crate) fn health() -> Response {
    Response::text(200, TEXT_FIELDS, "ok\n")
}

/// Responds with the latest result of the checks. `None` if a worker has to run them.
pub(crate) fn try_ready(context: &Context) -> Option<Response> {
    match context.readiness.query(Instant::now()) {
        Reply::Report(report) => Some(ready(&report)),
        Reply::Check => None,
    }
}

/// Responds with the results of the checks.
pub(crate) fn ready(report: &Report) -> Response {
    let status = if report.is_ready { 200 } else { 503 };
    Response::text(status, JSON_FIELDS, report.text.clone())
}

/// Responds with the name and the version of the server.
pub(crate) fn version(context: &Context) -> Response {
    let text = json!({
        "name": "floe",
        "version": env!("CARGO_PKG_VERSION"),
        "storeDir": context.layout.store_dir.as_str(),
    });
    Response::text(200, JSON_FIELDS, format!("{text}\n"))
}

/// Responds with the figures of the server.
pub(crate) fn metrics(context: &Context) -> Response {
    Response::text(200, METRICS_FIELDS, context.metrics.text())
}

const TEXT_FIELDS: &str = "Content-Type: text/plain\r\nCache-Control: no-store\r\n";
const JSON_FIELDS: &str = "Content-Type: application/json\r\nCache-Control: no-store\r\n";

/// The type of the text format of Prometheus.
const METRICS_FIELDS: &str =
    "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nCache-Control: no-store\r\n";
