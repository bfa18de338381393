//! The arguments of `floe serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use floe_config::{AccessLogFormat, ByteSize, Choice};
use floe_server::{Compress, Listen, NoProxy, TrustedProxy};

use super::auth::args::ServeCommand;
use crate::args::{LogArgs, parse_bytes, parse_count, parse_number, parse_port, parse_timeout};
use crate::exit::UsageError;

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    /// Listen on HOST:PORT, :PORT or unix:PATH, IPv6 hosts in brackets; may be repeated [default:
    /// 127.0.0.1:5000]
    #[arg(long, short, value_name = "HOST:PORT", value_parser = floe_server::address::parse)]
    pub(crate) listen: Vec<Listen>,
    /// Listen on this host; * is every address, *4 every IPv4 and *6 every IPv6 address [default:
    /// 127.0.0.1]
    #[arg(long, value_name = "HOST", conflicts_with = "listen")]
    pub(crate) host: Option<String>,
    /// Listen on this port; 0 lets the system choose one [default: 5000]
    #[arg(long, short, value_name = "PORT", value_parser = parse_port, conflicts_with = "listen")]
    pub(crate) port: Option<u16>,
    /// Listen on a Unix socket
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Use TLS with this certificate, a PEM file that its issuers follow; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Vec<PathBuf>,
    /// The private key of the certificate, a PEM file; as often as --tls-cert, in the same order
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Vec<PathBuf>,
    /// Demand a certificate of each client that an authority in this PEM file has issued
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Serve /metrics on this address instead, with /health, /ready and /version, and nothing else;
    /// may be repeated
    #[arg(long, value_name = "HOST:PORT", value_parser = floe_server::address::parse)]
    pub(crate) metrics_listen: Vec<Listen>,
    /// Believe the X-Forwarded-For of this proxy: an address, a network such as 10.0.0.0/8, or unix
    /// for every program on a Unix socket; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_proxy)]
    pub(crate) trusted_proxy: Vec<TrustedProxy>,
    /// Expect a header of the PROXY protocol, version 1 or 2, at the beginning of each connection
    /// of a trusted proxy
    #[arg(long)]
    pub(crate) proxy_protocol: bool,
    /// Serve this store: auto, local, a directory, local?root=DIR; daemon means the store behind
    /// it
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Serve the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Sign with the key in this file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_key_file: Vec<PathBuf>,
    /// Clients try caches with lower numbers first [default: 30]
    #[arg(long, value_name = "N", value_parser = parse_number::<i32>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// When to compress NARs for clients that accept it [default: cached with --compressed-cache,
    /// else off]
    #[arg(long, value_name = "WHEN", value_parser = choice::<Compress>())]
    pub(crate) compress: Option<Compress>,
    /// Keep compressed NARs in this directory, which only floe may use
    #[arg(long, value_name = "DIR")]
    pub(crate) compressed_cache: Option<PathBuf>,
    /// The largest size of the compressed NAR cache, such as 500M or 20G [default: 10G]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) compressed_cache_size: Option<ByteSize>,
    /// Write a line for each request to this file, or to stdout with -
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// The format of these lines, which go to stdout without --access-log
    #[arg(long, value_name = "FORMAT", value_parser = choice::<AccessLogFormat>())]
    pub(crate) access_log_format: Option<AccessLogFormat>,
    /// Demand a login of this file from each client; floe serve auth makes it
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// The number of threads that answer requests [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The number of connections of one address, or of one IPv6 network of 64 bits [default: three
    /// times the number of free connections]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_connections_per_address: Option<NonZeroUsize>,
    /// The number of requests of one connection [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_requests_per_connection: Option<NonZeroUsize>,
    /// The longest head of a request, such as 32K [default: 16K]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) max_header_size: Option<ByteSize>,
    /// The number of NARs that --compress always compresses at once; further ones are sent
    /// uncompressed [default: the number of threads]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_encoders: Option<NonZeroUsize>,
    /// The least number of bytes per second that a client takes; slower ones are closed after the
    /// --timeout, or after 15 seconds if the server is full [default: 1024]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) min_rate: Option<ByteSize>,
    /// The number of connections at once; more get a 503 [default: 8192, or what the limit
    /// of open files allows]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// The longest idle time of a connection between requests [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) keepalive_timeout: Option<Duration>,
    /// The longest time to receive the head of a request [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) read_timeout: Option<Duration>,
    /// The longest time that a client may leave a response unread [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Read settings from this TOML file, which flags and environment override; it may be that of
    /// harmonia
    // An empty CONFIG_FILE counts as unset.
    #[arg(long, value_name = "FILE", env = "CONFIG_FILE")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) config: Option<PathBuf>,
    /// Open the store, read the keys, listen, print what would be served, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the effective settings as a configuration file, with the origin of each, and end
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

fn parse_proxy(text: &str) -> Result<TrustedProxy, NoProxy> {
    text.parse()
}

/// Returns the parser of a value that is one of several words.
fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::CHOICES.iter();
    let values = values.map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).try_map(|name| {
        let value = T::from_name(&name);
        value.ok_or(UsageError(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::commands::{Cli, Command};

    fn parse(args: &[&str]) -> Result<ServeArgs, String> {
        let line = ["floe", "serve"].iter().chain(args);
        match Cli::try_parse_from(line) {
            Ok(Cli {
                command: Command::Serve(args),
                ..
            }) => Ok(*args),
            Ok(_) => Err("another command".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn listen_and_secret_key_file_may_be_repeated() {
        let args = parse(&[
            "--listen",
            ":80",
            "-l",
            "unix:/s",
            "--secret-key-file",
            "a",
            "--secret-key-file=b",
            "--metrics-listen=127.0.0.1:9100",
            "--metrics-listen=unix:/m",
        ])
        .unwrap();
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.metrics_listen.len(), 2);
        assert_eq!(args.secret_key_file.len(), 2);
    }

    #[test]
    fn port_has_a_short_form_and_excludes_listen() {
        for line in [&["-p", "80"][..], &["-p80"], &["--port=80"]] {
            assert_eq!(parse(line).unwrap().port, Some(80), "{line:?}");
        }
        for line in [["-p", "80", "-l", ":81"], ["--host", "h", "-l", ":81"]] {
            let message = parse(&line).unwrap_err();
            assert!(message.contains("cannot be used with"), "{message}");
        }
    }

    #[test]
    fn wrong_value_is_named_with_its_option() {
        for (args, part) in [
            (&["--listen", "5000"], "--listen"),
            (&["--listen", ":1:ssl"], "--tls-cert"),
            (&["--metrics-listen", "9100"], "--metrics-listen"),
            (&["--port", "65536"], "65536"),
            (&["--timeout", "0"], "--timeout"),
            (&["--compress", "maybe"], "maybe"),
            (&["--compressed-cache-size", "1GB"], "not a number of bytes"),
            (&["--access-log-format", "loud"], "loud"),
            (&["--log-format", "verbose"], "--log-format"),
            (&["--threads", "0"], "0"),
        ] {
            let message = parse(args).unwrap_err();
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }
}
