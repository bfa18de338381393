//! floe under the name `nix-serve`: a replacement for nix-serve and nix-serve-ng with the options
//! of both. docs/moving-from-nix-serve.md describes it.

pub(super) mod args;
mod command_line;
mod daemon;
mod getopt;
pub(crate) mod messages;
pub(crate) mod page;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use floe_config::{StoreFlags, served_store};
use floe_server::Config;

use super::serve::identity::Identity;
use super::serve::process::{self, ProcessOptions};
use super::serve::warnings;
use super::serve::{access_log, limits};
use crate::display::warn;
use crate::open_files;
use crate::options;
use crate::page::Example;
use crate::stdout::print;
use command_line::{Options, Request};

/// Returns the arguments, if the program was called as `nix-serve`.
pub(crate) fn arguments(mut words: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = words.next()?;
    let has_name = Path::new(&program).file_name() == Some(OsStr::new(NAME));
    has_name.then(|| words.collect())
}

/// Returns the text of `nix-serve --help`.
pub(super) fn help() -> String {
    let examples = page::PAGES.iter().flat_map(|page| page.examples);
    let examples: Vec<Example> = examples.copied().collect();
    format!("{}\n{}", args::help(), Example::list(&examples))
}

/// Serves, or prints help or version.
pub(crate) fn run(args: &[OsString]) -> anyhow::Result<()> {
    let (is_daemon, args) = daemon::is_child(args);
    let options = match command_line::parse(args)? {
        Request::Print(text) => return print(text),
        Request::Serve(options) => options,
    };
    if options.daemonize && !is_daemon {
        return daemon::start(args);
    }
    if is_daemon {
        daemon::leave_session()?;
    }
    options.warnings.iter().for_each(warn);
    let process = ProcessOptions {
        identity: Identity::find(options.user.as_deref(), options.group.as_deref())?,
        pid_file: options.pid.clone(),
        error_log: options.error_log.clone(),
        is_daemon,
        has_default_address: false,
        starman_signals: true,
    };
    // starman starts its workers anew at SIGHUP. floe has none.
    process::run(config(*options)?, &process, |_, _| Box::new(|| ()))
}

fn config(options: Options) -> anyhow::Result<Config> {
    let environment = options::environment();
    let flags = StoreFlags {
        store: options.store.as_deref(),
        ..StoreFlags::default()
    };
    let store = served_store(&flags, &environment)?;
    crate::store_choice::warn_of_ignored(&store.ignored_parameters);
    let key_files = Vec::from_iter(environment.secret_key_file());
    let open_files = open_files::raise();
    let access_log = access_log::open(options.log, options.access_log.as_deref())?;
    let mut config = Config::new(store.layout, options.listen);
    config.tls = options.tls;
    config.log_dir = store.log_dir;
    config.backlog = options.backlog.unwrap_or(config.backlog);
    config.secret_keys = process::secret_keys(&key_files, &environment)?;
    config.priority = options.priority.unwrap_or(config.priority);
    config.path_prefix = options.path;
    config.plain_landing_page = true;
    let own = &mut config.limits;
    own.connections_max = limits::connections(None, open_files);
    own.keep_alive = !options.disable_keep_alive;
    own.keep_alive_timeout = options.keep_alive_timeout.unwrap_or(own.keep_alive_timeout);
    own.read_timeout = options.read_timeout.unwrap_or(own.read_timeout);
    own.write_timeout = options.timeout.unwrap_or(own.write_timeout);
    config.access_log = access_log;
    config.warn = warnings::warning_sink();
    limits::check_open_files(&config, open_files)?;
    Ok(config)
}

/// The name of the program that selects this mode.
const NAME: &str = "nix-serve";

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &[&str]) -> Option<Vec<OsString>> {
        arguments(line.iter().map(OsString::from))
    }

    #[test]
    fn program_name_selects_nix_serve_in_any_directory() {
        let port = Some(vec![OsString::from("-p"), OsString::from("1")]);
        assert_eq!(called(&["/usr/bin/nix-serve", "-p", "1"]), port);
        assert_eq!(called(&["nix-serve", "-p", "1"]), port);
        assert_eq!(
            called(&["nix-serve", "nix-serve"]).map(|a| a.len()),
            Some(1)
        );
        assert_eq!(called(&["/nix-serve/floe", "serve"]), None);
        assert_eq!(called(&["floe", "nix-serve", "-p", "1"]), None);
        assert_eq!(called(&["floe"]), None);
        assert_eq!(called(&[]), None);
    }
}
