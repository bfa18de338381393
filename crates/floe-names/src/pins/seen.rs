//! The pins that this machine has seen: a cache must not show older ones later.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::pin::Pin;
use floe_store::open_lock_file;
use serde::{Deserialize, Serialize};

use crate::cache_file::{now, replace_synced};

/// The newest pin of each name that was seen, in a file.
///
/// Unlike a cache file, its loss has a price: an old pin would be accepted again.
#[derive(Clone, Debug, Default)]
pub struct SeenPins {
    /// `None` if the user has no place for it.
    file: Option<PathBuf>,
    caches: BTreeMap<String, SeenCache>,
    /// The names whose pins are new, by cache, and whether an older pin may take the place of a
    /// newer one.
    changed: BTreeMap<(String, String), bool>,
    /// Why the file, which is there, cannot be used.
    damage: Option<String>,
}

/// A pin that was seen and verified.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct SeenPin {
    /// The serial number.
    pub serial: u64,
    /// The path with its store directory.
    pub path: String,
    /// When the pin was made, in seconds since 1970.
    pub time: u64,
    /// When the cache has sent it last, in seconds since 1970.
    pub seen_at: u64,
    /// Whether the cache has no pin of this name any more, and the user has accepted that. The
    /// serial number still counts.
    #[serde(default)]
    pub is_withdrawn: bool,
}

/// The pins of a cache that were seen.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SeenCache {
    id: String,
    pins: BTreeMap<String, SeenPin>,
}

/// The contents of the file.
#[derive(Default, Deserialize, Serialize)]
struct Contents {
    version: u32,
    caches: BTreeMap<String, SeenCache>,
}

impl SeenPins {
    /// Reads the file. `None` means that nothing is remembered.
    pub fn open(file: Option<PathBuf>) -> SeenPins {
        let contents = file
            .as_deref()
            .map_or_else(|| Ok(Contents::default()), read);
        let place = file.as_deref().unwrap_or(Path::new("")).display();
        let damage = contents.as_ref().err();
        let damage = damage.map(|error| {
            format!(
                "cannot read {place}, the pins that this machine has seen: {error}; without it an \
                 old pin would be accepted"
            )
        });
        SeenPins {
            caches: contents.unwrap_or_default().caches,
            changed: BTreeMap::new(),
            damage,
            file,
        }
    }

    /// Returns why the file cannot be used. Then no pin can be checked.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Whether there are pins that [`SeenPins::save`] has to write.
    pub fn has_unsaved(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the newest pin of a name, unless it was withdrawn.
    pub(crate) fn current(&self, cache: &str, name: &str) -> Option<&SeenPin> {
        self.find(cache, name).filter(|seen| !seen.is_withdrawn)
    }

    /// Returns the newest pin of a name.
    pub fn find(&self, cache: &str, name: &str) -> Option<&SeenPin> {
        self.caches.get(cache)?.pins.get(name)
    }

    /// Returns the identifier of a cache.
    pub fn cache_id(&self, cache: &str) -> Option<&str> {
        Some(&self.caches.get(cache)?.id)
    }

    /// Records a pin that passed all checks. `allows_downgrade` tells whether it may be older than
    /// one that another process has seen.
    pub fn record(&mut self, cache: &str, pin: &Pin, allows_downgrade: bool) {
        let seen = self.caches.entry(cache.to_owned()).or_default();
        if seen.id != pin.cache_id {
            // The user has allowed another cache at this address. Its serial numbers are its own.
            seen.id.clone_from(&pin.cache_id);
            seen.pins.clear();
            self.changed.retain(|(changed, _), _| changed != cache);
        }
        let new = SeenPin {
            serial: pin.serial,
            path: pin.full_path(),
            time: pin.time,
            seen_at: now(),
            is_withdrawn: false,
        };
        seen.pins.insert(pin.name.clone(), new);
        let key = (cache.to_owned(), pin.name.clone());
        self.changed.insert(key, allows_downgrade);
    }

    /// Records that a cache has no pin of this name any more, and that the user accepts it.
    pub(crate) fn record_withdrawal(&mut self, cache: &str, name: &str) {
        let seen = self.caches.get_mut(cache);
        if let Some(seen) = seen.and_then(|seen| seen.pins.get_mut(name)) {
            seen.is_withdrawn = true;
            let key = (cache.to_owned(), name.to_owned());
            self.changed.insert(key, true);
        }
    }

    /// Writes the new pins to the file.
    ///
    /// Errors: the file cannot be written; an old pin could be accepted later.
    pub fn save(&mut self) -> io::Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Err(io::Error::other("the environment names no home directory"));
        };
        let directory = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        // Another process may have seen other pins.
        let lock = open_lock_file(&file.with_extension("lock")).map_err(io::Error::other)?;
        lock.lock()?;
        let mut contents = read(file)?;
        for ((cache, name), allows_downgrade) in &self.changed {
            let Some((id, pin)) = self.of_cache(cache, name) else {
                continue;
            };
            let written = contents.caches.entry(cache.clone()).or_default();
            if written.id != id {
                if !written.id.is_empty() && !allows_downgrade {
                    // The user has allowed the other cache in another process.
                    continue;
                }
                id.clone_into(&mut written.id);
                written.pins.clear();
            }
            let newer = written.pins.get(name);
            let newer = newer.filter(|newer| newer.serial > pin.serial);
            if newer.is_some() && !allows_downgrade {
                continue;
            }
            written.pins.insert(name.clone(), pin.clone());
        }
        contents.version = VERSION;
        let text = serde_json::to_vec_pretty(&contents).map_err(io::Error::other)?;
        replace_synced(file, &[&text])?;
        self.changed.clear();
        Ok(())
    }

    fn of_cache(&self, cache: &str, name: &str) -> Option<(&str, &SeenPin)> {
        let cache = self.caches.get(cache)?;
        Some((&cache.id, cache.pins.get(name)?))
    }
}

fn read(file: &Path) -> io::Result<Contents> {
    let text = match fs::read(file) {
        Err(error) if is_absent(&error) => return Ok(Contents::default()),
        text => text?,
    };
    let contents: Contents = serde_json::from_slice(&text)?;
    if contents.version != VERSION {
        return Err(io::Error::other("another version of floe has written it"));
    }
    Ok(contents)
}

/// Whether there is no file. Another user may have none of its directories.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    [NotFound, NotADirectory].contains(&error.kind())
}

/// The version of the format of the file.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use floe_format::{StoreDir, StorePath};

    use super::*;

    fn pin(serial: u64) -> Pin {
        Pin {
            name: "web".into(),
            store_dir: StoreDir::default(),
            path: StorePath::parse(&format!("{}-web", "0".repeat(32))).unwrap(),
            cache_id: "a".repeat(32),
            serial,
            time: 0,
            signatures: Default::default(),
        }
    }

    fn other_cache(pin: Pin) -> Pin {
        Pin {
            cache_id: "b".repeat(32),
            ..pin
        }
    }

    #[test]
    fn last_identifier_of_a_cache_is_saved() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pins.json");
        let mut seen = SeenPins::open(Some(file.clone()));
        seen.record("c", &pin(1), true);
        let api = Pin {
            name: "api".into(),
            ..other_cache(pin(2))
        };
        seen.record("c", &api, true);
        seen.save().unwrap();
        let saved = SeenPins::open(Some(file));
        assert_eq!(saved.find("c", "web"), None);
        assert_eq!(saved.find("c", "api").unwrap().serial, 2);
    }

    #[test]
    fn withdrawn_pin_is_remembered_for_its_serial_number_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pins.json");
        let mut seen = SeenPins::open(Some(file.clone()));
        seen.record("c", &pin(7), false);
        seen.record_withdrawal("c", "web");
        seen.save().unwrap();
        let mut seen = SeenPins::open(Some(file));
        assert_eq!(seen.current("c", "web"), None);
        assert_eq!(seen.find("c", "web").unwrap().serial, 7);
        seen.record("c", &pin(8), false);
        assert_eq!(seen.current("c", "web").unwrap().serial, 8);
    }

    #[test]
    fn older_pin_of_another_process_does_not_replace_a_newer_one() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("state/pins.json");
        let open = || SeenPins::open(Some(file.clone()));
        let (mut first, mut second) = (open(), open());
        second.record("c", &pin(7), false);
        second.save().unwrap();
        first.record("c", &pin(5), false);
        first.save().unwrap();
        assert_eq!(open().find("c", "web").unwrap().serial, 7);
        first.record("c", &pin(6), true);
        first.save().unwrap();
        assert_eq!(open().find("c", "web").unwrap().serial, 6);
        second.record("c", &other_cache(pin(9)), true);
        second.save().unwrap();
        // Only this process has been told that the cache is another one.
        first.record("c", &pin(8), false);
        first.save().unwrap();
        assert_eq!(open().cache_id("c"), Some(&*"b".repeat(32)));
        assert_eq!(open().find("c", "web").unwrap().serial, 9);
        fs::write(&file, "{").unwrap();
        assert!(SeenPins::open(Some(file)).damage().is_some());
        let mut nowhere = SeenPins::open(Some("/dev/null/x/pins.json".into()));
        nowhere.record("c", &pin(1), false);
        assert!(nowhere.save().is_err());
    }
}
