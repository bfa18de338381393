//! The options of a binary cache as a target.

use std::path::PathBuf;

use floe_format::Compression;
use floe_format::lease::LIFETIME_MAX;
use floe_transfer::store_uri::{absolute, parse_number};
use floe_transfer::{StoreUri, UriContext};

use crate::binary_cache::CacheOptions;
use crate::uri_parameter::UriParameter;

/// The options of a binary cache as a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWriteOptions {
    /// The compression of NARs (`compression`). Nix's default is xz.
    pub compression: Compression,
    /// The level of the compression (`compression-level`); each compression has a default.
    pub level: Option<i32>,
    /// Whether idle cores compress parts of a large NAR (`parallel-compression`). Only zstd and
    /// xz bodies have such parts.
    pub parallel_compression: bool,
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
    /// Whether the target reads the narinfo of each path that it has, and does not trust a list.
    pub check: bool,
    /// For how many seconds the lease of the target counts after each renewal (`lease-lifetime`).
    pub lease_lifetime: u32,
}

impl CacheWriteOptions {
    /// Sets the option that a parameter of a store URI names.
    pub(crate) fn visit(&mut self, parameter: &mut UriParameter<'_>) -> Result<(), String> {
        parameter.parsed("compression", &mut self.compression, parse_compression)?;
        parameter.parsed("compression-level", &mut self.level, |name, value| {
            let level = parse_number(name, value)?;
            Ok((level != -1).then_some(level))
        })?;
        parameter.on(SECRET_KEY, |value| {
            self.secret_keys.push(absolute(value)?);
            Ok(())
        })?;
        parameter.on(SECRET_KEYS, |value| {
            for file in value.split(',').filter(|file| !file.is_empty()) {
                self.secret_keys.push(absolute(file)?);
            }
            Ok(())
        })?;
        parameter.parsed("lease-lifetime", &mut self.lease_lifetime, parse_lifetime)?;
        parameter.bool("parallel-compression", &mut self.parallel_compression)?;
        parameter.bool("index-debug-info", &mut self.index_debug_info)?;
        parameter.bool("write-nar-listing", &mut self.write_listings)
    }

    /// Makes the options of a URI before its parameters, from the defaults of the caller.
    pub(crate) fn defaults(uri: &StoreUri, context: &UriContext) -> CacheWriteOptions {
        let default = CacheWriteOptions::default();
        let mut names = uri.parameters.iter().map(|(name, _)| name.as_str());
        CacheWriteOptions {
            compression: context.compression.unwrap_or(default.compression),
            secret_keys: if names.any(|name| [SECRET_KEY, SECRET_KEYS].contains(&name)) {
                Vec::new()
            } else {
                context.secret_keys.clone()
            },
            check: context.check_present,
            ..default
        }
    }

    /// Completes the options after the parameters. Takes the options that a new cache tells its
    /// clients from those of the cache as a source.
    pub(crate) fn complete(&mut self, options: &CacheOptions, context: &UriContext) {
        let keys = context.further_secret_keys.iter().cloned();
        self.secret_keys.extend(keys);
        self.priority = options.priority;
        self.want_mass_query = options.want_mass_query.unwrap_or(self.want_mass_query);
    }

    /// Whether the target needs the names of the files of each path.
    pub(super) fn needs_tree(&self) -> bool {
        self.write_listings || self.index_debug_info
    }
}

/// The parameters that name files of keys.
const SECRET_KEY: &str = "secret-key";
const SECRET_KEYS: &str = "secret-keys";

/// Parses the lifetime of a lease in seconds.
fn parse_lifetime(name: &str, value: &str) -> Result<u32, String> {
    let seconds = value.parse().ok();
    let seconds = seconds.filter(|seconds| (LIFETIME_MIN..=LIFETIME_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        format!("{name} is not a number of seconds from {LIFETIME_MIN} to {LIFETIME_MAX}")
    })
}

/// The shortest lifetime of a lease in seconds. A writer renews its lease 15 times in it.
const LIFETIME_MIN: u32 = 3;

/// The lifetime of a lease that no URI sets, in seconds.
const LIFETIME: u32 = 15 * 60;

/// Parses the name of a compression that floe writes.
fn parse_compression(_: &str, value: &str) -> Result<Compression, String> {
    let compression = Compression::parse(value).map_err(|error| error.to_string())?;
    match compression {
        Compression::Lzma | Compression::Unsupported(_) => {
            Err(format!("floe does not write the compression {value}"))
        }
        compression => Ok(compression),
    }
}

impl Default for CacheWriteOptions {
    fn default() -> CacheWriteOptions {
        CacheWriteOptions {
            compression: Compression::Xz,
            level: None,
            secret_keys: Vec::new(),
            parallel_compression: true,
            write_listings: false,
            index_debug_info: false,
            want_mass_query: true,
            priority: None,
            check: false,
            lease_lifetime: LIFETIME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileCacheUri;

    #[test]
    fn uri_overrides_the_defaults_of_the_caller() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let context = UriContext {
            compression: Some(Compression::Zstd),
            secret_keys: paths(&["/a b&c"]),
            ..UriContext::default()
        };
        let further = UriContext {
            further_secret_keys: paths(&["/f"]),
            ..UriContext::default()
        };
        for (uri, context, compression, keys) in [
            ("file:///c", &context, Compression::Zstd, &["/a b&c"][..]),
            (
                "file:///c?compression=none",
                &context,
                Compression::None,
                &["/a b&c"],
            ),
            (
                "file:///c?secret-key=/k",
                &context,
                Compression::Zstd,
                &["/k"],
            ),
            ("file:///c?secret-keys=", &context, Compression::Zstd, &[]),
            (
                "file:///c?secret-keys=/k,/l",
                &further,
                Compression::Xz,
                &["/k", "/l", "/f"],
            ),
        ] {
            let parsed = FileCacheUri::parse(&StoreUri::parse(uri).unwrap(), context);
            let options = parsed.unwrap().write;
            assert_eq!(options.compression, compression, "{uri}");
            assert_eq!(options.secret_keys, paths(keys), "{uri}");
        }
    }
}
