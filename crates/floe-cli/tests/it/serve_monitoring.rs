//! `/health`, `/ready`, `/version` and `/metrics` of `floe serve`.

mod figures;
mod listeners;
mod prometheus;
mod readiness;
mod rules;
mod scrape;

use floe_testkit::corpus;
use serde_json::Value;

use crate::server_process::ServerProcess;

#[test]
fn monitoring_routes_respond_and_are_not_stored() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    for (target, content_type) in [
        ("/health", "text/plain"),
        ("/ready", "application/json"),
        ("/version", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let response = serve.get(target);
        assert_eq!(response.status, 200, "{target}: {}", response.head);
        assert_eq!(response.field("Content-Type"), Some(content_type));
        assert_eq!(response.field("Cache-Control"), Some("no-store"));
        let head = serve.head(target);
        assert_eq!((head.status, head.body.len()), (200, 0), "{target}");
        let posted = serve
            .connect()
            .request("POST", target, "Content-Length: 0\r\n");
        assert_eq!(posted.status, 405, "{target}");
        assert_eq!(posted.field("Allow"), Some("GET, HEAD"), "{target}");
    }
    assert_eq!(serve.get("/health").text(), "ok\n");
    let version: Value = serde_json::from_str(serve.get("/version").text()).unwrap();
    assert_eq!(version["name"], "floe");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["storeDir"], "/nix/store");
    assert_eq!(serve.stop(), "");
}
