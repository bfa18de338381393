//! The texts of `floe serve auth`.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

pub(crate) fn not_an_expiry(text: &str) -> String {
    format!("{text:?} is neither a date such as 2027-01-31 nor a time such as 12h, 90d, 6w or 1y")
}

pub(crate) fn not_a_scope(text: &str) -> String {
    format!("{text:?} is no scope; give read, metrics, status, push or push=PREFIX, with commas")
}

pub(crate) fn past_expiry(text: &str) -> String {
    format!("{text:?} is in the past")
}

pub(crate) fn new_login(name: &str, cause: impl Display) -> String {
    format!("cannot add the login {name:?}: {cause}")
}

pub(crate) fn login_exists(name: &str, path: &Path) -> String {
    let path = path.display();
    new_login(
        name,
        format!("{path} has it already; try floe serve auth remove first"),
    )
}

pub(crate) fn no_such_login(name: &str, path: &Path) -> String {
    let path = path.display();
    format!("cannot remove the login {name:?}: {path} does not have it")
}

pub(crate) fn login_file(path: &Path) -> String {
    format!("cannot write the login file {}", path.display())
}

pub(crate) fn login_file_locked(path: &Path, wait: Duration) -> String {
    format!(
        "{}: another process has been writing it for {} seconds",
        login_file(path),
        wait.as_secs()
    )
}

pub(crate) const PASSWORD: &str = "cannot read the password";
pub(crate) const EMPTY_PASSWORD: &str = "cannot use the password: it is empty";
pub(crate) const DIFFERENT_PASSWORDS: &str = "cannot use the password: the two inputs differ";
pub(crate) const HASH: &str = "cannot hash the password";

pub(crate) fn long_password(most: usize) -> String {
    format!("cannot use the password: it has more than {most} bytes")
}

pub(crate) fn password_prompt(name: &str) -> String {
    format!("Password of {name}: ")
}

pub(crate) const REPEAT_PROMPT: &str = "The same again: ";
