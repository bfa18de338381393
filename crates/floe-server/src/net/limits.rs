//! The settings that connections need.

use std::time::Duration;

use crate::config::Config;

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) keep_alive: bool,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) connections_max: usize,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Limits {
        Limits {
            keep_alive: config.keep_alive,
            keep_alive_timeout: config.keep_alive_timeout,
            read_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
            connections_max: config.connections_max.max(1),
        }
    }
}
