//! The command line of nix-serve and nix-serve-ng.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum as _;
use floe_server::{Listen, address};

use super::getopt::{self, Argument};
use super::table::OptionKind;
use crate::args::{AccessLogFormat, parse_seconds, parse_timeout};
use crate::commands::serve::process;
use crate::exit::UsageError;
use crate::messages::serve as messages;

/// The request of a command line.
#[derive(Debug)]
pub(super) enum Request {
    Help,
    Version,
    Serve(Box<Options>),
}

/// The values of all options, with defaults.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) listen: Vec<Listen>,
    pub(super) backlog: u16,
    pub(super) store: Option<String>,
    pub(super) priority: i32,
    /// The path before every route, without a slash at its end; empty for none.
    pub(super) path: String,
    pub(super) timeouts: Timeouts,
    pub(super) keep_alive: bool,
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

/// The timeouts of clients. nix-serve-ng has one timeout for all, and starman two of its own.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    all: Option<Duration>,
    keep_alive: Option<Duration>,
    read: Option<Duration>,
}

impl Timeouts {
    pub(super) fn keep_alive(&self) -> Duration {
        let asked = self.keep_alive.or(self.all);
        asked.unwrap_or(process::KEEP_ALIVE_TIMEOUT)
    }

    /// Whether connections stay open. With a timeout of 0, starman closes them after a response.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive != Some(Duration::ZERO)
    }

    pub(super) fn read(&self) -> Duration {
        self.read.or(self.all).unwrap_or(process::READ_TIMEOUT)
    }

    pub(super) fn write(&self) -> Duration {
        self.all.unwrap_or(process::WRITE_TIMEOUT)
    }
}

/// The options about addresses. Only one kind of them has an effect.
#[derive(Debug, Default)]
struct ListenOptions {
    listen: Vec<Listen>,
    socket: Option<PathBuf>,
    host: Option<String>,
    port: Option<u16>,
}

/// Parses the command line.
///
/// Errors: unknown options, invalid values, options that need TLS.
pub(super) fn parse(args: &[OsString]) -> Result<Request, UsageError> {
    let mut options = Options {
        listen: Vec::new(),
        backlog: process::BACKLOG,
        store: None,
        priority: process::PRIORITY,
        path: String::new(),
        timeouts: Timeouts::default(),
        keep_alive: true,
        log: AccessLogFormat::Default,
        access_log: None,
        error_log: None,
        daemonize: false,
        pid: None,
        user: None,
        group: None,
        warnings: Vec::new(),
    };
    let mut listen_options = ListenOptions::default();
    for word in getopt::read(args)? {
        let (entry, written, value) = match word {
            Argument::Option {
                entry,
                written,
                value,
            } => (entry, written, value.unwrap_or_default()),
            Argument::HaskellRuntime => {
                options.ignore("+RTS", "floe has no Haskell runtime");
                continue;
            }
            Argument::Positional(word) => {
                options.apply_positional(&word)?;
                continue;
            }
        };
        match entry.kind {
            OptionKind::Help => return Ok(Request::Help),
            OptionKind::Version => return Ok(Request::Version),
            OptionKind::Tls => return Err(address::tls_unsupported(&written).into()),
            OptionKind::NoEffect => options.ignore(&written, entry.help),
            kind => {
                let applied = match listen_options.apply(kind, &value) {
                    Ok(false) => options.apply(kind, &value),
                    applied => applied.map(|_| ()),
                };
                applied
                    .map_err(|error| UsageError(messages::invalid_option(&written, &error.0)))?;
            }
        }
    }
    listen_options.resolve(&mut options);
    Ok(Request::Serve(Box::new(options)))
}

impl ListenOptions {
    /// Applies an option about addresses, and returns whether it is one.
    fn apply(&mut self, kind: OptionKind, value: &OsStr) -> Result<bool, UsageError> {
        match kind {
            OptionKind::Listen => self.listen.push(address::parse_starman(text(value)?)?),
            OptionKind::Socket => self.socket = Some(path(value)?),
            OptionKind::Host => self.host = Some(text(value)?.to_owned()),
            OptionKind::Port => self.port = Some(number(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Chooses the addresses as Plack does: `--listen` wins over `--socket`, and both win over
    /// `--host` and `--port`.
    fn resolve(self, options: &mut Options) {
        let by_parts = self.host.is_some() || self.port.is_some();
        let winner = match (self.listen.is_empty(), &self.socket) {
            (false, _) => Some("--listen"),
            (true, Some(_)) => Some("--socket"),
            (true, None) => None,
        };
        if let Some(winner) = winner {
            let losers = [
                ("--socket", self.socket.is_some() && winner != "--socket"),
                ("--host or --port", by_parts),
            ];
            for (loser, _) in losers.iter().filter(|(_, given)| *given) {
                options.ignore(loser, &messages::listens_elsewhere(winner));
            }
        }
        options.listen = match (self.listen, self.socket) {
            (listen, _) if !listen.is_empty() => listen,
            (_, Some(socket)) => vec![Listen::Unix(socket)],
            _ => vec![Listen::Tcp {
                host: address::parse_host(self.host.as_deref().unwrap_or_default()),
                port: self.port.unwrap_or(process::PORT),
            }],
        };
    }
}

impl Options {
    fn apply(&mut self, kind: OptionKind, value: &OsStr) -> Result<(), UsageError> {
        match kind {
            // Larger values are capped: the system allows fewer than this.
            OptionKind::Backlog => {
                self.backlog = number::<u32>(value)?.try_into().unwrap_or(u16::MAX);
            }
            OptionKind::Store => self.store = Some(text(value)?.to_owned()),
            OptionKind::Priority => self.priority = number(value)?,
            OptionKind::Path => self.path = prefix(text(value)?)?,
            OptionKind::Timeout => self.timeouts.all = Some(parse_timeout(text(value)?)?),
            OptionKind::ReadTimeout => self.timeouts.read = Some(parse_timeout(text(value)?)?),
            OptionKind::KeepAliveTimeout => {
                self.timeouts.keep_alive = Some(parse_seconds(text(value)?)?);
            }
            OptionKind::KeepAlive(keep) => self.keep_alive = keep,
            OptionKind::Quiet => self.log = AccessLogFormat::Quiet,
            OptionKind::Verbose => self.log = AccessLogFormat::Verbose,
            OptionKind::LogFormat => self.log = log_name(text(value)?)?,
            OptionKind::AccessLog => self.access_log = Some(path(value)?),
            OptionKind::ErrorLog => self.error_log = Some(path(value)?),
            OptionKind::Daemonize => self.daemonize = true,
            OptionKind::Pid => self.pid = Some(path(value)?),
            OptionKind::User => self.user = Some(text(value)?.to_owned()),
            OptionKind::Group => self.group = Some(text(value)?.to_owned()),
            // ListenOptions or `parse` handles these.
            OptionKind::Listen
            | OptionKind::Host
            | OptionKind::Port
            | OptionKind::Socket
            | OptionKind::Help
            | OptionKind::Version
            | OptionKind::Tls
            | OptionKind::NoEffect => {}
        }
        Ok(())
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
    value
        .to_str()
        .ok_or_else(|| UsageError(messages::not_utf8(value)))
}

fn path(value: &OsStr) -> Result<PathBuf, UsageError> {
    match value.is_empty() {
        true => Err(UsageError(messages::EMPTY_PATH.into())),
        false => Ok(PathBuf::from(value)),
    }
}

fn number<T: FromStr>(value: &OsStr) -> Result<T, UsageError> {
    let text = text(value)?;
    text.parse()
        .map_err(|_| UsageError(messages::not_a_number(text)))
}

fn log_name(text: &str) -> Result<AccessLogFormat, UsageError> {
    AccessLogFormat::from_str(text, false).map_err(|_| UsageError(messages::not_a_log_format(text)))
}

/// Parses the path before every route.
fn prefix(text: &str) -> Result<String, UsageError> {
    match text.starts_with('/') {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(UsageError(messages::no_leading_slash(text))),
    }
}

#[cfg(test)]
mod tests;
