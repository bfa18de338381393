//! The settings that connections need.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::config::Config;
use crate::trusted_proxies::TrustedProxies;

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) keep_alive: bool,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) connections_max: usize,
    pub(crate) requests_per_connection_max: Option<NonZeroUsize>,
    pub(crate) head_len_max: usize,
    pub(crate) rate_min: u64,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) proxy_protocol: bool,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Limits {
        Limits {
            keep_alive: config.keep_alive,
            keep_alive_timeout: config.keep_alive_timeout,
            read_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
            connections_max: config.connections_max.max(1),
            requests_per_connection_max: config.requests_per_connection_max,
            head_len_max: config.head_len_max,
            rate_min: config.rate_min,
            trusted_proxies: TrustedProxies::new(config.trusted_proxies.clone()),
            proxy_protocol: config.proxy_protocol,
        }
    }
}
