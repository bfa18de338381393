//! The name sources of a command: its caches, and its lock file.

use std::path::Path;
use std::sync::Arc;

use floe_names::{LockFile, NameSource, NameSourceUri, PinsUri};
use floe_transfer::StoreConfig;

use super::{PackageNames, package_name};

impl PackageNames<'_> {
    /// Names the caches that the user has chosen, in place of the substituters. Their pins come
    /// before all other names.
    pub(crate) fn set_caches(&mut self, caches: &[Arc<dyn StoreConfig>]) {
        self.caches = caches.to_vec();
        let shown: Vec<String> = caches.iter().map(ToString::to_string).collect();
        self.options.caches = shown.join(" ");
        if self.sources.iter().all(NameSource::is_lock) {
            // The user wants no names, or no others.
            return;
        }
        let pins = caches.iter().filter_map(|cache| {
            let uri = NameSourceUri::Pins(PinsUri::of_cache(&cache.address())?);
            Some(NameSource { alias: None, uri })
        });
        let pins: Vec<NameSource> = pins.collect();
        let first = usize::from(self.lock_file().is_some());
        self.sources.splice(first..first, pins);
    }

    /// Makes the pins of these caches the only source of names, and those that the caches have now.
    /// Returns whether there are any.
    pub(crate) fn use_only_pins(&mut self, caches: &[Arc<dyn StoreConfig>]) -> bool {
        self.caches = caches.to_vec();
        let uris = caches
            .iter()
            .filter_map(|cache| PinsUri::of_cache(&cache.address()));
        let sources = uris.map(|uri| NameSource {
            alias: None,
            uri: NameSourceUri::Pins(PinsUri {
                is_implicit: false,
                ..uri
            }),
        });
        self.sources = sources.collect();
        self.options.pins.uses_seen = false;
        !self.sources.is_empty()
    }

    /// Returns the lock file, which comes before all other sources.
    pub(super) fn lock_file(&self) -> Option<&Path> {
        match &self.sources.first()?.uri {
            NameSourceUri::Lock(path) => Some(path),
            _ => None,
        }
    }

    /// Whether the lock file has a name, or cannot be read, which the user is to know.
    pub(super) fn is_in_lock(&self, text: &str) -> bool {
        let name = package_name(text).map(|name| self.with_source(name));
        let Some((path, name)) = self.lock_file().zip(name) else {
            return false;
        };
        LockFile::read(path).map_or(true, |lock| lock.find(&name).is_some())
    }
}
