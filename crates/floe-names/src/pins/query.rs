//! Queries of the pins of a cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floe_format::pin::{Pin, is_pin_name};
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
            Ok(Some(text)) => verified(uri, name, &text, (seen, policy)).map(Some),
            // Otherwise a cache that hides a pin could choose another source of the name.
            Ok(None) if !policy.allows_downgrade && seen.find(&uri.shown(), name).is_some() => {
                Err(SourceError::Untrusted(GONE.into()))
            }
            Ok(None) => Ok(None),
            Err(error) if uri.is_implicit && is_refusal(&error) => Ok(None),
            Err(error) => match seen.find(&uri.shown(), name) {
                Some(last) if !matches!(error, Error::Cancelled) => {
                    offline(last, &error, policy).map(Some)
                }
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
    let age = now().saturating_sub(last.time);
    if let Some(max) = policy.max_age.filter(|max| age > max.as_secs()) {
        return Err(SourceError::Untrusted(format!(
            "{error}; the pin that this machine has seen is {age} seconds old, and the setting \
             max-pin-age allows {}",
            max.as_secs()
        )));
    }
    Ok(SourceReply {
        origin: Origin::Offline(error.to_string()),
        ..seen_reply(last)
    })
}

/// Makes the reply of a cache that is not asked.
pub(crate) fn seen_reply(last: &SeenPin) -> SourceReply {
    SourceReply {
        candidate: Candidate {
            pin: Some(PinFacts {
                serial: last.serial,
                time: last.time,
            }),
            ..candidate(last.path.clone())
        },
        resolved_at: last.seen_at,
        origin: Origin::Remembered,
    }
}

const GONE: &str = "the cache has no pin of this name, and this machine has seen one; ask another \
                    source as SOURCE#NAME, or use --allow-downgrade";

fn candidate(path: String) -> Candidate {
    Candidate {
        outputs: BTreeMap::from([("out".into(), path)]),
        ..Candidate::default()
    }
}
