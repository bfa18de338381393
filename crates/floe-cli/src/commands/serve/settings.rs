//! The settings of `floe serve`: the configuration file, the environment and the flags.

use std::num::NonZeroUsize;

use floe_config::{Environment, ServeSettings, StderrFormat};

use super::args::ServeArgs;
use super::limits;
use crate::args::LogFormat;
use crate::display::{set_json, warn};

/// Returns the effective settings, and prints their warnings. The limit of open files bounds the
/// number of connections.
pub(super) fn load(
    args: &ServeArgs,
    environment: &Environment,
    open_files: Option<u64>,
) -> anyhow::Result<ServeSettings> {
    let mut settings = match &args.config {
        Some(file) if !file.as_os_str().is_empty() => ServeSettings::read(file)?,
        _ => ServeSettings::default(),
    };
    set_flags(&mut settings, args);
    // Errors and warnings about the other settings have this format too.
    if settings.log_format.get() == Some(&StderrFormat::Json) {
        set_json();
    }
    let mut settings = settings.resolve(environment)?;
    let connections = settings.max_connections_total.get().map(|it| it.get());
    if let Some(fit) = NonZeroUsize::new(limits::connections(connections, open_files)) {
        settings.max_connections_total.limit(fit);
    }
    settings.warnings().iter().for_each(warn);
    Ok(settings)
}

#[rustfmt::skip]
fn set_flags(settings: &mut ServeSettings, args: &ServeArgs) {
    let args = args.clone();
    let log_format = args.log.log_format.map(|format| match format {
        LogFormat::Text => StderrFormat::Text,
        LogFormat::Json => StderrFormat::Json,
    });
    settings.listen.set_flag("--listen", list(args.listen));
    settings.host.set_flag("--host", args.host);
    settings.port.set_flag("--port", args.port);
    settings.socket.set_flag("--socket", args.socket);
    settings.metrics_listen.set_flag("--metrics-listen", list(args.metrics_listen));
    settings.trusted_proxy.set_flag("--trusted-proxy", list(args.trusted_proxy));
    let proxy_protocol = args.proxy_protocol.then_some(true);
    settings.proxy_protocol.set_flag("--proxy-protocol", proxy_protocol);
    settings.tls_cert.set_flag("--tls-cert", list(args.tls_cert));
    settings.tls_key.set_flag("--tls-key", list(args.tls_key));
    settings.tls_client_ca.set_flag("--tls-client-ca", args.tls_client_ca);
    settings.store.set_flag("--store", args.store);
    settings.root.set_flag("--root", args.root);
    settings.store_dir.set_flag("--store-dir", args.store_dir);
    settings.secret_key_file.set_flag("--secret-key-file", list(args.secret_key_file));
    settings.priority.set_flag("--priority", args.priority);
    settings.compress.set_flag("--compress", args.compress);
    settings.compressed_cache.set_flag("--compressed-cache", args.compressed_cache);
    settings.compressed_cache_size.set_flag("--compressed-cache-size", args.compressed_cache_size);
    settings.access_log.set_flag("--access-log", args.access_log);
    settings.access_log_format.set_flag("--access-log-format", args.access_log_format);
    settings.auth_file.set_flag("--auth-file", args.auth_file);
    settings.log_format.set_flag("--log-format", log_format);
    settings.threads.set_flag("--threads", args.threads);
    settings.max_connections_total.set_flag("--max-connections", args.max_connections);
    let per_address = args.max_connections_per_address;
    settings.max_connections_per_address.set_flag("--max-connections-per-address", per_address);
    let per_connection = args.max_requests_per_connection;
    settings.max_requests_per_connection.set_flag("--max-requests-per-connection", per_connection);
    settings.max_header_size.set_flag("--max-header-size", args.max_header_size);
    settings.max_encoders.set_flag("--max-encoders", args.max_encoders);
    settings.min_rate.set_flag("--min-rate", args.min_rate);
    settings.keepalive_timeout.set_flag("--keepalive-timeout", args.keepalive_timeout);
    settings.read_timeout.set_flag("--read-timeout", args.read_timeout);
    settings.timeout.set_flag("--timeout", args.timeout);
}

/// Returns the values of a flag that may be repeated, if it is given.
fn list<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use floe_config::ProcessUser;

    use super::*;
    use crate::commands::{Cli, Command};

    fn settings(line: &[impl AsRef<str>]) -> ServeSettings {
        let line = line.iter().map(AsRef::as_ref);
        let line = ["floe", "serve"].into_iter().chain(line);
        let Command::Serve(args) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        load(&args, &Environment::new([], ProcessUser::current()), None).unwrap()
    }

    #[test]
    fn port_alone_keeps_the_default_address() {
        for (line, expected) in [
            (&[][..], &["127.0.0.1:5000"][..]),
            (&["-p", "80"], &["127.0.0.1:80"]),
            (&["--host", "::1", "-p", "80"], &["[::1]:80"]),
            (&["--host", "localhost"], &["localhost:5000"]),
            (&["--host", ""], &["127.0.0.1:5000"]),
            (
                &["-p", "80", "--socket", "/s"],
                &["unix:/s", "127.0.0.1:80"],
            ),
            (&["-l", ":81", "--socket", "/s"], &["*:81", "unix:/s"]),
        ] {
            let found = settings(line).listen.value_or(Vec::new());
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn every_flag_has_a_key_and_a_setting() {
        let environment = Environment::new([], ProcessUser::current());
        let mut keys = ServeSettings::keys();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for arg in serve.get_arguments() {
            let flag = arg.get_long().unwrap();
            if FLAGS_WITHOUT_KEY.contains(&flag) {
                continue;
            }
            let key = match flag {
                "max-connections" => "max_connections_total".into(),
                flag => flag.replace('-', "_"),
            };
            let count = keys.len();
            keys.retain(|it| *it != key);
            assert_eq!(keys.len(), count - 1, "--{flag} has no key {key}");
            let printed = settings(&line(arg)).to_toml(&environment).unwrap();
            let start = match flag {
                "host" | "port" | "socket" => "listen = ".into(),
                _ => format!("{key} = "),
            };
            let origin = format!("flag --{flag}");
            let is_set = |line: &str| line.starts_with(&start) && line.contains(&origin);
            assert!(
                printed.lines().any(is_set),
                "--{flag} sets nothing: {printed}"
            );
        }
        assert_eq!(keys, [""; 0], "keys without a flag");
    }

    /// Returns arguments that set a flag.
    fn line(arg: &clap::Arg) -> Vec<String> {
        let flag = arg.get_long().unwrap();
        let choices = arg.get_possible_values();
        match (flag, choices.first()) {
            _ if !arg.get_action().takes_values() => vec![format!("--{flag}")],
            ("listen" | "metrics-listen", _) => vec![format!("--{flag}=:1")],
            ("trusted-proxy", _) => vec![format!("--{flag}=unix")],
            ("compressed-cache-size", _) => {
                vec!["--compressed-cache=/c".into(), format!("--{flag}=1")]
            }
            (_, Some(choice)) => vec![format!("--{flag}={}", choice.get_name())],
            (_, None) => vec![format!("--{flag}=1")],
        }
    }

    /// These flags select the file, or what is done with the settings.
    const FLAGS_WITHOUT_KEY: [&str; 3] = ["config", "check", "print-config"];
}
