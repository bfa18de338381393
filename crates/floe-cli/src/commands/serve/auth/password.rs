//! Reads a password from the terminal, or from stdin.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, StdinLock, Write as _};

use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::messages;
use crate::exit::UsageError;

/// Reads a password: twice and without echo from a terminal, else the first line of stdin.
pub(super) fn read(name: &str) -> anyhow::Result<Vec<u8>> {
    let mut stdin = io::stdin().lock();
    if !stdin.is_terminal() {
        return read_line(&mut stdin);
    }
    let hidden = HiddenInput::begin(&stdin).context(messages::PASSWORD)?;
    let first = ask(&mut stdin, &messages::password_prompt(name))?;
    let second = ask(&mut stdin, messages::REPEAT_PROMPT)?;
    drop(hidden);
    if first == second {
        Ok(first)
    } else {
        Err(UsageError(messages::DIFFERENT_PASSWORDS.into()).into())
    }
}

fn ask(stdin: &mut StdinLock<'_>, prompt: &str) -> anyhow::Result<Vec<u8>> {
    let mut stderr = io::stderr();
    let shown = stderr.write_all(prompt.as_bytes());
    shown.context(messages::PASSWORD)?;
    let password = read_line(stdin);
    // The terminal does not show the newline that the user has typed either.
    stderr.write_all(b"\n").context(messages::PASSWORD)?;
    password
}

/// Reads a line, and returns it without its end.
fn read_line(stdin: &mut StdinLock<'_>) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut limited = stdin.by_ref().take(PASSWORD_LEN_MAX as u64 + 2);
    limited
        .read_until(b'\n', &mut line)
        .context(messages::PASSWORD)?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        0 => Err(UsageError(messages::EMPTY_PASSWORD.into()).into()),
        1..=PASSWORD_LEN_MAX => Ok(line.to_vec()),
        _ => Err(UsageError(messages::long_password(PASSWORD_LEN_MAX)).into()),
    }
}

/// A terminal that does not show its input until this is dropped.
struct HiddenInput {
    before: Termios,
}

impl HiddenInput {
    fn begin(stdin: &StdinLock<'_>) -> rustix::io::Result<HiddenInput> {
        let before = tcgetattr(stdin)?;
        let mut hidden = before.clone();
        hidden.local_modes -= LocalModes::ECHO;
        tcsetattr(stdin, OptionalActions::Flush, &hidden)?;
        Ok(HiddenInput { before })
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // If this fails, the terminal is gone.
        let stdin = io::stdin();
        let _: rustix::io::Result<()> = tcsetattr(&stdin, OptionalActions::Now, &self.before);
    }
}

/// The longest password in bytes. The head of a request with a longer one would be too long.
const PASSWORD_LEN_MAX: usize = 4096;
