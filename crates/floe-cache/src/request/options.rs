//! The options of requests that the URI of a cache sets.

use std::time::Duration;

use crate::network::options::{NetworkOptions, time_limit};
use crate::uri_parameter::UriParameter;

/// The options of requests to one cache, which override those of all caches. The parameters
/// `retry-*` are those of Nix 2.35; `connect-timeout` and `outage-timeout` are floe's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// `retry-attempts`
    pub attempts: Option<u32>,
    /// `retry-delay`, in milliseconds
    pub delay: Option<Duration>,
    /// `retry-delay-rate-limited`, in milliseconds
    pub rate_limited_delay: Option<Duration>,
    /// `retry-max-delay`, in milliseconds
    pub max_delay: Option<Duration>,
    /// `connect-timeout`, in seconds; zero means no limit
    pub connect_timeout: Option<Duration>,
    /// `outage-timeout`, in seconds; zero means that the attempts alone count
    pub outage_timeout: Option<Duration>,
}

impl RequestOptions {
    /// Sets the option that a parameter of a store URI names.
    pub(crate) fn visit(&mut self, parameter: &mut UriParameter<'_>) -> Result<(), String> {
        parameter.parsed("retry-attempts", &mut self.attempts, |name, value| {
            Ok(Some(parse_u32(name, value)?.max(1)))
        })?;
        parameter.parsed("retry-delay", &mut self.delay, parse_millis)?;
        let rate_limited_delay = &mut self.rate_limited_delay;
        parameter.parsed("retry-delay-rate-limited", rate_limited_delay, parse_millis)?;
        parameter.parsed("retry-max-delay", &mut self.max_delay, parse_millis)?;
        let connect_timeout = &mut self.connect_timeout;
        parameter.parsed("connect-timeout", connect_timeout, parse_seconds)?;
        parameter.parsed("outage-timeout", &mut self.outage_timeout, parse_seconds)
    }

    /// Returns the options of all caches with those of this one.
    pub(crate) fn apply(&self, options: &NetworkOptions) -> NetworkOptions {
        let mut options = options.clone();
        let retry = &mut options.retry;
        retry.attempts = self.attempts.unwrap_or(retry.attempts);
        if self.attempts.is_some() {
            // The number of the user counts alone.
            retry.outage_timeout = Duration::ZERO;
        }
        retry.outage_timeout = self.outage_timeout.unwrap_or(retry.outage_timeout);
        retry.delays_unavailable |= self.rate_limited_delay.is_some();
        retry.delay = self.delay.unwrap_or(retry.delay);
        retry.rate_limited_delay = self.rate_limited_delay.unwrap_or(retry.rate_limited_delay);
        retry.max_delay = self.max_delay.unwrap_or(retry.max_delay);
        if let Some(timeout) = self.connect_timeout {
            options.connect_timeout = time_limit(timeout);
        }
        options
    }
}

fn parse_u32(name: &str, value: &str) -> Result<u32, String> {
    let parsed = value.parse();
    parsed.map_err(|_| format!("{name} takes a number from 0 to {}: {value:?}", u32::MAX))
}

fn parse_millis(name: &str, value: &str) -> Result<Option<Duration>, String> {
    Ok(Some(Duration::from_millis(parse_u32(name, value)?.into())))
}

fn parse_seconds(name: &str, value: &str) -> Result<Option<Duration>, String> {
    Ok(Some(Duration::from_secs(parse_u32(name, value)?.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri_parameter;

    fn set(options: &mut RequestOptions, name: &str, value: &str) -> Result<bool, String> {
        uri_parameter::set(name, value, |parameter| options.visit(parameter))
    }

    #[test]
    fn parameters_override_the_options_of_all_caches() {
        let mut own = RequestOptions::default();
        let all = NetworkOptions::default();
        assert_eq!(own.apply(&all), all);
        for (name, value) in [
            ("retry-attempts", "8"),
            ("retry-delay", "1"),
            ("retry-delay-rate-limited", "2"),
            ("retry-max-delay", "3"),
            ("connect-timeout", "4"),
        ] {
            assert_eq!(set(&mut own, name, value), Ok(true));
            assert!(
                set(&mut own.clone(), name, "-1")
                    .unwrap_err()
                    .contains(name)
            );
        }
        assert_eq!(set(&mut own, "retry-jitter", "true"), Ok(false));
        let applied = own.apply(&all);
        let retry = &applied.retry;
        let pauses = [retry.delay, retry.rate_limited_delay, retry.max_delay];
        assert_eq!(pauses.map(|time| time.as_millis()), [1, 2, 3]);
        assert_eq!((retry.attempts, retry.jitter), (8, true));
        assert_eq!(applied.connect_timeout, Some(Duration::from_secs(4)));
        assert_eq!(set(&mut own, "retry-attempts", "0"), Ok(true));
        assert_eq!(own.apply(&all).retry.attempts, 1);
        assert_eq!(set(&mut own, "connect-timeout", "0"), Ok(true));
        assert_eq!(own.apply(&all).connect_timeout, None);
    }
}
