//! The options of a binary cache as a target.

use std::path::PathBuf;

use floe_format::Compression;
use floe_transfer::store_uri::{absolute, parse_bool, parse_number};

use crate::binary_cache::CacheOptions;

/// The options of a binary cache as a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWriteOptions {
    /// The compression of NARs (`compression`). Nix's default is xz.
    pub compression: Compression,
    /// The level of the compression (`compression-level`); each compression has a default.
    pub level: Option<i32>,
    /// The files of the keys that sign narinfos (`secret-key`, `secret-keys`).
    pub secret_keys: Vec<PathBuf>,
    /// Whether the target writes a listing for each path (`write-nar-listing`).
    pub write_listings: bool,
    /// Whether the target writes a link for each file of debug information (`index-debug-info`).
    pub index_debug_info: bool,
    /// Whether a new cache tells clients that they may send many queries at once
    /// (`want-mass-query`).
    pub want_mass_query: bool,
    /// The priority that a new cache tells clients (`priority`).
    pub priority: Option<i32>,
}

impl CacheWriteOptions {
    /// Sets the option that a parameter names. Returns `false` if it names none.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "compression" => {
                let compression = Compression::parse(value).map_err(|error| error.to_string())?;
                if matches!(compression, Compression::Lzma | Compression::Unsupported(_)) {
                    return Err(format!("floe does not write the compression {value}"));
                }
                self.compression = compression;
            }
            "compression-level" => {
                let level = parse_number(name, value)?;
                self.level = (level != -1).then_some(level);
            }
            "secret-key" => self.secret_keys.push(absolute(value)?),
            "secret-keys" => {
                for file in value.split(',').filter(|file| !file.is_empty()) {
                    self.secret_keys.push(absolute(file)?);
                }
            }
            "index-debug-info" => self.index_debug_info = parse_bool(name, value)?,
            "write-nar-listing" => self.write_listings = parse_bool(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes the options that a new cache tells its clients from those of the cache as a source.
    pub(crate) fn adopt(&mut self, options: &CacheOptions) {
        self.priority = options.priority;
        self.want_mass_query = options.want_mass_query.unwrap_or(self.want_mass_query);
    }

    /// Whether the target needs the names of the files of each path.
    pub(super) fn needs_tree(&self) -> bool {
        self.write_listings || self.index_debug_info
    }
}

impl Default for CacheWriteOptions {
    fn default() -> CacheWriteOptions {
        CacheWriteOptions {
            compression: Compression::Xz,
            level: None,
            secret_keys: Vec::new(),
            write_listings: false,
            index_debug_info: false,
            want_mass_query: true,
            priority: None,
        }
    }
}
