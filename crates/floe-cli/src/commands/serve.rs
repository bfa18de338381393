//! `floe serve`: serves a live store as a binary cache over HTTP.

pub(super) mod access_log;
pub(super) mod args;
mod auth;
mod check;
pub(super) mod identity;
pub(super) mod limits;
pub(crate) mod messages;
pub(crate) mod page;
mod pid_file;
pub(super) mod process;
mod receive;
mod receive_options;
mod reload;
pub(super) mod service_manager;
mod settings;
mod signals;
pub(super) mod warnings;

use std::path::PathBuf;

use floe_config::{AccessLogFormat, Environment, ServeSettings, secret_key_warnings};
use floe_server::{CertificateFiles, CompressedCacheOptions, Config, TlsOptions};

use crate::display::warn;
use crate::exit::UsageError;
use crate::open_files;
use crate::options;
use crate::stdout::print;
use args::ServeArgs;
use auth::args::ServeCommand;
use process::ProcessOptions;
use receive_options::ReceivePlace;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    if let Some(ServeCommand::Auth(command)) = &args.command {
        return auth::run(command);
    }
    let environment = options::environment();
    let open_files = open_files::raise();
    let settings = settings::load(args, &environment, open_files)?;
    if args.print_config {
        // A store that cannot be served is an error, as it is at the start of the server.
        settings.served_store(&environment)?;
        return print(settings.to_toml(&environment)?.trim_end());
    }
    let mut config = config(&settings, &environment, args.check)?;
    limits::check_open_files(&config, open_files)?;
    if args.check {
        return check::run(&settings, config);
    }
    let format = settings.access_log_format.value_or(AccessLogFormat::Quiet);
    let file = settings.access_log.value().map(PathBuf::as_path);
    config.access_log = access_log::open(format, file)?;
    config.passed_sockets = service_manager::take_sockets()?;
    let process = ProcessOptions {
        has_default_address: settings.has_default_address() && config.passed_sockets.is_empty(),
        ..ProcessOptions::default()
    };
    let origin = reload::Origin {
        args: args.clone(),
        environment,
        open_files,
    };
    process::run(config, &process, |server, log| {
        reload::task(origin, settings, (server, log))
    })
}

/// Returns the configuration without the access log.
///
/// A check makes no cache for uploads.
fn config(
    settings: &ServeSettings,
    environment: &Environment,
    is_check: bool,
) -> anyhow::Result<Config> {
    let store = settings.served_store(environment)?;
    crate::store_choice::warn_of_ignored(&store.ignored_parameters);
    let secret_keys = process::secret_keys(&settings.secret_key_files(), environment)?;
    let mut config = Config::new(store.layout, Vec::new());
    settings.fill(&mut config);
    config.tls = tls(settings)?;
    let tls_keys = settings.tls_key.value_or(Vec::new());
    secret_key_warnings(&tls_keys, environment)
        .iter()
        .for_each(warn);
    config.log_dir = store.log_dir;
    config.secret_keys = secret_keys;
    let cache = settings.compressed_cache.value();
    let cache = cache.zip(settings.compressed_cache_size.value());
    config.compressed_cache = cache.map(|(dir, size)| CompressedCacheOptions {
        dir: dir.clone(),
        max_bytes: size.0,
    });
    config.warn = warnings::warning_sink();
    let requires_signatures = store.requires_signatures;
    config.receiver = receive_options::open((settings, &config), requires_signatures, is_check)?;
    if config.receiver.is_some() && config.pins.is_none() {
        config.pins = ReceivePlace::of(settings).map(|place| place.directory().to_owned());
    }
    Ok(config)
}

/// Returns the files for TLS.
fn tls(settings: &ServeSettings) -> Result<Option<TlsOptions>, UsageError> {
    let certificates = settings.tls_cert.value_or(Vec::new());
    let keys = settings.tls_key.value_or(Vec::new());
    let client_ca = settings.tls_client_ca.value().cloned();
    if certificates.len() != keys.len() {
        return Err(UsageError(messages::TLS_PAIRS.into()));
    }
    if certificates.is_empty() && client_ca.is_some() {
        return Err(UsageError(messages::CLIENT_CA_ALONE.into()));
    }
    if certificates.is_empty() {
        return Ok(None);
    }
    let pairs = certificates.into_iter().zip(keys);
    let certificates = pairs.map(|(certificate, key)| CertificateFiles { certificate, key });
    Ok(Some(TlsOptions {
        certificates: certificates.collect(),
        client_ca,
        accepts_invalid_now: true,
    }))
}
