//! From settings to the options of the network.

use std::num::NonZeroUsize;
use std::time::Duration;

use floe_cache::options::{CONNECTIONS_MAX, UNLIMITED, connection_limit, time_limit};
use floe_cache::{NarInfoDiskCacheOptions, NetworkOptions};
use floe_transfer::RetryPolicy;

use crate::config::Config;
use crate::setting::Setting;

impl Config {
    /// Returns the options for requests to binary caches.
    pub fn network(&self) -> NetworkOptions {
        let seconds = |setting: &Setting<u64>| time_limit(Duration::from_secs(*setting.get()));
        let certificates = if self.ssl_cert_file.is_default() {
            self.certificates_by_default.clone()
        } else {
            self.ssl_cert_file.get().0.clone()
        };
        let positive_ttl = Duration::from_secs((*self.narinfo_cache_positive_ttl.get()).into());
        let negative_ttl = Duration::from_secs((*self.narinfo_cache_negative_ttl.get()).into());
        let is_kept = positive_ttl.max(negative_ttl) > Duration::ZERO;
        let directory = self.cache_dir.as_ref().filter(|_| is_kept);
        NetworkOptions {
            certificates,
            netrc: self.netrc_file.get().0.clone(),
            connections: connection_limit(*self.http_connections.get()),
            connect_timeout: seconds(&self.connect_timeout),
            stall_timeout: seconds(&self.stalled_download_timeout).unwrap_or(UNLIMITED),
            retry: self.retry(),
            http2: *self.http2.get(),
            threads: thread_count(*self.network_threads.get()),
            proxies: self.proxies.clone(),
            services: self.services.clone(),
            user_agent_suffix: self.user_agent_suffix.get().clone(),
            narinfo_disk_cache: directory.map(|directory| NarInfoDiskCacheOptions {
                file: directory.join("narinfos.sqlite"),
                positive_ttl,
                negative_ttl,
                meta_ttl: Duration::from_secs((*self.narinfo_cache_meta_ttl.get()).into()),
                refresh: false,
            }),
            ..NetworkOptions::default()
        }
    }
}

impl Config {
    /// Returns when a failed request is repeated. If the user has set a number of attempts, that
    /// number counts alone, unless the user has set `outage-timeout`, too.
    fn retry(&self) -> RetryPolicy {
        let millis = |setting: &Setting<u32>| Duration::from_millis((*setting.get()).into());
        let counts_alone =
            !self.filetransfer_retry_attempts.is_default() && self.outage_timeout.is_default();
        let outage_timeout = match *self.outage_timeout.get() {
            _ if counts_alone => Duration::ZERO,
            seconds => Duration::from_secs(seconds).min(UNLIMITED),
        };
        RetryPolicy {
            attempts: (*self.filetransfer_retry_attempts.get()).max(1),
            outage_timeout,
            delay: millis(&self.filetransfer_retry_delay),
            rate_limited_delay: millis(&self.filetransfer_retry_delay_rate_limited),
            delays_unavailable: !self.filetransfer_retry_delay_rate_limited.is_default(),
            max_delay: millis(&self.filetransfer_retry_max_delay),
            jitter: *self.filetransfer_retry_jitter.get(),
        }
    }
}

/// Returns the number of network threads; `None` for as many as suit the machine.
fn thread_count(threads: u64) -> Option<NonZeroUsize> {
    let threads = usize::try_from(threads).unwrap_or(usize::MAX);
    NonZeroUsize::new(threads.min(NETWORK_THREADS_MAX))
}

/// A larger number can only be a mistake.
const NETWORK_THREADS_MAX: usize = 64;

/// Returns a remark on the effect of a setting that its value does not tell, if there is one.
pub fn setting_note(network: &NetworkOptions, name: &str) -> Option<String> {
    match name {
        "connect-timeout" => network.connect_timeout.is_none().then(|| "no limit".into()),
        "filetransfer-retry-attempts" => {
            (network.retry.attempts == 1).then(|| "no second attempt".into())
        }
        "http-connections" if network.connections == CONNECTIONS_MAX => {
            Some(format!("at most {CONNECTIONS_MAX}"))
        }
        "http2" => (!network.http2).then(|| "HTTP/1.1 alone".into()),
        "narinfo-cache-positive-ttl" | "narinfo-cache-negative-ttl" => {
            let is_kept = |cache: &&NarInfoDiskCacheOptions| match name {
                "narinfo-cache-negative-ttl" => !cache.negative_ttl.is_zero(),
                _ => !cache.positive_ttl.is_zero(),
            };
            let kept = network.narinfo_disk_cache.as_ref().filter(is_kept);
            Some(match kept {
                Some(cache) => format!("kept in {}", cache.file.display()),
                None => "not kept".into(),
            })
        }
        "netrc-file" => {
            let absent = network.netrc.iter().filter(|file| !file.exists());
            let absent: Vec<_> = absent.map(|file| file.to_string_lossy()).collect();
            let is_one = network.netrc.len() == 1;
            match absent.len() {
                0 => None,
                _ if is_one => Some("not there".into()),
                _ => Some(format!("not there: {}", absent.join(" "))),
            }
        }
        "network-threads" => network
            .threads
            .is_none()
            .then(|| "as many as suit the machine".into()),
        "outage-timeout" => {
            let waits = network.retry.waits_for_outages();
            (!waits).then(|| "the attempts alone count".into())
        }
        "ssl-cert-file" => network
            .certificates
            .is_none()
            .then(|| "those of the system".into()),
        "stalled-download-timeout" => {
            (network.stall_timeout == UNLIMITED).then(|| "at most a year".into())
        }
        _ => None,
    }
}
