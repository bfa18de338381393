//! The check of caches: whether they reply, how fast, and whether their paths would be accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use floe_cache::{Network, NetworkOptions};
use floe_copy::{SourceOrder, Sources};
use floe_format::{HashPart, NarInfo, StoreDir, StorePath, TrustedKeys};
use floe_transfer::{
    CachePolicy, Cancel, Error, Events, HttpServer, PathSpec, Session, Source, StoreConfig,
};

use super::findings::{Findings, Part};
use crate::times;

/// The conditions of a check of caches.
pub(super) struct CacheCheck<'a> {
    pub(super) network: NetworkOptions,
    pub(super) store_dir: StoreDir,
    pub(super) keys: &'a TrustedKeys,
    pub(super) require_signatures: bool,
    /// Paths that a cache may have.
    pub(super) sample: &'a [StorePath],
    pub(super) cancel: &'a Cancel,
}

impl CacheCheck<'_> {
    /// Checks a cache.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(super) fn check(
        &self,
        cache: &Arc<dyn StoreConfig>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let session = Session::new(self.cancel.clone(), Events::default())
            .with_options::<Network>(self.network.clone());
        let stores = std::slice::from_ref(cache);
        let opened = match Sources::open(stores, SourceOrder::AsListed, &session) {
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            opened => opened,
        };
        let sources = match opened {
            Ok(sources) => sources,
            Err(error) => {
                findings.problem(Part::Caches, error, remedy_for_cache(cache));
                return Ok(());
            }
        };
        for (_, error) in &sources.unavailable {
            findings.problem(Part::Caches, error, remedy_for_cache(cache));
        }
        match sources.list.first() {
            Some(source) => self.check_source(&**source, findings),
            None => Ok(()),
        }
    }

    fn check_source(&self, source: &dyn Source, findings: &mut Findings) -> Result<(), Error> {
        let name = source.name();
        let latency = match self.latency(source) {
            Ok(latency) => latency,
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                let remedy = format!("try again, or leave {name} out of substituters");
                findings.problem(Part::Caches, error, remedy);
                return Ok(());
            }
        };
        if let Some(Err(error)) = source.open_result() {
            findings.problem(Part::Caches, error, "correct substituters");
            return Ok(());
        }
        if !source.is_for(&self.store_dir) {
            let (other, own) = (source.store_dir(), &self.store_dir);
            findings.problem(
                Part::Caches,
                format!("{name} has paths for {other}, and the store is for {own}"),
                format_args!("leave it out of substituters, or use --store-dir {other}"),
            );
            return Ok(());
        }
        let rate = self.query_many(source)?;
        let mut facts = Vec::new();
        let server = source.http_server();
        if let Some(server) = &server {
            facts.push(server.version.trim_end_matches(".0").to_owned());
        }
        facts.push(format!("a reply in {}", milliseconds(latency)));
        facts.push(format!("{} narinfos per second", rate.per_second));
        facts.push(format!("priority {}", source.facts().priority));
        if let Some(end) = server.as_ref().and_then(|server| server.certificate_end) {
            facts.push(format!("certificate until {}", times::date(end)));
        }
        findings.fine(Part::Caches, format!("{name}: {}", facts.join(", ")));
        if let Some(error) = rate.failure {
            let remedy = "try again, or set http-connections lower";
            findings.warn(Part::Caches, format!("{name}: {error}"), remedy);
        }
        if let Some(server) = server {
            check_server(&name, &server, findings);
        }
        self.check_trust(&name, source, &rate.found, findings);
        self.check_daemon(&name, source, findings);
        Ok(())
    }

    /// Returns the median time of a reply on an open connection.
    fn latency(&self, source: &dyn Source) -> Result<Duration, Error> {
        let mut times = Vec::new();
        for number in 0..=LATENCY_QUERIES {
            let spec = PathSpec::HashPart(absent_hash_part(number));
            let began = Instant::now();
            source.query_path_info_within(Some(REPLY_TIMEOUT), &spec, self.cancel)?;
            // The first query opens the connection.
            if number > 0 {
                times.push(began.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Queries many paths at once.
    fn query_many(&self, source: &dyn Source) -> Result<Replies, Error> {
        let sample = self.sample.iter().take(QUERIES).cloned();
        let mut specs: Vec<PathSpec> = sample.map(PathSpec::Path).collect();
        let further = (LATENCY_QUERIES + 1..).map(absent_hash_part);
        let missing = QUERIES - specs.len();
        specs.extend(further.take(missing).map(PathSpec::HashPart));
        let (sender, receiver) = mpsc::channel();
        let began = Instant::now();
        for spec in &specs {
            let sender = sender.clone();
            let reply = Box::new(move |result| {
                // The receiver is gone after a timeout.
                let _: Result<(), _> = sender.send(result);
            });
            source.query(spec, CachePolicy::Bypass, reply);
        }
        let mut replies = Replies::default();
        let mut count = 0_usize;
        while count < specs.len() {
            if self.cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            let Ok(result) = receiver.recv_timeout(REPLY_TIMEOUT) else {
                replies.failure = Some("some queries got no reply".into());
                break;
            };
            count += 1;
            match result {
                Ok(reply) => {
                    let found = reply.narinfo.map(|it| (it.info.path.clone(), it));
                    replies.found.extend(found);
                }
                Err(error) => replies.failure = Some(error.to_string()),
            }
        }
        let seconds = began.elapsed().as_secs_f64().max(f64::EPSILON);
        replies.per_second = (count as f64 / seconds).round() as u64;
        Ok(replies)
    }

    /// Checks that installs accept the paths of the sample that the cache has.
    fn check_trust(
        &self,
        name: &str,
        source: &dyn Source,
        found: &BTreeMap<StorePath, NarInfo>,
        findings: &mut Findings,
    ) {
        if !self.require_signatures || source.facts().is_trusted {
            return;
        }
        let needs_signature = |narinfo: &&NarInfo| {
            narinfo.info.matches_content_address(&self.store_dir) != Some(true)
        };
        let mut signed = found.values().filter(needs_signature);
        let Some(first) = signed.next() else {
            return;
        };
        let is_trusted = |narinfo: &NarInfo| narinfo.info.is_signed_by(&self.store_dir, self.keys);
        if is_trusted(first) || signed.any(is_trusted) {
            return;
        }
        let signers = first.info.signatures.iter();
        let signers: Vec<&str> = signers.map(|it| it.key_name()).collect();
        let path = &first.info.path;
        let (message, remedy) = match &*signers {
            [] => (
                format!("{name} has no signatures, as of {path}"),
                "sign its paths with floe sign".to_owned(),
            ),
            names => (
                format!(
                    "{name} signs as {}, which is no trusted key",
                    names.join(", ")
                ),
                "add its public key to trusted-public-keys if you trust it".to_owned(),
            ),
        };
        findings.problem(Part::Caches, message, remedy);
    }

    /// Says what a daemon tells of itself.
    fn check_daemon(&self, name: &str, source: &dyn Source, findings: &mut Findings) {
        if let Ok(Some(server)) = source.query_server() {
            let version = server.version.as_deref().unwrap_or("an unknown version");
            let trust = match server.trusts_client {
                Some(true) => ", which trusts this user",
                Some(false) => ", which does not trust this user",
                None => "",
            };
            findings.fine(Part::Caches, format!("{name}: {version}{trust}"));
        }
    }
}

/// The replies to many queries at once.
#[derive(Default)]
struct Replies {
    per_second: u64,
    found: BTreeMap<StorePath, NarInfo>,
    failure: Option<String>,
}

/// Checks the certificate and the clock of a server.
pub(super) fn check_server(name: &str, server: &HttpServer, findings: &mut Findings) {
    if let Some(end) = server.certificate_end {
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        if left < CERTIFICATE_TIME_MIN {
            let days = left.as_secs() / 86_400;
            findings.warn(
                Part::Caches,
                format!("the certificate of {name} ends in {days} days"),
                "tell its operator to renew it",
            );
        }
    }
    if let Some(ahead) = server.clock_ahead
        && ahead.unsigned_abs() > CLOCK_DIFFERENCE_MAX
    {
        findings.warn(
            Part::Caches,
            format!("the clock of {name} differs from the one of this machine by {ahead} s"),
            "set the clock; remembered replies, certificates and signed requests depend on it",
        );
    }
}

fn remedy_for_cache(cache: &Arc<dyn StoreConfig>) -> String {
    format!("correct {cache}, or leave it out of substituters")
}

/// Returns a hash part that no cache has.
fn absent_hash_part(number: usize) -> HashPart {
    let text = format!("{number:0>32}");
    HashPart::parse(&text).unwrap_or_else(|| absent_hash_part(0))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// The queries whose median time is shown.
const LATENCY_QUERIES: usize = 3;

/// The queries that are sent at once: as many as a small install sends.
const QUERIES: usize = 100;

/// The longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A certificate that ends sooner is worth a warning.
const CERTIFICATE_TIME_MIN: Duration = Duration::from_secs(14 * 24 * 3600);

/// The difference of clocks from which requests with signatures fail (S3 allows 15 minutes), and
/// times mislead, in seconds.
const CLOCK_DIFFERENCE_MAX: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_parts_of_queries_differ() {
        assert_ne!(absent_hash_part(1), absent_hash_part(2));
        assert_eq!(absent_hash_part(103).to_string().len(), 32);
    }

    #[test]
    fn old_certificates_and_wrong_clocks_are_found() {
        let mut findings = Findings::default();
        let day = Duration::from_secs(86_400);
        let server = |certificate_end, clock_ahead| HttpServer {
            version: "HTTP/1.1".into(),
            certificate_end,
            clock_ahead,
        };
        let now = SystemTime::now();
        check_server(
            "good",
            &server(Some(now + 90 * day), Some(-30)),
            &mut findings,
        );
        assert!(findings.report(true).is_ok());
        check_server(
            "old",
            &server(Some(now + 3 * day + day / 2), Some(0)),
            &mut findings,
        );
        check_server("late", &server(None, Some(-4000)), &mut findings);
        let texts = format!("{findings:?}");
        assert!(
            texts.contains("certificate of old ends in 3 days"),
            "{texts}"
        );
        assert!(texts.contains("clock of late differs"), "{texts}");
        assert!(!texts.contains("good"), "{texts}");
    }
}
