//! What a command line of nix-serve or nix-serve-ng asks for.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum as _;
use floe_server::{Listen, address};

use super::table::Meaning;
use super::words::{self, Word};
use crate::args::{LogName, seconds, some_seconds};
use crate::commands::serve::process;
use crate::failure::Usage;

/// What to do.
#[derive(Debug)]
pub(super) enum Request {
    Help,
    Version,
    Serve(Box<Options>),
}

/// Everything that options say, with the defaults where they say nothing.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) listen: Vec<Listen>,
    pub(super) backlog: u16,
    pub(super) store: Option<String>,
    pub(super) priority: i32,
    /// Without a slash at its end, so empty for the root.
    pub(super) path: String,
    pub(super) times: Times,
    pub(super) keep_alive: bool,
    pub(super) log: LogName,
    pub(super) access_log: Option<PathBuf>,
    pub(super) error_log: Option<PathBuf>,
    pub(super) daemonize: bool,
    pub(super) pid: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    /// What has no effect, and why.
    pub(super) warnings: Vec<String>,
}

/// How long a client may take. nix-serve-ng has one time for everything, starman two of its own.
#[derive(Debug, Default)]
pub(super) struct Times {
    all: Option<Duration>,
    keep_alive: Option<Duration>,
    read: Option<Duration>,
}

impl Times {
    pub(super) fn keep_alive(&self) -> Duration {
        let asked = self.keep_alive.or(self.all);
        asked.unwrap_or(process::KEEP_ALIVE_TIMEOUT)
    }

    /// starman waits no time for the next request, and then closes.
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

/// The ways to say where to listen, before it is known which of them counts.
#[derive(Debug, Default)]
struct Places {
    listen: Vec<Listen>,
    socket: Option<PathBuf>,
    host: Option<String>,
    port: Option<u16>,
}

/// Reads the command line.
pub(super) fn parse(args: &[OsString]) -> Result<Request, Usage> {
    let mut options = Options {
        listen: Vec::new(),
        backlog: process::BACKLOG,
        store: None,
        priority: process::PRIORITY,
        path: String::new(),
        times: Times::default(),
        keep_alive: true,
        log: LogName::Default,
        access_log: None,
        error_log: None,
        daemonize: false,
        pid: None,
        user: None,
        group: None,
        warnings: Vec::new(),
    };
    let mut places = Places::default();
    for word in words::read(args)? {
        let (entry, written, value) = match word {
            Word::Option {
                entry,
                written,
                value,
            } => (entry, written, value.unwrap_or_default()),
            Word::HaskellRuntime => {
                options.ignore("+RTS", "there is no Haskell runtime to set");
                continue;
            }
            Word::Positional(word) => {
                options.take_positional(&word)?;
                continue;
            }
        };
        match entry.meaning {
            Meaning::Help => return Ok(Request::Help),
            Meaning::Version => return Ok(Request::Version),
            Meaning::Tls => return Err(address::tls_unsupported(&written).into()),
            Meaning::NoEffect => options.ignore(&written, entry.help),
            meaning => {
                let taken = match places.take(meaning, &value) {
                    Ok(false) => options.take(meaning, &value),
                    taken => taken.map(|_| ()),
                };
                taken.map_err(|error| Usage(format!("{written}: {}", error.0)))?;
            }
        }
    }
    places.settle(&mut options);
    Ok(Request::Serve(Box::new(options)))
}

impl Places {
    /// Whether the option is about where to listen.
    fn take(&mut self, meaning: Meaning, value: &OsStr) -> Result<bool, Usage> {
        match meaning {
            Meaning::Listen => self.listen.push(address::parse_starman(text(value)?)?),
            Meaning::Socket => self.socket = Some(path(value)?),
            Meaning::Host => self.host = Some(text(value)?.to_owned()),
            Meaning::Port => self.port = Some(number(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// As Plack: `--listen` before `--socket` before `--host` and `--port`.
    fn settle(self, options: &mut Options) {
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
                options.ignore(loser, &format!("{winner} says where to listen"));
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
    fn take(&mut self, meaning: Meaning, value: &OsStr) -> Result<(), Usage> {
        match meaning {
            // The system allows fewer than this in any case.
            Meaning::Backlog => {
                self.backlog = number::<u32>(value)?.try_into().unwrap_or(u16::MAX);
            }
            Meaning::Store => self.store = Some(text(value)?.to_owned()),
            Meaning::Priority => self.priority = number(value)?,
            Meaning::Path => self.path = prefix(text(value)?)?,
            Meaning::Timeout => self.times.all = Some(some_seconds(text(value)?)?),
            Meaning::ReadTimeout => self.times.read = Some(some_seconds(text(value)?)?),
            Meaning::KeepAliveTimeout => {
                self.times.keep_alive = Some(seconds(text(value)?)?);
            }
            Meaning::KeepAlive(keep) => self.keep_alive = keep,
            Meaning::Quiet => self.log = LogName::Quiet,
            Meaning::Verbose => self.log = LogName::Verbose,
            Meaning::LogFormat => self.log = log_name(text(value)?)?,
            Meaning::AccessLog => self.access_log = Some(path(value)?),
            Meaning::ErrorLog => self.error_log = Some(path(value)?),
            Meaning::Daemonize => self.daemonize = true,
            Meaning::Pid => self.pid = Some(path(value)?),
            Meaning::User => self.user = Some(text(value)?.to_owned()),
            Meaning::Group => self.group = Some(text(value)?.to_owned()),
            // These are about where to listen, or were dealt with before.
            Meaning::Listen
            | Meaning::Host
            | Meaning::Port
            | Meaning::Socket
            | Meaning::Help
            | Meaning::Version
            | Meaning::Tls
            | Meaning::NoEffect => {}
        }
        Ok(())
    }

    /// The wrapper of nix-serve names its application.
    fn take_positional(&mut self, word: &OsStr) -> Result<(), Usage> {
        match Path::new(word).extension() {
            Some(extension) if extension == "psgi" => {
                self.ignore(&word.to_string_lossy(), "there is no application to load");
                Ok(())
            }
            _ => Err(Usage(format!(
                "unexpected argument {word:?}; nix-serve --help lists the options"
            ))),
        }
    }

    /// One warning for each option, however often it comes.
    fn ignore(&mut self, written: &str, why: &str) {
        let warning = format!("{written} has no effect: {why}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn text(value: &OsStr) -> Result<&str, Usage> {
    value
        .to_str()
        .ok_or_else(|| Usage(format!("{value:?} is not UTF-8")))
}

fn path(value: &OsStr) -> Result<PathBuf, Usage> {
    match value.is_empty() {
        true => Err(Usage("an empty path names nothing".into())),
        false => Ok(PathBuf::from(value)),
    }
}

fn number<T: FromStr>(value: &OsStr) -> Result<T, Usage> {
    let text = text(value)?;
    text.parse()
        .map_err(|_| Usage(format!("{text:?} is not a number that makes sense here")))
}

fn log_name(text: &str) -> Result<LogName, Usage> {
    LogName::from_str(text, false).map_err(|_| {
        Usage(format!(
            "{text:?} is none of quiet, default, normal, real-ip, verbose and debug"
        ))
    })
}

/// The path in front of every route.
fn prefix(text: &str) -> Result<String, Usage> {
    match text.starts_with('/') {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(Usage(format!("{text:?} does not begin with a slash"))),
    }
}

#[cfg(test)]
mod tests;
