//! The network options of a request.

use std::path::PathBuf;
use std::time::Duration;

use floe_cache::options::{UNLIMITED, connection_limit, time_limit};
use floe_cache::{NarInfoDiskCacheOptions, Network, NetworkOptions, Proxies, ProxyVar};
use floe_messages as messages;
use floe_transfer::{Events, RetryPolicy, Session};

use super::HandlerContext;

impl HandlerContext<'_> {
    /// Makes the session of a query.
    pub(super) fn session(&self, request: &messages::NetworkOptions<'_>) -> Session {
        Session::new(self.cancel().clone(), Events::default())
            .with_options::<Network>(network_options(request))
    }
}

/// Returns the options that a message sets, with Nix's defaults for absent fields.
pub(super) fn network_options(request: &messages::NetworkOptions<'_>) -> NetworkOptions {
    let default = NetworkOptions::default();
    let millis = |millis: Option<u64>| millis.map(Duration::from_millis);
    NetworkOptions {
        certificates: request.certificates.map(PathBuf::from),
        netrc: request.netrc_files.iter().map(PathBuf::from).collect(),
        connections: request
            .connections
            .map_or(default.connections, connection_limit),
        connect_timeout: millis(request.connect_timeout_ms)
            .map_or(default.connect_timeout, time_limit),
        stall_timeout: millis(request.stall_timeout_ms).map_or(default.stall_timeout, |time| {
            time_limit(time).unwrap_or(UNLIMITED)
        }),
        retry: request.attempts.map_or(default.retry, |attempts| {
            RetryPolicy::with_attempts(u32::try_from(attempts.max(1)).unwrap_or(u32::MAX))
        }),
        proxies: Proxies {
            http: proxy("http_proxy", request.http_proxy),
            https: proxy("https_proxy", request.https_proxy),
            exceptions: proxy("no_proxy", request.no_proxy),
        },
        narinfo_disk_cache: request.narinfo_disk_cache.map(|file| {
            let default = NarInfoDiskCacheOptions::new(PathBuf::from(file));
            let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
            NarInfoDiskCacheOptions {
                positive_ttl: seconds(request.narinfo_positive_ttl).unwrap_or(default.positive_ttl),
                negative_ttl: seconds(request.narinfo_negative_ttl).unwrap_or(default.negative_ttl),
                ..default
            }
        }),
        ..default
    }
}

fn proxy(name: &'static str, value: Option<&str>) -> Option<ProxyVar> {
    let value = value.filter(|value| !value.is_empty())?.to_owned();
    Some(ProxyVar { name, value })
}
