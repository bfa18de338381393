//! Queries of the pins of a cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floe_format::pin::{Pin, PinError, is_pin_name};
use floe_transfer::Error;

use super::{PinPolicy, PinRefusal, PinsUri, SeenPin, SeenPins, check_pin};
use crate::access::Access;
use crate::cache_file::now;
use crate::package::{Candidate, Origin, PinFacts, QueryResult, SourceError, SourceReply};

/// Queries the pins of a cache, all at once. A cache that does not reply has the pins that were
/// seen.
pub(crate) fn query(
    uri: &PinsUri,
    names: &[&str],
    (seen, policy): (&mut SeenPins, &PinPolicy),
    access: &dyn Access,
) -> Vec<QueryResult> {
    if let Some(damage) = seen.damage() {
        let refused = |name: &&str| {
            if is_pin_name(name) {
                Err(SourceError::Untrusted(damage.to_owned()))
            } else {
                Ok(None)
            }
        };
        return names.iter().map(refused).collect();
    }
    let possible = names.iter().copied().filter(|name| is_pin_name(name));
    let possible: Vec<&str> = possible.collect::<BTreeSet<_>>().into_iter().collect();
    let replies = if possible.is_empty() {
        Vec::new()
    } else {
        access.pins(&uri.cache, &possible)
    };
    let mut results: BTreeMap<&str, QueryResult> = BTreeMap::new();
    for (name, reply) in possible.into_iter().zip(replies) {
        let result = match reply {
            Ok(Some(text))
                if uri.is_implicit
                    && is_page(&text)
                    && seen.current(&uri.shown(), name).is_none() =>
            {
                Ok(None)
            }
            Ok(Some(text)) => verified(uri, name, &text, (seen, policy)).map(Some),
            Ok(None) => absent(uri, name, (seen, policy)),
            Err(error) => match seen.current(&uri.shown(), name) {
                Some(last) if policy.uses_seen && !matches!(error, Error::Cancelled) => {
                    offline(last, &error, policy).map(Some)
                }
                None if uri.is_implicit && is_refusal(&error) => Ok(None),
                _ => Err(SourceError::Fetch(Arc::new(error))),
            },
        };
        results.insert(name, result);
    }
    let results = names
        .iter()
        .map(|name| results.get(name).cloned().unwrap_or(Ok(None)));
    results.collect()
}

/// Makes the reply of a cache without a pin of this name. Otherwise a cache that hides a pin could
/// choose another source of the name.
fn absent(uri: &PinsUri, name: &str, (seen, policy): (&mut SeenPins, &PinPolicy)) -> QueryResult {
    let cache = uri.shown();
    match seen.current(&cache, name) {
        None => Ok(None),
        Some(_) if policy.allows_downgrade => {
            seen.record_withdrawal(&cache, name);
            Ok(None)
        }
        Some(_) => Err(SourceError::Untrusted(GONE.into())),
    }
}

/// Whether a reply has another form, as from a server that sends a page for every URL.
fn is_page(text: &[u8]) -> bool {
    matches!(Pin::parse(text), Err(PinError::Version | PinError::NotUtf8))
}

/// Whether a server denies access. One that serves a bucket does so for absent objects.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Fetch {
            status: Some(401 | 403),
            ..
        }
    )
}

fn verified(
    uri: &PinsUri,
    name: &str,
    text: &[u8],
    (seen, policy): (&mut SeenPins, &PinPolicy),
) -> Result<SourceReply, SourceError> {
    let cache = uri.shown();
    let pin = Pin::parse(text).map_err(|error| SourceError::Reply {
        place: format!("{cache}/pins/{name}"),
        reason: error.to_string(),
    })?;
    let checked = check_pin(&pin, (name, &cache), (seen, policy), now());
    checked.map_err(|PinRefusal(reason)| SourceError::Untrusted(reason))?;
    seen.record(&cache, &pin, policy.allows_downgrade);
    Ok(Candidate {
        pin: Some(PinFacts {
            serial: pin.serial,
            time: pin.time,
        }),
        ..candidate(pin.full_path())
    }
    .into())
}

/// Makes the reply of a cache that does not reply now.
fn offline(last: &SeenPin, error: &Error, policy: &PinPolicy) -> Result<SourceReply, SourceError> {
    let reply = reply_of(last, policy)
        .map_err(|reason| SourceError::Untrusted(format!("{error}; {reason}")))?;
    Ok(SourceReply {
        origin: Origin::Offline(error.to_string()),
        ..reply
    })
}

/// Makes the reply of a cache that is not asked.
pub(crate) fn seen_reply(
    uri: &PinsUri,
    name: &str,
    (seen, policy): (&SeenPins, &PinPolicy),
) -> QueryResult {
    if !is_pin_name(name) {
        return Ok(None);
    }
    if let Some(damage) = seen.damage() {
        return Err(SourceError::Untrusted(damage.to_owned()));
    }
    let last = seen.current(&uri.shown(), name);
    let reply = last.map(|last| reply_of(last, policy)).transpose();
    reply.map_err(SourceError::Untrusted)
}

/// Makes a reply of a pin that was seen.
///
/// Errors: the pin is too old.
fn reply_of(last: &SeenPin, policy: &PinPolicy) -> Result<SourceReply, String> {
    if let Some((age, max)) = policy.excess_age(last.time) {
        return Err(format!(
            "the pin that this machine has seen is {age} seconds old, and the setting max-pin-age \
             allows {max}"
        ));
    }
    Ok(SourceReply {
        candidate: Candidate {
            pin: Some(PinFacts {
                serial: last.serial,
                time: last.time,
            }),
            ..candidate(last.path.clone())
        },
        resolved_at: last.seen_at,
        origin: Origin::Remembered,
    })
}

const GONE: &str = "the cache has no pin of this name, and this machine has seen one; ask another \
                    source as SOURCE#NAME, or use --allow-downgrade";

fn candidate(path: String) -> Candidate {
    Candidate {
        outputs: BTreeMap::from([("out".into(), path)]),
        ..Candidate::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use floe_cache::{DocumentRequest, Fetched};
    use floe_format::{SecretKey, StoreDir, StorePath};

    use super::*;

    /// A cache that gives one reply for each pin.
    struct Cache<F>(F);

    impl<F: Fn() -> Result<Option<Vec<u8>>, Error>> Access for Cache<F> {
        fn fetch(&self, _: Vec<DocumentRequest>) -> Fetched {
            Ok(Vec::new())
        }

        fn pins(&self, _: &str, names: &[&str]) -> Vec<Result<Option<Vec<u8>>, Error>> {
            names.iter().map(|_| (self.0)()).collect()
        }
    }

    fn refusal(status: u16) -> Error {
        Error::Fetch {
            url: "https://h.example/pins/web".into(),
            reason: "refused".into(),
            transient: false,
            status: Some(status),
            retry_after: None,
        }
    }

    fn pin(key: &SecretKey) -> Pin {
        let mut pin = Pin {
            name: "web".into(),
            store_dir: StoreDir::default(),
            path: StorePath::parse(&format!("{}-web", "0".repeat(32))).unwrap(),
            cache_id: "a".repeat(32),
            serial: 7,
            time: now(),
            signatures: Default::default(),
        };
        pin.sign(key);
        pin
    }

    /// Asks the cache for `web`. Returns the path, the text of the error, or nothing.
    fn ask(
        seen: &mut SeenPins,
        policy: &PinPolicy,
        reply: impl Fn() -> Result<Option<Vec<u8>>, Error>,
    ) -> Result<Option<Origin>, String> {
        let uri = PinsUri::of_cache("https://H.example:443/").unwrap();
        let result = query(&uri, &["web"], (seen, policy), &Cache(reply)).remove(0);
        let found = result.map_err(|error| format!("{error:?}"))?;
        Ok(found.map(|found| {
            assert!(found.candidate.outputs["out"].ends_with("-web"));
            found.origin
        }))
    }

    #[test]
    fn cache_cannot_hide_a_pin_that_was_seen() {
        let key = SecretKey::from_seed("cache-1", [1; 32]).unwrap();
        let policy = PinPolicy {
            keys: [key.public()].into_iter().collect(),
            uses_seen: true,
            ..PinPolicy::default()
        };
        let text = pin(&key).to_string().into_bytes();
        let page = || Ok(Some(b"<html>".to_vec()));
        let mut seen = SeenPins::default();
        // The user has not named this cache for its pins, and it has none.
        assert_eq!(ask(&mut seen, &policy, || Err(refusal(403))), Ok(None));
        assert_eq!(ask(&mut seen, &policy, page), Ok(None));
        assert_eq!(ask(&mut seen, &policy, || Ok(None)), Ok(None));
        let found = ask(&mut seen, &policy, || Ok(Some(text.clone())));
        assert_eq!(found, Ok(Some(Origin::Source)));
        assert!(seen.find("https://h.example", "web").is_some());

        for status in [401, 403, 500] {
            let found = ask(&mut seen, &policy, || Err(refusal(status)));
            assert!(matches!(found, Ok(Some(Origin::Offline(_)))), "{found:?}");
            let live = PinPolicy {
                uses_seen: false,
                ..policy.clone()
            };
            let found = ask(&mut seen, &live, || Err(refusal(status)));
            assert!(found.unwrap_err().starts_with("Fetch"));
        }
        let error = ask(&mut seen, &policy, page).unwrap_err();
        assert!(error.contains("its first line"), "{error}");
        assert!(
            ask(&mut seen, &policy, || Ok(None))
                .unwrap_err()
                .contains(GONE)
        );

        // The user accepts that it is gone, once.
        let allows = PinPolicy {
            allows_downgrade: true,
            ..policy.clone()
        };
        assert_eq!(ask(&mut seen, &allows, || Ok(None)), Ok(None));
        assert_eq!(ask(&mut seen, &policy, || Ok(None)), Ok(None));
        assert_eq!(ask(&mut seen, &policy, || Err(refusal(403))), Ok(None));
        let found = ask(&mut seen, &policy, || Ok(Some(text.clone())));
        assert_eq!(found, Ok(Some(Origin::Source)));
    }

    #[test]
    fn remembered_pin_is_refused_if_it_is_too_old() {
        let key = SecretKey::from_seed("cache-1", [1; 32]).unwrap();
        let uri = PinsUri::of_cache("https://h.example").unwrap();
        let mut seen = SeenPins::default();
        let old = Pin {
            time: now() - 7200,
            ..pin(&key)
        };
        seen.record(&uri.shown(), &old, false);
        let reply = |seconds: u64| {
            let policy = PinPolicy {
                max_age: Some(Duration::from_secs(seconds)),
                ..PinPolicy::default()
            };
            seen_reply(&uri, "web", (&seen, &policy))
        };
        assert!(reply(7300).unwrap().is_some());
        assert!(reply(3600).is_err());
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pins.json");
        std::fs::write(&file, "{").unwrap();
        let damaged = SeenPins::open(Some(file));
        let reply = |name| seen_reply(&uri, name, (&damaged, &PinPolicy::default()));
        assert!(reply("web").is_err());
        assert!(reply("no/name").unwrap().is_none());
    }
}
