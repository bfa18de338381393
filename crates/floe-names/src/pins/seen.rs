//! The pins that this machine has seen: a cache must not show older ones later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use floe_format::pin::Pin;
use serde::{Deserialize, Serialize};

use crate::cache_file::{now, replace};

/// The newest pin of each name that was seen, in a file.
///
/// Unlike a cache file, its loss has a price: an old pin would be accepted again.
#[derive(Clone, Debug, Default)]
pub struct SeenPins {
    /// `None` if the user has no place for it.
    file: Option<PathBuf>,
    caches: BTreeMap<String, SeenCache>,
    /// The names whose pins are new, by cache.
    changed: BTreeSet<(String, String)>,
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
    ///
    /// Errors: the file is there and cannot be used.
    pub fn open(file: Option<PathBuf>) -> io::Result<SeenPins> {
        let contents = match &file {
            Some(file) => read(file)?,
            None => Contents::default(),
        };
        Ok(SeenPins {
            file,
            caches: contents.caches,
            changed: BTreeSet::new(),
        })
    }

    /// Returns the newest pin of a name.
    pub fn find(&self, cache: &str, name: &str) -> Option<&SeenPin> {
        self.caches.get(cache)?.pins.get(name)
    }

    /// Returns the identifier of a cache.
    pub fn cache_id(&self, cache: &str) -> Option<&str> {
        Some(&self.caches.get(cache)?.id)
    }

    /// Records a pin that passed all checks.
    pub fn record(&mut self, cache: &str, pin: &Pin) {
        let seen = self.caches.entry(cache.to_owned()).or_default();
        if seen.id != pin.cache_id {
            // The user has allowed another cache at this address. Its serial numbers are its own.
            seen.id.clone_from(&pin.cache_id);
            seen.pins.clear();
        }
        let new = SeenPin {
            serial: pin.serial,
            path: pin.full_path(),
            time: pin.time,
            seen_at: now(),
        };
        seen.pins.insert(pin.name.clone(), new);
        self.changed.insert((cache.to_owned(), pin.name.clone()));
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
        let lock = File::open(directory)?;
        lock.lock()?;
        let mut contents = read(file)?;
        for (cache, name) in &self.changed {
            let own = &self.caches[cache];
            let written = contents.caches.entry(cache.clone()).or_default();
            if written.id != own.id {
                written.id.clone_from(&own.id);
                written.pins.clear();
            }
            written.pins.insert(name.clone(), own.pins[name].clone());
        }
        contents.version = VERSION;
        let text = serde_json::to_vec_pretty(&contents).map_err(io::Error::other)?;
        replace(file, &[&text]).ok_or_else(|| {
            let place = directory.display();
            io::Error::other(format!("cannot write a file in {place}"))
        })?;
        self.changed.clear();
        Ok(())
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
