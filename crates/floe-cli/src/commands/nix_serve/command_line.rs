//! The command line of nix-serve and nix-serve-ng.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use floe_config::{AccessLogFormat, Choice as _};
use floe_server::address::{self, StarmanAddress};
use floe_server::config::PORT;
use floe_server::{CertificateFiles, Listen, TlsOptions};

use super::args::{self as table, Effect};
use super::getopt::{self, Argument};
use super::{help, messages};
use crate::args::{parse_seconds, parse_timeout};
use crate::exit::UsageError;

/// The request of a command line.
#[derive(Debug)]
pub(super) enum Request {
    /// To print help or version.
    Print(String),
    Serve(Box<Options>),
}

/// The values of all options. Those without a value have the defaults of the server.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) listen: Vec<Listen>,
    socket: Option<PathBuf>,
    host: Option<String>,
    port: Option<u16>,
    ssl_cert: Option<PathBuf>,
    ssl_key: Option<PathBuf>,
    /// Whether TLS is asked for: by an option, or by an address that ends in `:ssl`.
    wants_tls: bool,
    pub(super) tls: Option<TlsOptions>,
    pub(super) backlog: Option<u16>,
    pub(super) store: Option<String>,
    pub(super) priority: Option<i32>,
    /// The path before every route, without a slash at its end; empty for none.
    pub(super) path: String,
    /// nix-serve-ng's timeout of everything. The next two are those of starman.
    pub(super) timeout: Option<Duration>,
    pub(super) keep_alive_timeout: Option<Duration>,
    pub(super) read_timeout: Option<Duration>,
    pub(super) disable_keep_alive: bool,
    pub(super) log: AccessLogFormat,
    pub(super) access_log: Option<PathBuf>,
    pub(super) error_log: Option<PathBuf>,
    pub(super) daemonize: bool,
    pub(super) pid: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    /// Warnings about options without effect.
    pub(super) warnings: Vec<String>,
}

/// Parses the command line.
///
/// Errors: unknown options, invalid values, TLS without a certificate.
pub(super) fn parse(args: &[OsString]) -> Result<Request, UsageError> {
    let mut options = Options::default();
    for word in getopt::read(args)? {
        match word {
            Argument::HaskellRuntime => options.ignore("+RTS", table::NO_HASKELL),
            Argument::Positional(word) => options.apply_positional(&word)?,
            Argument::Option {
                entry,
                written,
                value,
            } => match (entry.key(), entry.effect) {
                ("help", _) => return Ok(Request::Print(help())),
                ("version", _) => return Ok(Request::Print(VERSION.into())),
                (_, Effect::Ignored) => options.ignore(&written, entry.help),
                (key, Effect::Applied) => options
                    .apply(key, &value.unwrap_or_default())
                    .map_err(|error| UsageError(messages::invalid_option(&written, &error.0)))?,
            },
        }
    }
    options.choose_tls()?;
    options.choose_addresses();
    options.choose_timeouts();
    Ok(Request::Serve(Box::new(options)))
}

impl Options {
    /// Applies an option, named by its key in the table.
    fn apply(&mut self, key: &str, value: &OsStr) -> Result<(), UsageError> {
        match key {
            "listen" => self.listen(address::parse_starman(text(value)?)?),
            "socket" => self.socket = Some(path(value)?),
            "host" => self.host = Some(text(value)?.to_owned()),
            "port" => self.port = Some(number(value)?),
            // Larger values are capped: the system allows fewer than this.
            "backlog" => self.backlog = Some(number::<u32>(value)?.try_into().unwrap_or(u16::MAX)),
            "ssl-cert" => self.ssl_cert = Some(path(value)?),
            "ssl-key" => self.ssl_key = Some(path(value)?),
            "enable-ssl" => self.wants_tls = true,
            "store" => self.store = Some(text(value)?.to_owned()),
            "priority" => self.priority = Some(number(value)?),
            "path" => self.path = prefix(text(value)?)?,
            "timeout" => self.timeout = Some(parse_timeout(text(value)?)?),
            "read-timeout" => self.read_timeout = Some(parse_timeout(text(value)?)?),
            "keepalive-timeout" => self.keep_alive_timeout = Some(parse_seconds(text(value)?)?),
            "disable-keepalive" => self.disable_keep_alive = true,
            "enable-keepalive" => self.disable_keep_alive = false,
            "quiet" => self.log = AccessLogFormat::Quiet,
            "verbose" => self.log = AccessLogFormat::Verbose,
            "log-format" => self.log = log_name(text(value)?)?,
            "access-log" => self.access_log = Some(path(value)?),
            "error-log" => self.error_log = Some(path(value)?),
            "daemonize" => self.daemonize = true,
            "pid" => self.pid = Some(path(value)?),
            "user" => self.user = Some(text(value)?.to_owned()),
            "group" => self.group = Some(text(value)?.to_owned()),
            _ => return Err(UsageError(messages::unknown_option(key))),
        }
        Ok(())
    }

    fn listen(&mut self, address: StarmanAddress) {
        self.wants_tls |= address.has_ssl;
        self.listen.push(address.listen);
    }

    /// Uses TLS if there is a certificate, as nix-serve-ng does, also for addresses without `:ssl`.
    fn choose_tls(&mut self) -> Result<(), UsageError> {
        let files = (self.ssl_cert.take(), self.ssl_key.take());
        self.tls = match files {
            (Some(certificate), Some(key)) => Some(TlsOptions {
                certificates: vec![CertificateFiles { certificate, key }],
                client_ca: None,
                accepts_invalid_now: true,
            }),
            (None, None) if !self.wants_tls => None,
            _ => return Err(UsageError(messages::SSL_FILES.into())),
        };
        Ok(())
    }

    /// Chooses the addresses as Plack does: `--listen` wins over `--socket`, and both win over
    /// `--host` and `--port`.
    fn choose_addresses(&mut self) {
        let (winner, loser) = match (self.listen.is_empty(), self.socket.take()) {
            (false, socket) => ("--listen", socket),
            (true, Some(socket)) => {
                self.listen.push(Listen::Unix(socket));
                ("--socket", None)
            }
            (true, None) => {
                let host = address::parse_host(self.host.as_deref().unwrap_or_default());
                let port = self.port.unwrap_or(PORT);
                return self.listen.push(Listen::Tcp { host, port });
            }
        };
        let reason = messages::listens_elsewhere(winner);
        if loser.is_some() {
            self.ignore("--socket", &reason);
        }
        if self.host.is_some() || self.port.is_some() {
            self.ignore("--host or --port", &reason);
        }
    }

    /// Applies nix-serve-ng's timeout to everything that has no timeout of its own.
    fn choose_timeouts(&mut self) {
        self.keep_alive_timeout = self.keep_alive_timeout.or(self.timeout);
        self.read_timeout = self.read_timeout.or(self.timeout);
        // With a timeout of 0, starman closes connections after a response.
        self.disable_keep_alive |= self.keep_alive_timeout == Some(Duration::ZERO);
    }

    /// Ignores the application that nix-serve's wrapper names, and refuses other arguments.
    fn apply_positional(&mut self, word: &OsStr) -> Result<(), UsageError> {
        match Path::new(word).extension() {
            Some(extension) if extension == "psgi" => {
                self.ignore(&word.to_string_lossy(), "floe loads no application");
                Ok(())
            }
            _ => Err(UsageError(messages::unexpected_argument(word))),
        }
    }

    /// Adds a warning about an option, once for all its occurrences.
    fn ignore(&mut self, written: &str, why: &str) {
        let warning = messages::ignored_option(written, why);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn text(value: &OsStr) -> Result<&str, UsageError> {
    let text = value.to_str();
    text.ok_or_else(|| UsageError(messages::not_utf8(value)))
}

fn path(value: &OsStr) -> Result<PathBuf, UsageError> {
    if value.is_empty() {
        Err(UsageError(messages::EMPTY_PATH.into()))
    } else {
        Ok(PathBuf::from(value))
    }
}

fn number<T: FromStr>(value: &OsStr) -> Result<T, UsageError> {
    let text = text(value)?;
    let number = text.parse();
    number.map_err(|_| UsageError(messages::not_a_number(text)))
}

fn log_name(text: &str) -> Result<AccessLogFormat, UsageError> {
    let format = AccessLogFormat::from_name(text);
    format.ok_or_else(|| UsageError(messages::not_a_log_format(text)))
}

/// Parses the path before every route.
fn prefix(text: &str) -> Result<String, UsageError> {
    if text.starts_with('/') {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(UsageError(messages::no_leading_slash(text)))
    }
}

const VERSION: &str = concat!("nix-serve (floe ", env!("CARGO_PKG_VERSION"), ")");

#[cfg(test)]
mod tests;
