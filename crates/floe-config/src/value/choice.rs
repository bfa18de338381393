//! Settings whose values are words, with the same words on the command line and in files.

use floe_server::{Compress, LogFormat};

/// A type with a name for each value.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// The names, the values, and what they mean. If a value has several names, the first one is
    /// written.
    const CHOICES: &'static [(&'static str, Self, &'static str)];

    /// Returns the value with a name.
    fn from_name(name: &str) -> Option<Self> {
        let mut choices = Self::CHOICES.iter();
        choices.find(|it| it.0 == name).map(|it| it.1)
    }

    /// Returns the name of the value.
    fn name(self) -> &'static str {
        let mut choices = Self::CHOICES.iter();
        choices.find(|it| it.1 == self).map_or("", |it| it.0)
    }

    /// Returns all names.
    fn names() -> impl Iterator<Item = &'static str> {
        Self::CHOICES.iter().map(|it| it.0)
    }
}

impl Choice for Compress {
    const CHOICES: &'static [(&'static str, Compress, &'static str)] = &[
        ("off", Compress::Off, "Never"),
        (
            "cached",
            Compress::Cached,
            "If a compressed copy is in the compressed NAR cache; else make one for later requests",
        ),
        ("always", Compress::Always, "Always, also while sending"),
    ];
}

/// The formats of the access log: those of nix-serve-ng and of Apache, and JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// No lines at all.
    Quiet,
    /// Apache's common log format.
    Common,
    /// Apache's combined log format.
    #[default]
    Combined,
    /// Apache's format with the client address from a proxy's header.
    RealIp,
    /// Method, target, status, bytes and time taken.
    Verbose,
    /// A JSON object for each request.
    Json,
}

impl AccessLogFormat {
    /// Returns the format of the server; `None` for no log.
    pub fn lines(self) -> Option<LogFormat> {
        match self {
            AccessLogFormat::Quiet => None,
            AccessLogFormat::Common => Some(LogFormat::Common),
            AccessLogFormat::Combined => Some(LogFormat::Combined),
            AccessLogFormat::RealIp => Some(LogFormat::RealIp),
            AccessLogFormat::Verbose => Some(LogFormat::Verbose),
            AccessLogFormat::Json => Some(LogFormat::Json),
        }
    }
}

/// The help of nix-serve-ng names `normal` and its parser accepts `default`, so floe knows both.
impl Choice for AccessLogFormat {
    #[rustfmt::skip]
    const CHOICES: &'static [(&'static str, AccessLogFormat, &'static str)] = &[
        ("quiet", AccessLogFormat::Quiet, "No lines at all"),
        ("common", AccessLogFormat::Common, "Apache's common log format"),
        ("combined", AccessLogFormat::Combined, "Apache's combined log format"),
        ("default", AccessLogFormat::Combined, "The same as combined"),
        ("normal", AccessLogFormat::Combined, "The same as combined"),
        ("real-ip", AccessLogFormat::RealIp,
            "Apache's format with the client address from a proxy's header"),
        ("verbose", AccessLogFormat::Verbose, "Method, target, status, bytes and time taken"),
        ("debug", AccessLogFormat::Verbose, "The same as verbose"),
        ("json", AccessLogFormat::Json, "A JSON object for each request"),
    ];
}

/// The formats of lines on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StderrFormat {
    /// Text.
    #[default]
    Text,
    /// A JSON object for each line.
    Json,
}

impl Choice for StderrFormat {
    const CHOICES: &'static [(&'static str, StderrFormat, &'static str)] = &[
        ("text", StderrFormat::Text, "Text"),
        ("json", StderrFormat::Json, "One JSON object per line"),
    ];
}
