//! Writes pins.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::pin::{Pin, is_cache_id};
use floe_format::{SecretKey, StoreDir, StorePath, TrustedKeys};
use floe_transfer::{Cancel, Error, Expected, NamedObject, NamedObjects, Written};

use super::{PINS_INFO, pin_object};
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
    /// A random identifier for a cache that has none.
    pub new_cache_id: String,
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
    (keys, trusted): (&[SecretKey], &TrustedKeys),
    cancel: &Cancel,
) -> Result<Pin, PinError> {
    let mut trusted = trusted.clone();
    trusted.extend(keys.iter().map(SecretKey::public));
    let name = pin_object(new.name);
    let names = [name.clone(), PINS_INFO.to_owned()];
    for _ in 0..ATTEMPTS {
        if cancel.is_raised() {
            return Err(Error::Cancelled.into());
        }
        let mut found = objects.get(&names, cancel).into_iter();
        let current = found.next().transpose()?.flatten();
        let info = found.next().transpose()?.flatten();
        let Some(cache_id) = info.map(|info| parse_info(&info.contents)).transpose()? else {
            let info = format!("CacheId: {}\n", new.new_cache_id);
            // Another writer may have made it; then that one counts.
            objects.put(PINS_INFO, info.as_bytes(), &Expected::Absent)?;
            continue;
        };
        let before = current
            .as_ref()
            .and_then(|it| Pin::parse(&it.contents).ok());
        let before = before.filter(|pin| pin.trusted_by(&trusted).is_some());
        let next_serial = before.map_or(0, |pin| pin.serial.saturating_add(1));
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
        let expected = expected(current);
        let written = objects.put(&name, text.as_bytes(), &expected)?;
        // The reply to the first attempt may be lost, or the server may know no conditions.
        let stored = objects
            .get(&names[..1], cancel)
            .pop()
            .transpose()?
            .flatten();
        let is_stored = stored.is_some_and(|stored| stored.contents == text.as_bytes());
        match written {
            Written::Yes | Written::Conflict if is_stored => return Ok(pin),
            Written::Yes | Written::Conflict => {}
        }
    }
    Err(PinError::Busy)
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
    let found = objects.get(std::slice::from_ref(&name), cancel).pop();
    if found.transpose()?.flatten().is_none() {
        return Err(PinError::Absent);
    }
    Ok(objects.delete(&name)?)
}

fn expected(current: Option<NamedObject>) -> Expected {
    match current {
        None => Expected::Absent,
        Some(current) => current.version.map_or(Expected::Any, Expected::Version),
    }
}

/// Returns the identifier of a cache from its object.
fn parse_info(contents: &[u8]) -> Result<String, PinError> {
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
const ATTEMPTS: usize = 20;
