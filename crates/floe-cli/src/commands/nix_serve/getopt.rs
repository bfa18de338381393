//! Splits a command line into options with their values.
//!
//! The rules are those of Perl's Getopt::Long, extended by what nix-serve-ng's parser accepts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::args::{self as table, OptionEntry};
use super::messages::{TAKES_NO_VALUE, invalid_option, needs_value, unknown_option};
use crate::exit::UsageError;

/// An argument, or an option with its value.
#[derive(Debug)]
pub(super) enum Argument {
    /// An option as the user wrote it, and its value if it takes one.
    Option {
        entry: OptionEntry,
        written: String,
        value: Option<OsString>,
    },
    /// `+RTS … -RTS`.
    HaskellRuntime,
    /// An argument that is not an option.
    Positional(OsString),
}

/// Reads all arguments.
///
/// Errors: unknown options, options without a required value or with a needless one.
pub(super) fn read(args: &[OsString]) -> Result<Vec<Argument>, UsageError> {
    let mut words = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let bytes = arg.as_bytes();
        if arg == "--" {
            words.extend(rest.by_ref().cloned().map(Argument::Positional));
        } else if arg == "+RTS" {
            // Without -RTS, all further arguments are for the runtime.
            rest.by_ref().find(|arg| *arg == "-RTS");
            words.push(Argument::HaskellRuntime);
        } else if bytes.len() < 2 || bytes[0] != b'-' {
            words.push(Argument::Positional(arg.clone()));
        } else {
            let (entry, written, mut value) = option(arg)?;
            match (entry.value, &value) {
                (Some(_), Some(_)) | (None, None) => {}
                (None, Some(_)) => {
                    return Err(UsageError(invalid_option(&written, TAKES_NO_VALUE)));
                }
                (Some(what), None) => {
                    let missing = || UsageError(invalid_option(&written, &needs_value(what)));
                    value = Some(rest.next().ok_or_else(missing)?.clone());
                }
            }
            words.push(Argument::Option {
                entry,
                written,
                value,
            });
        }
    }
    Ok(words)
}

/// Returns the option of an argument, how the user wrote it, and the value in the same argument.
///
/// Long names may have one dash. A value may follow a single letter directly.
fn option(arg: &OsStr) -> Result<(OptionEntry, String, Option<OsString>), UsageError> {
    let bytes = arg.as_bytes();
    let dashes = if bytes.starts_with(b"--") { 2 } else { 1 };
    let end = bytes.iter().position(|byte| *byte == b'=');
    let name = String::from_utf8_lossy(&bytes[dashes..end.unwrap_or(bytes.len())]);
    let written = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned();
    let value = |from: usize| Some(OsStr::from_bytes(&bytes[from..]).to_owned());
    if let Some(entry) = table::find(&name) {
        return Ok((entry, written, end.and_then(|end| value(end + 1))));
    }
    let letter = char::from(bytes[1]);
    if dashes == 1
        && let Some(entry) = table::find(letter.encode_utf8(&mut [0; 4]))
        && entry.value.is_some()
    {
        return Ok((entry, format!("-{letter}"), value(2)));
    }
    Err(UsageError(unknown_option(&written)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(args: &[&str]) -> Result<Vec<String>, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let words = read(&args).map_err(|error| error.0)?;
        let show = |word: Argument| match word {
            Argument::Option { entry, value, .. } => {
                let value = value.map(|value| value.into_string().unwrap());
                format!("{}={}", entry.key(), value.unwrap_or_default())
            }
            Argument::HaskellRuntime => "RTS".into(),
            Argument::Positional(word) => word.into_string().unwrap(),
        };
        Ok(words.into_iter().map(show).collect())
    }

    #[test]
    fn all_spellings_of_getopt_are_equal() {
        for spelling in [
            &["--port", "80"][..],
            &["--port=80"],
            &["-p", "80"],
            &["-p=80"],
            &["-p80"],
            &["-port", "80"],
            &["-port=80"],
        ] {
            assert_eq!(split(spelling).unwrap(), ["port=80"], "{spelling:?}");
        }
        assert_eq!(
            split(&["--keepalive_timeout=1"]).unwrap(),
            ["keepalive-timeout=1"]
        );
        assert_eq!(split(&["-MPlack::Builder"]).unwrap(), ["M=Plack::Builder"]);
    }

    #[test]
    fn single_letters_are_case_sensitive() {
        let words = split(&["-r", "-R", "lib", "-E", "x", "-e", "y"]).unwrap();
        assert_eq!(words, ["reload=", "Reload=lib", "env=x", "e=y"]);
    }

    #[test]
    fn value_may_look_like_an_option_or_be_empty() {
        assert_eq!(split(&["--priority", "-5"]).unwrap(), ["priority=-5"]);
        assert_eq!(split(&["--host="]).unwrap(), ["host="]);
    }

    #[test]
    fn haskell_runtime_options_end_at_rts() {
        let words = split(&["+RTS", "-N2", "-RTS", "--quiet"]).unwrap();
        assert_eq!(words, ["RTS", "quiet="]);
        assert_eq!(split(&["+RTS", "--quiet"]).unwrap(), ["RTS"]);
    }

    #[test]
    fn two_dashes_end_the_options() {
        assert_eq!(split(&["--", "--quiet"]).unwrap(), ["--quiet"]);
        assert_eq!(split(&["-"]).unwrap(), ["-"]);
    }

    #[test]
    fn unknown_option_and_wrong_value_are_named() {
        for (args, part) in [
            (&["--wrokers", "5"][..], "--wrokers"),
            (&["--port=1", "-x"], "-x"),
            (&["-q"], "-q"),
            (&["--secret=1"], "unknown option --secret;"),
            (&["--port"], "--port: it needs a value PORT"),
            (&["--quiet=1"], "--quiet: it takes no value"),
            (&["-Dx"], "-Dx"),
            (&["-é"], "unknown option -é"),
        ] {
            let message = split(args).unwrap_err();
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn value_may_be_joined_or_follow(
            index in 0..table::entries().count(),
            value in "[ -~]{1,12}",
        ) {
            let entry = table::entries().nth(index).unwrap();
            prop_assume!(entry.value.is_some());
            for name in entry.names {
                let joined = split(&[&format!("{name}={value}")]);
                prop_assert_eq!(joined, split(&[name, &value]));
            }
        }

        #[test]
        fn arguments_never_panic(args in proptest::collection::vec("[-+=a-zA-Zé]{0,6}", 0..5)) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let _: Result<Vec<String>, String> = split(&args);
        }
    }
}
