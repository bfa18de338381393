//! `floe serve`: serves a live store as a binary cache over HTTP.

pub(super) mod access_log;
mod check;
pub(super) mod identity;
pub(super) mod limits;
mod pid_file;
pub(super) mod process;
mod signals;

use std::path::{Path, PathBuf};

use floe_config::{ConfigError, Environment, HarmoniaSettings, StoreFlags, served_store};
use floe_server::{Compress, CompressedCacheOptions, Config, Listen};

use crate::args::{AccessLogFormat, CompressMode, ServeArgs};
use crate::display::warn;
use crate::exit::UsageError;
use crate::messages::serve as messages;
use crate::open_files;
use crate::options;
use process::ProcessOptions;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let mut config = config(args)?;
    if args.check {
        return check::run(args, config);
    }
    config.access_log = access_log::open(log_format(args), args.access_log.as_deref())?;
    process::run(config, &ProcessOptions::default())
}

/// Returns the configuration without the access log: flags override the environment, and both
/// override harmonia's file.
fn config(args: &ServeArgs) -> anyhow::Result<Config> {
    let file = match &args.config {
        // An empty CONFIG_FILE counts as unset.
        Some(file) if !file.as_os_str().is_empty() => read_harmonia_settings(file)?,
        _ => HarmoniaSettings::default(),
    };
    let max_bytes = args.compressed_cache_size.unwrap_or(COMPRESSED_CACHE_BYTES);
    let compressed_cache = args.compressed_cache.clone();
    let compressed_cache = compressed_cache.map(|dir| CompressedCacheOptions { dir, max_bytes });
    let environment = options::environment();
    let flags = StoreFlags {
        root: args.root.as_deref(),
        store: args.store.as_deref(),
        store_dir: args.store_dir.as_deref(),
    };
    let store = served_store(&flags, &file, &environment)?;
    options::warn_of_ignored(&store.ignored_parameters);
    let open_files = open_files::raise();
    let connections = args.max_connections.map(usize::from);
    let connections = connections.or(file.connections());
    let has_cache = compressed_cache.is_some();
    let compress = compress(args.compress, file.enable_compression, has_cache)?;
    let secret_keys = process::secret_keys(&key_files(args, &file, &environment)?, &environment)?;
    let mut config = Config::new(store.layout, addresses(args, &file)?);
    let keep_alive_timeout = args.keepalive_timeout;
    config.log_dir = store.log_dir;
    config.secret_keys = secret_keys;
    config.priority = args.priority.or(file.priority).unwrap_or(config.priority);
    config.compress = compress;
    config.compressed_cache = compressed_cache;
    config.threads = args.threads.or(file.threads()).unwrap_or(config.threads);
    config.connections_max = limits::connections(connections, open_files);
    config.keep_alive_timeout = keep_alive_timeout.unwrap_or(config.keep_alive_timeout);
    config.read_timeout = args.read_timeout.unwrap_or(config.read_timeout);
    config.write_timeout = args.timeout.unwrap_or(config.write_timeout);
    config.warn = process::warning_sink();
    limits::check_open_files(&config, open_files)?;
    Ok(config)
}

/// Returns the format of the access log, which is off without a flag.
fn log_format(args: &ServeArgs) -> AccessLogFormat {
    match (&args.access_log, args.access_log_format) {
        (None, None) => AccessLogFormat::Quiet,
        (_, format) => format.unwrap_or_default(),
    }
}

/// Reads harmonia's settings, and warns of those without effect.
fn read_harmonia_settings(file: &Path) -> anyhow::Result<HarmoniaSettings> {
    let settings = HarmoniaSettings::read(file)?;
    settings.warnings().into_iter().for_each(warn);
    Ok(settings)
}

/// Returns the addresses of the flags, else that of the file, else port 5000 of all addresses.
fn addresses(args: &ServeArgs, file: &HarmoniaSettings) -> Result<Vec<Listen>, ConfigError> {
    let mut addresses = args.listen.clone();
    addresses.extend(args.socket.clone().map(Listen::Unix));
    let by_parts = args.host.is_some() || args.port.is_some();
    if !by_parts && addresses.is_empty() {
        addresses.extend(file.listen()?);
    }
    if by_parts || addresses.is_empty() {
        addresses.push(Listen::Tcp {
            host: floe_server::address::parse_host(args.host.as_deref().unwrap_or_default()),
            port: args.port.unwrap_or(process::PORT),
        });
    }
    Ok(addresses)
}

/// Returns the key files of the flags, else those of the environment and the file together, as in
/// harmonia.
fn key_files(
    args: &ServeArgs,
    file: &HarmoniaSettings,
    environment: &Environment,
) -> Result<Vec<PathBuf>, ConfigError> {
    if !args.secret_key_file.is_empty() {
        return Ok(args.secret_key_file.clone());
    }
    let mut files: Vec<PathBuf> = file.secret_key_files().cloned().collect();
    files.extend(environment.secret_key_file());
    files.extend(environment.harmonia_key_files()?);
    Ok(files)
}

/// Decides about compression.
///
/// harmonia's `enable_compression` compresses anew for each client. floe does so only for an
/// explicit `--compress always`.
fn compress(
    flag: Option<CompressMode>,
    in_file: Option<bool>,
    has_compressed_cache: bool,
) -> Result<Compress, UsageError> {
    match (flag, in_file) {
        (Some(CompressMode::Off), _) | (None, Some(false)) => Ok(Compress::Off),
        (Some(CompressMode::Always), _) => Ok(Compress::Always),
        (Some(CompressMode::Cached), _) if !has_compressed_cache => {
            Err(UsageError(messages::CACHED_WITHOUT_SIDE_CACHE.into()))
        }
        (Some(CompressMode::Cached), _) => Ok(Compress::Cached),
        (None, _) if has_compressed_cache => Ok(Compress::Cached),
        (None, Some(true)) => {
            warn(messages::COMPRESSION_WITHOUT_SIDE_CACHE);
            Ok(Compress::Off)
        }
        (None, None) => Ok(Compress::Off),
    }
}

/// The default size of the compressed NAR cache: about six compressed desktop systems.
const COMPRESSED_CACHE_BYTES: u64 = 10 << 30;

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn port_alone_keeps_the_default_address() {
        for (line, expected) in [
            (&[][..], &["*:5000"][..]),
            (&["-p", "80"], &["*:80"]),
            (&["--host", "::1", "-p", "80"], &["[::1]:80"]),
            (&["--host", "localhost"], &["localhost:5000"]),
            (&["-p", "80", "--socket", "/s"], &["unix:/s", "*:80"]),
            (&["-l", ":81", "--socket", "/s"], &["*:81", "unix:/s"]),
        ] {
            let line = ["floe", "serve"].iter().chain(line);
            let Command::Serve(args) = Cli::parse_from(line).command else {
                panic!("another command");
            };
            let found = addresses(&args, &HarmoniaSettings::default()).unwrap();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn compression_is_off_without_flag_and_compressed_cache() {
        for (flag, in_file, has_compressed_cache, expected) in [
            (None, None, false, Compress::Off),
            (None, None, true, Compress::Cached),
            (None, Some(true), false, Compress::Off),
            (None, Some(true), true, Compress::Cached),
            (None, Some(false), true, Compress::Off),
            (
                Some(CompressMode::Always),
                Some(false),
                false,
                Compress::Always,
            ),
            (Some(CompressMode::Off), Some(true), true, Compress::Off),
        ] {
            let found = compress(flag, in_file, has_compressed_cache).unwrap();
            assert_eq!(
                found, expected,
                "{flag:?} {in_file:?} {has_compressed_cache}"
            );
        }
        let message = compress(Some(CompressMode::Cached), None, false).unwrap_err();
        assert!(message.0.contains("--compressed-cache"));
    }
}
