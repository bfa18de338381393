//! The options of requests that the URI of a cache sets.

use std::time::Duration;

use crate::network::options::{NetworkOptions, time_limit};

/// The options of requests to one cache, which override those of all caches. The parameters
/// `retry-*` are those of Nix 2.35; `connect-timeout` is floe's own.
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
}

impl RequestOptions {
    /// Sets the option with the name of a parameter. Returns `false` if there is none.
    ///
    /// Errors: the text says what is wrong with the value.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = || {
            let parsed = value.parse::<u32>();
            parsed.map_err(|_| format!("{name} takes a number from 0 to {}: {value:?}", u32::MAX))
        };
        let millis = || number().map(|millis| Some(Duration::from_millis(millis.into())));
        match name {
            "retry-attempts" => self.attempts = Some(number()?.max(1)),
            "retry-delay" => self.delay = millis()?,
            "retry-delay-rate-limited" => self.rate_limited_delay = millis()?,
            "retry-max-delay" => self.max_delay = millis()?,
            "connect-timeout" => {
                self.connect_timeout = Some(Duration::from_secs(number()?.into()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the options of all caches with those of this one.
    pub(crate) fn apply(&self, options: &NetworkOptions) -> NetworkOptions {
        let mut options = options.clone();
        let retry = &mut options.retry;
        retry.attempts = self.attempts.unwrap_or(retry.attempts);
        retry.delay = self.delay.unwrap_or(retry.delay);
        retry.rate_limited_delay = self.rate_limited_delay.unwrap_or(retry.rate_limited_delay);
        retry.max_delay = self.max_delay.unwrap_or(retry.max_delay);
        if let Some(timeout) = self.connect_timeout {
            options.connect_timeout = time_limit(timeout);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(own.set(name, value), Ok(true));
            assert!(own.clone().set(name, "-1").unwrap_err().contains(name));
        }
        assert_eq!(own.set("retry-jitter", "true"), Ok(false));
        let applied = own.apply(&all);
        let retry = &applied.retry;
        let pauses = [retry.delay, retry.rate_limited_delay, retry.max_delay];
        assert_eq!(pauses.map(|time| time.as_millis()), [1, 2, 3]);
        assert_eq!((retry.attempts, retry.jitter), (8, true));
        assert_eq!(applied.connect_timeout, Some(Duration::from_secs(4)));
        assert_eq!(own.set("retry-attempts", "0"), Ok(true));
        assert_eq!(own.apply(&all).retry.attempts, 1);
        assert_eq!(own.set("connect-timeout", "0"), Ok(true));
        assert_eq!(own.apply(&all).connect_timeout, None);
    }
}
