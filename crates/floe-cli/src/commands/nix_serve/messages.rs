//! The texts of `nix-serve`.

use std::ffi::OsStr;

pub(crate) const SSL_FILES: &str =
    "cannot use TLS: a file is missing; give both --ssl-cert FILE and --ssl-key FILE";

pub(crate) const DAEMON: &str = "cannot start the server in the background";
pub(crate) const SESSION: &str = "cannot leave the session of the terminal";

pub(crate) fn ignored_option(option: &str, cause: &str) -> String {
    format!("ignoring {option}: {cause}")
}

pub(crate) fn listens_elsewhere(option: &str) -> String {
    format!("{option} says where to listen")
}

pub(crate) fn invalid_option(option: &str, cause: &str) -> String {
    format!("cannot use {option}: {cause}")
}

pub(crate) fn unknown_option(option: &str) -> String {
    format!("unknown option {option}; nix-serve --help lists all options")
}

pub(crate) fn unexpected_argument(argument: &OsStr) -> String {
    format!("unexpected argument {argument:?}; nix-serve --help lists all options")
}

pub(crate) const TAKES_NO_VALUE: &str = "it takes no value";

pub(crate) fn needs_value(value: &str) -> String {
    format!("it needs a value {value}")
}

pub(crate) fn not_utf8(value: &OsStr) -> String {
    format!("{value:?} is not UTF-8")
}

pub(crate) const EMPTY_PATH: &str = "the path is empty";

pub(crate) fn not_a_number(text: &str) -> String {
    format!("{text:?} is not a number in its range")
}

pub(crate) fn not_a_log_format(text: &str) -> String {
    format!(
        "{text:?} is none of quiet, default, normal, common, combined, real-ip, verbose, debug and \
         json"
    )
}

pub(crate) fn no_leading_slash(text: &str) -> String {
    format!("{text:?} does not begin with a slash")
}
