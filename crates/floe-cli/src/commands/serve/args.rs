//! The arguments of `floe serve`.
//!
//! The options come from the table in `floe_config::ServeSettings`. Only the arguments that are not
//! settings stand here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::builder::{
    OsStringValueParser, PathBufValueParser, PossibleValue, PossibleValuesParser,
    TypedValueParser as _, ValueParser,
};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use floe_config::{Form, ServeEntry, ServeSettings};

use super::auth::args::ServeCommand;
use crate::args::LogArgs;
use crate::exit::UsageError;

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    #[command(flatten)]
    pub(crate) flags: Flags,
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

/// The settings that flags set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags(pub(crate) ServeSettings);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let mut settings = ServeSettings::default();
        command.args(settings.entries().iter().filter_map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for entry in self.0.entries() {
            let Some(flag) = entry.option.flag() else {
                continue;
            };
            let words: Vec<OsString> = match entry.setting.form() {
                Form::Switch if matches.get_flag(entry.key) => vec!["true".into()],
                Form::Switch => Vec::new(),
                _ => {
                    let words = matches.get_raw(entry.key).into_iter().flatten();
                    words.map(Into::into).collect()
                }
            };
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let set = entry.setting.set_words(&words, flag);
            // The parser of the argument has checked the words already.
            set.map_err(|reason| clap::Error::raw(ErrorKind::ValueValidation, reason))?;
        }
        Ok(())
    }
}

/// Returns the argument of an option, if it has a flag of its own.
fn arg(entry: &ServeEntry<'_>) -> Option<Arg> {
    let help: Vec<&str> = entry.help.iter().map(|line| line.trim()).collect();
    let form = entry.setting.form();
    let arg = Arg::new(entry.key)
        .long(entry.option.flag()?.trim_start_matches('-'))
        .help(help.join(" "))
        .conflicts_with_all(entry.option.excludes);
    let arg = match entry.option.short() {
        Some(short) => arg.short(short),
        None => arg,
    };
    let is_signed = matches!(form, Form::SignedNumber(_));
    let parser: ValueParser = match form {
        Form::Switch => return Some(arg.action(ArgAction::SetTrue)),
        Form::Path => PathBufValueParser::new().into(),
        Form::Text(check) | Form::SignedNumber(check) => {
            ValueParser::new(move |text: &str| check(text).map_err(UsageError))
        }
        Form::Choice(words) => {
            let values = words.into_iter();
            let values = values.map(|(word, help)| PossibleValue::new(word).help(help));
            PossibleValuesParser::new(values).into()
        }
    };
    let action = if entry.setting.is_list() {
        ArgAction::Append
    } else {
        ArgAction::Set
    };
    let arg = arg.value_name(entry.option.value_name());
    let arg = arg.value_parser(parser).action(action);
    Some(arg.allow_negative_numbers(is_signed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::commands::{self, Cli};

    fn parse(args: &[&str]) -> Result<ServeArgs, String> {
        let line = ["floe", "serve"].iter().chain(args);
        match Cli::try_parse_from(line) {
            Ok(Cli {
                command: commands::Command::Serve(args),
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
        let flags = args.flags.0;
        assert_eq!(flags.listen.value().map(Vec::len), Some(2));
        assert_eq!(flags.metrics_listen.value().map(Vec::len), Some(2));
        assert_eq!(flags.secret_key_file.value().map(Vec::len), Some(2));
    }

    #[test]
    fn port_has_a_short_form_and_excludes_listen() {
        for line in [&["-p", "80"][..], &["-p80"], &["--port=80"]] {
            assert_eq!(
                parse(line).unwrap().flags.0.port.value(),
                Some(&80),
                "{line:?}"
            );
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
