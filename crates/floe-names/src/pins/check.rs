//! The checks of a pin before its path is used.

use std::time::Duration;

use floe_format::pin::Pin;

use super::{PinPolicy, SeenPins};

/// Why a pin is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRefusal(pub String);

/// Checks a pin that a cache has sent for a name.
///
/// Errors: it is for another name or cache, no trusted key has signed it, it is older than one that
/// was seen, from the future, or too old.
pub fn check_pin(
    pin: &Pin,
    (name, cache): (&str, &str),
    (seen, policy): (&SeenPins, &PinPolicy),
    now: u64,
) -> Result<(), PinRefusal> {
    let refused = |reason: String| Err(PinRefusal(reason));
    if pin.trusted_by(&policy.keys).is_none() {
        let signers: Vec<&str> = pin.signatures.iter().map(|it| it.key_name()).collect();
        return refused(if signers.is_empty() {
            "its pin has no signature; sign it with floe pin --secret-key-file FILE".into()
        } else {
            format!(
                "no trusted key has signed its pin, which names {}; add the public key with \
                 --trusted-public-key",
                signers.join(" and ")
            )
        });
    }
    if pin.name != name {
        return refused(format!("its pin is for the name {}", pin.name));
    }
    if let Some(id) = seen.cache_id(cache).filter(|id| *id != pin.cache_id) {
        // The other checks count also for a cache that the user has allowed.
        refused(format!(
            "its pin is for the cache {}, and this cache was {id} before; if it was made anew, use \
             --allow-downgrade once",
            pin.cache_id
        ))
        .or_else(|error| allow(policy, error))?;
    }
    if pin.time > now + CLOCK_SKEW {
        return refused(format!(
            "its pin was made {} in the future; check the clocks of this machine and of the one \
             that made the pin",
            seconds_as_text(pin.time - now)
        ));
    }
    if let Some(max) = policy.max_age
        && now.saturating_sub(pin.time) > max.as_secs()
    {
        return refused(format!(
            "its pin is {} old, and the setting max-pin-age allows {}; renew it with floe pin",
            seconds_as_text(now.saturating_sub(pin.time)),
            seconds_as_text(max.as_secs())
        ));
    }
    let Some(last) = seen.find(cache, name) else {
        return Ok(());
    };
    let full_path = pin.full_path();
    let outcome = if pin.serial < last.serial {
        refused(format!(
            "its pin has the serial number {}, and this machine has seen {}; the cache may hide an \
             update, so use --allow-downgrade only if you know why",
            pin.serial, last.serial
        ))
    } else if pin.serial == last.serial && full_path != last.path {
        refused(format!(
            "it has two pins with the serial number {}: {full_path} and {}",
            pin.serial, last.path
        ))
    } else {
        Ok(())
    };
    outcome.or_else(|error| allow(policy, error))
}

/// Drops a refusal that the user has allowed.
fn allow(policy: &PinPolicy, refusal: PinRefusal) -> Result<(), PinRefusal> {
    if policy.allows_downgrade {
        Ok(())
    } else {
        Err(refusal)
    }
}

/// Returns a time span in its largest unit.
fn seconds_as_text(seconds: u64) -> String {
    let units = [
        (24 * 3600, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let found = units.into_iter().find(|(unit, _)| seconds >= *unit);
    let (unit, name) = found.unwrap_or((1, "second"));
    let count = seconds / unit;
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

/// How far the clock of another machine may be ahead, in seconds.
const CLOCK_SKEW: u64 = Duration::from_secs(300).as_secs();

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use floe_format::{SecretKey, StoreDir, StorePath};

    use super::*;

    const NOW: u64 = 1_700_000_000;
    const CACHE: &str = "https://h.example";

    fn pin(serial: u64) -> Pin {
        let mut pin = Pin {
            name: "web".into(),
            store_dir: StoreDir::default(),
            path: StorePath::parse(&format!("{}-web-{serial}", "0".repeat(32))).unwrap(),
            cache_id: "a".repeat(32),
            serial,
            time: NOW - 3600,
            signatures: BTreeSet::new(),
        };
        pin.sign(&key());
        pin
    }

    fn key() -> SecretKey {
        SecretKey::from_seed("cache-1", [1; 32]).unwrap()
    }

    fn policy() -> PinPolicy {
        PinPolicy {
            keys: [key().public()].into_iter().collect(),
            ..PinPolicy::default()
        }
    }

    fn changed(change: impl Fn(&mut Pin)) -> Pin {
        let mut pin = pin(7);
        change(&mut pin);
        pin.signatures.clear();
        pin.sign(&key());
        pin
    }

    #[test]
    fn pins_are_checked_against_what_was_seen() {
        let mut seen = SeenPins::default();
        seen.record(CACHE, &pin(7), false);
        let check = |pin: &Pin, policy: &PinPolicy| {
            check_pin(pin, ("web", CACHE), (&seen, policy), NOW).map_err(|refusal| refusal.0)
        };
        assert_eq!(check(&pin(7), &policy()), Ok(()));
        assert_eq!(check(&pin(8), &policy()), Ok(()));
        let other_path = StorePath::parse(&format!("{}-web-7", "1".repeat(32))).unwrap();
        let refused: [(Pin, &str, bool); 7] = [
            (pin(6), "serial number 6, and this machine has seen 7", true),
            (
                changed(|pin| pin.path = other_path.clone()),
                "two pins with the serial number 7",
                true,
            ),
            (
                changed(|pin| pin.cache_id = "b".repeat(32)),
                "this cache was aaaa",
                true,
            ),
            (
                changed(|pin| pin.name = "api".into()),
                "for the name api",
                false,
            ),
            (
                changed(|pin| pin.time = NOW + 7200),
                "made 2 hours in the future",
                false,
            ),
            (
                changed(|pin| (pin.cache_id, pin.time) = ("b".repeat(32), NOW + 7200)),
                "this cache was aaaa",
                false,
            ),
            (
                Pin {
                    signatures: BTreeSet::new(),
                    ..pin(8)
                },
                "has no signature",
                false,
            ),
        ];
        for (pin, reason, is_allowed) in refused {
            let error = check(&pin, &policy()).unwrap_err();
            assert!(error.contains(reason), "{error}");
            let allows = PinPolicy {
                allows_downgrade: true,
                ..policy()
            };
            assert_eq!(check(&pin, &allows).is_ok(), is_allowed, "{reason}");
        }
        let error = check(&pin(8), &PinPolicy::default()).unwrap_err();
        assert!(error.contains("which names cache-1"), "{error}");
        let strict = PinPolicy {
            max_age: Some(Duration::from_secs(1800)),
            ..policy()
        };
        let error = check(&pin(8), &strict).unwrap_err();
        assert!(
            error.contains("is 1 hour old, and the setting max-pin-age allows 30 minutes"),
            "{error}"
        );
    }
}
