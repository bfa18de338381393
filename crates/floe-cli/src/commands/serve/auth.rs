//! `floe serve auth`: changes the file of the logins.

pub(super) mod args;
mod edit;
mod messages;
mod password;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use floe_server::auth::token::{TOKEN_BYTES, Token};
use floe_server::auth::{Login, LoginFile, SecretHash, secret_hash};

use crate::commands::random;
use crate::exit::UsageError;
use crate::stdout::{finish_stdout, print};
use args::{AuthCommand, NewLoginArgs};
use edit::edit;

pub(super) fn run(command: &AuthCommand) -> anyhow::Result<()> {
    match command {
        AuthCommand::AddUser(args) => add_user(args),
        AuthCommand::AddToken(args) => add_token(args),
        AuthCommand::Remove { file, name } => remove(&file.path, name),
        AuthCommand::List(file) => list(&file.path),
    }
}

fn add_user(args: &NewLoginArgs) -> anyhow::Result<()> {
    // The user learns of these errors before typing a password.
    check_name(args)?;
    if !is_new(&args.file.path)? {
        check_is_absent(&LoginFile::read(&args.file.path)?, args)?;
    }
    let password = password::read(&args.name)?;
    let salt: [u8; secret_hash::SALT_LEN] = random()?;
    let secret = SecretHash::of_password(&password, &salt).context(messages::HASH)?;
    add(args, secret, || Ok(()))
}

fn add_token(args: &NewLoginArgs) -> anyhow::Result<()> {
    check_name(args)?;
    let token = Token::from_random(random::<TOKEN_BYTES>()?);
    let secret = SecretHash::of_token(token.secret());
    // A login whose token the user has not got must not stay.
    let print = || {
        print(token.secret())?;
        finish_stdout()
    };
    add(args, secret, print)
}

/// Adds a login, after `before` has succeeded.
fn add(
    args: &NewLoginArgs,
    secret: SecretHash,
    before: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut login = new_login(&args.name, secret)?;
    (login.scopes, login.may_push) = args.scopes();
    login.expiry = args.expires;
    edit(&args.file.path, |file| {
        check_is_absent(file, args)?;
        file.insert(login);
        before()
    })
}

fn remove(path: &Path, name: &str) -> anyhow::Result<()> {
    // A file that is absent is not created.
    LoginFile::read(path)?;
    edit(path, |file| {
        if file.remove(name) {
            Ok(())
        } else {
            Err(UsageError(messages::no_such_login(name, path)).into())
        }
    })
}

fn list(path: &Path) -> anyhow::Result<()> {
    let (file, now) = (LoginFile::read(path)?, SystemTime::now());
    file.logins()
        .map(|login| line(login, now))
        .try_for_each(print)
}

/// Returns the line of a login in the list. It has no secret.
fn line(login: &Login, now: SystemTime) -> String {
    let (name, kind, scopes) = (login.name(), login.secret.kind(), login.scope_words());
    let expiry = match login.expiry {
        None => "never".to_owned(),
        Some(expiry) if expiry.is_past(now) => format!("{expiry} expired"),
        Some(expiry) => expiry.to_string(),
    };
    format!("{name} {kind} {scopes} {expiry}")
}

fn check_name(args: &NewLoginArgs) -> Result<(), UsageError> {
    new_login(&args.name, SecretHash::of_token("")).map(drop)
}

fn new_login(name: &str, secret: SecretHash) -> Result<Login, UsageError> {
    Login::new(name, secret).map_err(|error| UsageError(messages::new_login(name, error)))
}

fn check_is_absent(file: &LoginFile, args: &NewLoginArgs) -> Result<(), UsageError> {
    let (name, path) = (&args.name, &args.file.path);
    match file.find(name) {
        Some(_) => Err(UsageError(messages::login_exists(name, path))),
        None => Ok(()),
    }
}

/// Whether a file is absent or empty, so that floe makes its contents.
fn is_new(path: &Path) -> anyhow::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_file() && metadata.len() == 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| messages::login_file(path)),
    }
}
