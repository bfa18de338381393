//! The arguments of `floe serve auth`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use floe_server::auth::{Expiry, Scopes, parse_scopes};
use floe_server::receive::PushScope;

use super::messages;
use crate::exit::UsageError;

/// The commands below `floe serve`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Make and remove the logins that clients of a server need
    #[command(subcommand)]
    Auth(AuthCommand),
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Add a user; the password comes from the terminal or from stdin
    AddUser(NewLoginArgs),
    /// Add a random token, and print it once
    AddToken(NewLoginArgs),
    /// Remove a login
    Remove {
        #[command(flatten)]
        file: LoginFileArgs,
        /// The name of the login
        name: String,
    },
    /// Print the name, kind, scopes and expiry of each login
    List(LoginFileArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LoginFileArgs {
    /// The login file
    #[arg(long = "auth-file", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NewLoginArgs {
    #[command(flatten)]
    pub(crate) file: LoginFileArgs,
    /// Allow this: read, metrics, status or push, or push=PREFIX for paths whose names begin with a
    /// text; may be repeated [default: read]
    #[arg(long, value_name = "SCOPE", value_parser = parse_scope)]
    scope: Vec<String>,
    /// Let the login expire at a date such as 2027-01-31, or after a time such as 12h, 90d, 6w or
    /// 1y [default: never]
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    pub(crate) expires: Option<Expiry>,
    /// The name of the login, which the access log shows
    pub(crate) name: String,
}

impl NewLoginArgs {
    /// Returns the scopes of the new login, and the paths that it may push.
    pub(crate) fn scopes(&self) -> (Scopes, PushScope) {
        let parsed = parse_scopes(&self.scope.join(","));
        parsed.unwrap_or((Scopes::DEFAULT, PushScope::default()))
    }
}

fn parse_scope(text: &str) -> Result<String, UsageError> {
    match parse_scopes(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(UsageError(messages::not_a_scope(text))),
    }
}

fn parse_expiry(text: &str) -> Result<Expiry, UsageError> {
    expiry_from(text, SystemTime::now())
}

/// Parses a time, or a duration that begins now.
fn expiry_from(text: &str, now: SystemTime) -> Result<Expiry, UsageError> {
    let expiry = Expiry::parse(text).or_else(|| Expiry::after(now, duration(text)?));
    let expiry = expiry.ok_or_else(|| UsageError(messages::not_an_expiry(text)))?;
    if expiry.is_past(now) {
        Err(UsageError(messages::past_expiry(text)))
    } else {
        Ok(expiry)
    }
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let hours: u64 = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        'y' => 365 * 24,
        _ => return None,
    };
    let digits = text.strip_suffix(unit)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(Duration::from_secs(count.checked_mul(hours * 3600)?))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use clap::Parser as _;

    use super::*;
    use crate::commands::{Cli, Command};

    fn parse(args: &[&str]) -> Result<AuthCommand, String> {
        let line = ["floe", "serve", "auth"].iter().chain(args);
        let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Serve(args) => match args.command {
                Some(ServeCommand::Auth(command)) => Ok(command),
                None => Err("no command".into()),
            },
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn scopes_may_be_repeated_or_listed() {
        for (args, scopes) in [
            (&[][..], "read"),
            (&["--scope", "metrics"], "metrics"),
            (&["--scope", "status,read"], "read,status"),
            (&["--scope", "read", "--scope=metrics"], "read,metrics"),
        ] {
            let line = [&["add-token", "--auth-file", "f", "ci"], args].concat();
            let AuthCommand::AddToken(args) = parse(&line).unwrap() else {
                panic!("another command");
            };
            assert_eq!(args.scopes().0.to_string(), scopes);
            assert_eq!((args.name.as_str(), args.expires), ("ci", None));
        }
        for line in [
            &["add-user", "--auth-file", "f"][..],
            &["add-user", "alice"],
            &["add-user", "--auth-file", "f", "a", "--scope", "write"],
            &["add-user", "--auth-file", "f", "a", "--expires", "5m"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn expiry_is_a_date_or_a_duration() {
        let now = UNIX_EPOCH + Duration::from_secs(1_798_761_600);
        for (text, expiry) in [
            ("2027-01-31", "2027-01-31"),
            ("2027-01-01T12:00:00Z", "2027-01-01T12:00:00Z"),
            ("12h", "2027-01-01T12:00:00Z"),
            ("90d", "2027-04-01"),
            ("1w", "2027-01-08"),
            ("1y", "2028-01-01"),
        ] {
            assert_eq!(expiry_from(text, now).unwrap().to_string(), expiry);
        }
        for text in [
            "",
            "d",
            "0d",
            "5",
            "-1d",
            "1.5d",
            "9999999999999999y",
            "2026-12-31",
        ] {
            assert!(expiry_from(text, now).is_err(), "{text}");
        }
    }
}
