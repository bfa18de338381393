//! Writes pins.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use floe_format::pin::{Pin, is_cache_id};
use floe_format::{SecretKey, StoreDir, StorePath, TrustedKeys};
use floe_transfer::{Cancel, Error, Expected, NamedObject, NamedObjects, RetryPolicy, Written};

use super::{PINS_INFO, generation_object, pin_object};
use crate::cache_file::now;

/// A pin that is to be written.
#[derive(Clone, Debug)]
pub struct NewPin<'a> {
    /// The name.
    pub name: &'a str,
    /// The store directory of the path.
    pub store_dir: StoreDir,
    /// The path.
    pub path: StorePath,
    /// An identifier for a cache that has none: the one that it had before, or a random one.
    pub new_cache_id: String,
    /// The identifier that the cache had before, if another one is to be refused.
    pub known_cache_id: Option<&'a str>,
}

/// Why a pin cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A request failed.
    #[error("{0}")]
    Cache(#[from] Error),
    /// The cache has an object of another format.
    #[error("the object {name} of the cache is damaged: {reason}")]
    Object {
        /// The name of the object.
        name: String,
        /// The cause.
        reason: String,
    },
    /// The cache has another identifier than before.
    #[error(
        "the cache has the identifier {found}, and had {known} before; it may be a copy of another \
         cache, in which the pin would count, too; if it was made anew, use --allow-downgrade once"
    )]
    OtherCache {
        /// The identifier that the cache has.
        found: String,
        /// The identifier that it had before.
        known: String,
    },
    /// No pin can have a greater serial number.
    #[error(
        "the pin before has the greatest serial number that there is; delete it with floe unpin"
    )]
    LastSerial,
    /// Others write the same pin again and again.
    #[error("others write it at the same time; try again later")]
    Busy,
    /// The cache has no such pin.
    #[error("the cache has no such pin")]
    Absent,
}

/// Writes a pin, signed with all keys. Its serial number is greater than that of the pin before,
/// and at least the time in milliseconds, so that it is also greater than that of a deleted pin.
///
/// A pin that neither these keys nor `trusted` have signed is replaced, and its serial number does
/// not count.
///
/// Errors: [`PinError`].
pub fn pin(
    objects: &dyn NamedObjects,
    new: &NewPin<'_>,
    keys: (&[SecretKey], &TrustedKeys),
    cancel: &Cancel,
) -> Result<Pinned, PinError> {
    let pin = write_pin(objects, new, keys, cancel)?;
    // A cache that cannot be collected needs no record of its generations.
    let generation_error = objects.can_list().then(|| {
        let name = generation_object(&pin.name, pin.serial);
        let written = objects.put(&name, pin.to_string().as_bytes(), &Expected::Any);
        written.err()
    });
    Ok(Pinned {
        pin,
        generation_error: generation_error.flatten(),
    })
}

/// A pin that was written.
#[derive(Debug)]
pub struct Pinned {
    /// The pin.
    pub pin: Pin,
    /// Why its generation could not be recorded, by which a collection finds it later.
    pub generation_error: Option<Error>,
}

fn write_pin(
    objects: &dyn NamedObjects,
    new: &NewPin<'_>,
    (keys, trusted): (&[SecretKey], &TrustedKeys),
    cancel: &Cancel,
) -> Result<Pin, PinError> {
    let mut trusted = trusted.clone();
    trusted.extend(keys.iter().map(SecretKey::public));
    let name = pin_object(new.name);
    let names = [name.clone(), PINS_INFO.to_owned()];
    for attempt in 0..ATTEMPTS {
        pause(attempt);
        if cancel.is_raised() {
            return Err(Error::Cancelled.into());
        }
        let (current, cache_id) = get_current(objects, &names, cancel)?;
        let Some(cache_id) = cache_id else {
            let info = format!("CacheId: {}\n", new.new_cache_id);
            // Another writer may have made it; then that one counts.
            objects.put(PINS_INFO, info.as_bytes(), &Expected::Absent)?;
            continue;
        };
        if let Some(known) = new.known_cache_id.filter(|known| *known != cache_id) {
            return Err(PinError::OtherCache {
                found: cache_id,
                known: known.to_owned(),
            });
        }
        let before = current
            .as_ref()
            .and_then(|it| Pin::parse(&it.contents).ok());
        // A pin that was copied here from another cache or name does not count.
        let before = before.filter(|pin| {
            let is_own = pin.name == new.name && pin.cache_id == cache_id;
            is_own && pin.trusted_by(&trusted).is_some()
        });
        let next_serial = before.map_or(Some(0), |pin| pin.serial.checked_add(1));
        let next_serial = next_serial.ok_or(PinError::LastSerial)?;
        let mut pin = Pin {
            name: new.name.to_owned(),
            store_dir: new.store_dir.clone(),
            path: new.path.clone(),
            cache_id,
            serial: next_serial.max(milliseconds()),
            time: now(),
            signatures: BTreeSet::new(),
        };
        for key in keys {
            pin.sign(key);
        }
        let text = pin.to_string();
        let expected = expected_version(current);
        // The reply to the first attempt may be lost, or the server may know no conditions. So the
        // writer looks at the objects of the cache again.
        let (Written::Yes | Written::Conflict) = objects.put(&name, text.as_bytes(), &expected)?;
        let (stored, cache_id) = get_current(objects, &names, cancel)?;
        let is_stored = stored.is_some_and(|stored| stored.contents == text.as_bytes());
        if is_stored && cache_id.as_ref() == Some(&pin.cache_id) {
            return Ok(pin);
        }
    }
    Err(PinError::Busy)
}

/// Returns a pin and the identifier of the cache, as far as the cache has them.
fn get_current(
    objects: &dyn NamedObjects,
    names: &[String],
    cancel: &Cancel,
) -> Result<(Option<NamedObject>, Option<String>), PinError> {
    let mut found = objects.get(names, cancel).into_iter();
    let current = found.next().transpose()?.flatten();
    let info = found.next().transpose()?.flatten();
    let cache_id = info.map(|info| parse_info(&info.contents)).transpose()?;
    Ok((current, cache_id))
}

/// Waits before another attempt, so that writers that met do not meet again. The first attempts
/// follow at once: a new cache needs two.
fn pause(attempt: u32) {
    let attempt = attempt.saturating_sub(2);
    if attempt > 0 {
        let pauses = RetryPolicy {
            max_delay: PAUSE_MAX,
            ..RetryPolicy::default()
        };
        thread::sleep(pauses.pause(attempt, &Error::Cancelled));
    }
}

/// Returns the time in milliseconds since 1970.
fn milliseconds() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = time.unwrap_or_default().as_millis();
    u64::try_from(milliseconds).unwrap_or(u64::MAX)
}

/// Deletes a pin.
///
/// Errors: [`PinError::Absent`], [`PinError::Cache`].
pub fn unpin(objects: &dyn NamedObjects, name: &str, cancel: &Cancel) -> Result<(), PinError> {
    let name = pin_object(name);
    for attempt in 0..ATTEMPTS {
        pause(attempt);
        if cancel.is_raised() {
            return Err(Error::Cancelled.into());
        }
        let found = objects.get(std::slice::from_ref(&name), cancel).pop();
        let found = found.transpose()?.flatten();
        if found.is_none() {
            return Err(PinError::Absent);
        }
        // A pin that another writer has moved meanwhile is the one to delete.
        if objects.delete(&name, &expected_version(found))? == Written::Yes {
            return Ok(());
        }
    }
    Err(PinError::Busy)
}

/// Returns the condition by which a write replaces the version that the writer knows.
pub fn expected_version(current: Option<NamedObject>) -> Expected {
    match current {
        None => Expected::Absent,
        Some(current) => current.version.map_or(Expected::Any, Expected::Version),
    }
}

/// Returns the identifier of a cache from its object [`PINS_INFO`].
///
/// Errors: [`PinError::Object`].
pub fn parse_info(contents: &[u8]) -> Result<String, PinError> {
    let text = std::str::from_utf8(contents).unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("CacheId: "));
    match id.filter(|id| is_cache_id(id)) {
        Some(id) => Ok(id.to_owned()),
        None => Err(PinError::Object {
            name: PINS_INFO.into(),
            reason: "it has no field CacheId".into(),
        }),
    }
}

/// How often a pin is written while others write it, too.
const ATTEMPTS: u32 = 20;

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);
