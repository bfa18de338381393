//! Reads the configuration file of `floe serve`.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use floe_store::read_regular_file;
use floe_transfer::nearest_name;
use toml::de::DeTable;

use super::ServeSettings;
use crate::error::ConfigError;
use crate::origin::Origin;

impl ServeSettings {
    /// Reads a file, which may have the keys of floe and those of harmonia.
    ///
    /// Errors: [`ConfigError::ServeFileRead`], [`ConfigError::ServeFile`].
    pub fn read(file: &Path) -> Result<ServeSettings, ConfigError> {
        let failed = |source| ConfigError::ServeFileRead {
            file: file.to_owned(),
            source,
        };
        let bytes = read_regular_file(file, FILE_LEN_MAX).map_err(failed)?;
        let text = String::from_utf8(bytes)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        ServeSettings::parse(file, &text)
    }

    pub(super) fn parse(file: &Path, text: &str) -> Result<ServeSettings, ConfigError> {
        let path: Arc<Path> = file.into();
        let origin = |place: Range<usize>| {
            let before = text.as_bytes().iter().take(place.start);
            Origin::File {
                path: path.clone(),
                line: 1 + before.filter(|byte| **byte == b'\n').count(),
            }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().unwrap_or_default();
            let reason = error.message().replace('\n', "; ");
            ConfigError::ServeFile {
                at: origin(place.clone()).to_string(),
                // The parser names the key only by its place.
                reason: match text.get(place) {
                    Some(key) if reason == "duplicate key" => format!("{key}: {reason}"),
                    _ => reason,
                },
            }
        })?;
        let mut settings = ServeSettings::default();
        for (key, value) in table.get_ref() {
            let (origin, key) = (origin(key.span()), key.get_ref());
            let mut entries = settings.entries();
            let Some(entry) = entries.iter_mut().find(|entry| entry.key == *key) else {
                let nearest = nearest_name(key, entries.iter().map(|entry| entry.key));
                return Err(unknown_key(key, nearest, &origin));
            };
            let read = entry.setting.set_toml(value.get_ref(), origin.clone());
            read.map_err(|reason| ConfigError::ServeFile {
                at: origin.to_string(),
                reason: format!("{key}: {reason}"),
            })?;
        }
        settings.check_exclusions()?;
        settings.translate_harmonia_keys()?;
        // Report invalid values even if a flag will replace them.
        settings.harmonia_store()?;
        Ok(settings)
    }

    /// Checks that no two keys name the same setting.
    fn check_exclusions(&mut self) -> Result<(), ConfigError> {
        let entries = self.entries();
        let place = |key: &str| {
            let entry = entries.iter().find(|entry| entry.key == key)?;
            entry.setting.all_origins().first()
        };
        for entry in &entries {
            let Some(own) = entry.setting.all_origins().first() else {
                continue;
            };
            for other in entry.option.excludes {
                if let Some(place) = place(other) {
                    return Err(ConfigError::ServeFile {
                        at: own.to_string(),
                        reason: format!(
                            "{} and {other} ({place}) exclude each other; remove one of them",
                            entry.key
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}

fn unknown_key(key: &str, nearest: Option<&str>, origin: &Origin) -> ConfigError {
    // A key may contain anything, and a message is one line.
    let key = key.escape_debug();
    let fix = nearest.map_or(
        "floe serve --print-config prints all keys".to_owned(),
        |key| format!("use {key}"),
    );
    ConfigError::ServeFile {
        at: origin.to_string(),
        reason: format!("unknown key {key}; {fix}"),
    }
}

/// The largest file in bytes. Larger files are surely mistakes.
const FILE_LEN_MAX: u64 = 1024 * 1024;
