//! Uploads and deletions of pins. docs/formats.md describes pins, and how writers write them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_cache::BinaryCacheWriter;
use floe_format::StorePath;
use floe_format::pin::{PINS_FOLDER, Pin, is_pin_name};
use floe_names::{PINS_INFO, expected_version, generation_object, parse_info, pin_object};
use floe_server::receive::{Condition, PushScope, ReceiveError, ReceiveErrorKind};
use floe_store::list_directory;
use floe_transfer::{Cancel, Expected, NamedObject, NamedObjects as _, Target as _, Written};

use super::errors::{conflict, failed, invalid};
use super::limits::check_name;
use super::store::ReceivingStore;
use super::{Destination, Shared};

/// A pin that a client writes or deletes.
pub(super) struct PinUpload<'a> {
    pub(super) shared: &'a Shared,
    pub(super) name: &'a str,
    pub(super) condition: &'a Condition,
    pub(super) may_push: &'a PushScope,
}

impl PinUpload<'_> {
    pub(super) fn finish(&self, bytes: &[u8], is_deletion: bool) -> Result<(), ReceiveError> {
        self.check_allowed()?;
        if is_deletion {
            self.delete()
        } else {
            self.put(bytes)
        }
    }

    /// Writes the identifier of the cache, which never changes.
    pub(super) fn put_info(&self, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.check_allowed()?;
        if !self.may_push.prefixes().is_empty() {
            // Another identifier would let it replace the pins of others.
            return Err(self.forbidden("the login may push only some paths"));
        }
        parse_info(bytes).map_err(|error| invalid(error.to_string()))?;
        let storage = &self.shared.storage;
        let written = storage.put(PINS_INFO, bytes, &Expected::Absent);
        check_written(written.map_err(failed)?)
    }

    fn put(&self, bytes: &[u8]) -> Result<(), ReceiveError> {
        let pin = Pin::parse(bytes).map_err(|error| invalid(error.to_string()))?;
        self.check_pin(&pin)?;
        // A lease or a temporary root keeps the path from a collection until the pin is there.
        let lease = self.keep(&pin.path)?;
        let name = pin_object(self.name);
        let _lock = self.shared.lock_name(&name);
        let current = self.current()?;
        self.check_condition(current.as_ref())?;
        let before = self.check_before(current.as_ref())?;
        let own = before.as_ref().filter(|it| it.cache_id == pin.cache_id);
        check_serial(&pin, own.map(|before| before.serial))?;
        self.set_root(Some(&pin.path))?;
        if let Err(error) = self.write(&name, bytes, current) {
            self.set_root(before.map(|before| before.path).as_ref())?;
            return Err(error);
        }
        if matches!(self.shared.destination, Destination::Cache(_)) {
            let name = generation_object(self.name, pin.serial);
            if let Err(error) = self.shared.storage.put(&name, bytes, &Expected::Any) {
                let name = self.name;
                let warn = &self.shared.warn;
                warn(&format!(
                    "cannot record a generation of the pin {name}: {error}"
                ));
            }
        }
        drop(lease);
        Ok(())
    }

    /// Keeps a path from collections. In a cache, the result does so until its end.
    ///
    /// Errors: the path is not here.
    fn keep(&self, path: &StorePath) -> Result<Option<BinaryCacheWriter>, ReceiveError> {
        let shared = self.shared;
        let absent = || conflict(format!("cannot pin {path}: it is not here; push it first"));
        match &shared.destination {
            Destination::Cache(_) => {
                let writer = shared.writer().map_err(failed)?;
                if let Some(cache) = writer.as_inventory() {
                    cache.keep(&[path.hash_part()]).map_err(failed)?;
                }
                let narinfo = format!("{}.narinfo", path.hash_part());
                if !shared.exists(&narinfo) && !shared.is_in_store(path) {
                    return Err(absent());
                }
                Ok(Some(writer))
            }
            Destination::Store(store) => {
                if !store.keep(path)? {
                    return Err(absent());
                }
                Ok(None)
            }
        }
    }

    fn delete(&self) -> Result<(), ReceiveError> {
        let name = pin_object(self.name);
        let _lock = self.shared.lock_name(&name);
        let current = self.current()?;
        if current.is_none() {
            let message = "the cache has no such pin";
            return Err(ReceiveError::new(ReceiveErrorKind::Absent, message));
        }
        self.check_condition(current.as_ref())?;
        self.check_before(current.as_ref())?;
        let deleted = self
            .shared
            .storage
            .delete(&name, &expected_version(current));
        check_written(deleted.map_err(failed)?)?;
        self.set_root(None)
    }

    /// Checks that the login may replace or delete a pin, and returns it if it is not damaged.
    fn check_before(&self, current: Option<&NamedObject>) -> Result<Option<Pin>, ReceiveError> {
        let Some(current) = current else {
            return Ok(None);
        };
        match Pin::parse(&current.contents) {
            Ok(pin) if self.may_push.allows(&pin.path) => Ok(Some(pin)),
            Ok(_) => Err(self.forbidden("it is one of a path that the login may not push")),
            // Its owner is not known.
            Err(_) if !self.may_push.prefixes().is_empty() => {
                Err(self.forbidden("it is damaged, and the login may push only some paths"))
            }
            Err(_) => Ok(None),
        }
    }

    fn forbidden(&self, reason: &str) -> ReceiveError {
        let message = format!("cannot change the pin {}: {reason}", self.name);
        ReceiveError::new(ReceiveErrorKind::Forbidden, message)
    }

    /// Makes a path the one that the root of the pin keeps in the live store.
    fn set_root(&self, path: Option<&StorePath>) -> Result<(), ReceiveError> {
        match (&self.shared.destination, path) {
            (Destination::Cache(_), _) => Ok(()),
            (Destination::Store(store), Some(path)) => {
                store.add_root(&root_of(self.shared, self.name), path)
            }
            (Destination::Store(store), None) => remove_root((self.shared, store), self.name),
        }
    }

    fn check_allowed(&self) -> Result<(), ReceiveError> {
        if self.shared.limits.may_pin {
            return Ok(());
        }
        let message = "cannot change the pins: the server has them from another directory";
        Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message))
    }

    /// Checks what the pin alone and the identifier of the cache show.
    fn check_pin(&self, pin: &Pin) -> Result<(), ReceiveError> {
        if pin.name != self.name {
            return Err(invalid(format!("the pin is that of {}", pin.name)));
        }
        if pin.store_dir != self.shared.store_dir {
            let dir = &self.shared.store_dir;
            return Err(invalid(format!("the pin is not one of a path in {dir}")));
        }
        if pin.signatures.is_empty() {
            return Err(invalid("the pin has no signature"));
        }
        check_name(self.may_push, &pin.path)?;
        let info = self.get(PINS_INFO)?;
        let id = info.and_then(|info| parse_info(&info.contents).ok());
        if id.as_ref() == Some(&pin.cache_id) {
            return Ok(());
        }
        Err(conflict("the pin is one of another cache"))
    }

    fn check_condition(&self, current: Option<&NamedObject>) -> Result<(), ReceiveError> {
        let version = current.and_then(|current| current.version.as_ref());
        let is_met = match self.condition {
            Condition::Any => true,
            Condition::Present => version.is_some(),
            Condition::Absent => version.is_none(),
            Condition::Version(expected) => version == Some(expected),
        };
        if is_met { Ok(()) } else { Err(outdated()) }
    }

    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        current: Option<NamedObject>,
    ) -> Result<(), ReceiveError> {
        let written = self
            .shared
            .storage
            .put(name, bytes, &expected_version(current));
        check_written(written.map_err(failed)?)
    }

    fn current(&self) -> Result<Option<NamedObject>, ReceiveError> {
        self.get(&pin_object(self.name))
    }

    fn get(&self, name: &str) -> Result<Option<NamedObject>, ReceiveError> {
        let names = [name.to_owned()];
        let found = self.shared.storage.get(&names, &Cancel::default()).pop();
        found.transpose().map_err(failed).map(Option::flatten)
    }
}

/// The link that is the root of a pin in the live store.
fn root_of(shared: &Shared, name: &str) -> PathBuf {
    shared.directory.join(ROOTS).join(name)
}

/// Removes the root of a pin, if there is one.
fn remove_root(
    (shared, store): (&Shared, &ReceivingStore),
    name: &str,
) -> Result<(), ReceiveError> {
    let root = root_of(shared, name);
    match fs::read_link(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(target) => {
            let target = target
                .to_str()
                .and_then(|it| shared.store_dir.parse(it).ok());
            match target {
                Some(path) => store.remove_root(&root, &path),
                // Not made by floe, and no root.
                None => Ok(fs::remove_file(&root)?),
            }
        }
    }
}

/// Makes the roots those of the pins, after a server was killed between the two.
///
/// Errors: [`ReceiveError`] of the system.
pub(super) fn repair_roots(shared: &Shared) -> Result<(), ReceiveError> {
    let Destination::Store(store) = &shared.destination else {
        return Ok(());
    };
    let names = |folder: &str| -> io::Result<Vec<String>> {
        let entries = match list_directory(&shared.directory.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_str().map(str::to_owned)));
        let names = names.filter_map(io::Result::transpose);
        names
            .filter(|name| name.as_ref().is_ok_and(|it| is_pin_name(it)))
            .collect()
    };
    let pins = names(PINS_FOLDER)?;
    for name in names(ROOTS)?.iter().filter(|name| !pins.contains(*name)) {
        remove_root((shared, store), name)?;
    }
    for name in &pins {
        let text = fs::read(shared.directory.join(PINS_FOLDER).join(name)).unwrap_or_default();
        let Ok(pin) = Pin::parse(&text) else {
            continue;
        };
        let root = root_of(shared, name);
        let full_path = PathBuf::from(pin.full_path());
        let is_right = fs::read_link(&root).is_ok_and(|target| target == full_path);
        if !is_right && store.keep(&pin.path)? {
            store.add_root(&root, &pin.path)?;
        }
    }
    Ok(())
}

/// The folder with the roots of pins.
const ROOTS: &str = "roots";

/// Checks that the serial number follows that of the pin before, and leaves room for others.
fn check_serial(pin: &Pin, before: Option<u64>) -> Result<(), ReceiveError> {
    if before.is_some_and(|before| pin.serial <= before) {
        let message = "the cache has a newer pin of this name";
        return Err(conflict(message));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let follows = before.is_some_and(|before| pin.serial - before == 1);
    if pin.serial > now.saturating_add(SERIAL_AHEAD_MAX) && !follows {
        return Err(invalid(
            "the serial number of the pin is too great; set the clock of the client",
        ));
    }
    Ok(())
}

fn check_written(written: Written) -> Result<(), ReceiveError> {
    match written {
        Written::Yes => Ok(()),
        Written::Conflict => Err(outdated()),
    }
}

fn outdated() -> ReceiveError {
    let message = "the cache has another version than the client expects";
    ReceiveError::new(ReceiveErrorKind::Outdated, message)
}

/// How far the clock of a client may be ahead, in milliseconds: a day.
const SERIAL_AHEAD_MAX: u64 = 24 * 3600 * 1000;
