//! The settings of `floe serve`: the configuration file, the environment and the flags.

use floe_config::{Environment, ServeSettings, StderrFormat};

use super::args::ServeArgs;
use super::limits;
use crate::args::LogFormat;
use crate::display::{StderrLines, set_lines, warn};

/// Returns the effective settings, and prints their warnings. The limit of open files bounds the
/// number of connections.
pub(super) fn load(
    args: &ServeArgs,
    environment: &Environment,
    open_files: Option<u64>,
) -> anyhow::Result<ServeSettings> {
    let mut settings = match &args.config {
        Some(file) if !file.as_os_str().is_empty() => ServeSettings::read(file)?,
        _ => ServeSettings::default(),
    };
    settings.override_by(args.flags.0.clone());
    let log_format = args.log.log_format.map(|format| match format {
        LogFormat::Json | LogFormat::InternalJson => StderrFormat::Json,
        LogFormat::Text | LogFormat::Raw | LogFormat::Bar => StderrFormat::Text,
    });
    settings.log_format.set_flag("--log-format", log_format);
    // Errors and warnings about the other settings have this format too.
    if settings.log_format.value() == Some(&StderrFormat::Json) {
        set_lines(StderrLines::Json);
    }
    let mut settings = settings.resolve(environment)?;
    let connections = settings.max_connections_total.value().copied();
    let fit = limits::connections(connections, open_files);
    settings.max_connections_total.limit(fit);
    settings.warnings().iter().for_each(warn);
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use floe_config::ProcessUser;

    use super::*;
    use crate::commands::{Cli, Command};

    fn settings(line: &[impl AsRef<str>]) -> ServeSettings {
        let line = line.iter().map(AsRef::as_ref);
        let line = ["floe", "serve"].into_iter().chain(line);
        let Command::Serve(args) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        load(&args, &Environment::new([], ProcessUser::current()), None).unwrap()
    }

    #[test]
    fn port_alone_keeps_the_default_address() {
        for (line, expected) in [
            (&[][..], &["127.0.0.1:5000"][..]),
            (&["-p", "80"], &["127.0.0.1:80"]),
            (&["--host", "::1", "-p", "80"], &["[::1]:80"]),
            (&["--host", "localhost"], &["localhost:5000"]),
            (&["--host", ""], &["127.0.0.1:5000"]),
            (
                &["-p", "80", "--socket", "/s"],
                &["unix:/s", "127.0.0.1:80"],
            ),
            (&["-l", ":81", "--socket", "/s"], &["*:81", "unix:/s"]),
        ] {
            let found = settings(line).listen.value_or(Vec::new());
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn every_flag_has_a_key_and_a_setting() {
        let environment = Environment::new([], ProcessUser::current());
        let mut keys = ServeSettings::keys();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for arg in serve.get_arguments() {
            let flag = arg.get_long().unwrap();
            if FLAGS_WITHOUT_KEY.contains(&flag) {
                continue;
            }
            let key = match flag {
                "max-connections" => "max_connections_total".into(),
                flag => flag.replace('-', "_"),
            };
            let count = keys.len();
            keys.retain(|it| *it != key);
            assert_eq!(keys.len(), count - 1, "--{flag} has no key {key}");
            let printed = settings(&line(arg)).to_toml(&environment).unwrap();
            let start = match flag {
                "host" | "port" | "socket" => "listen = ".into(),
                _ => format!("{key} = "),
            };
            let origin = format!("flag --{flag}");
            let is_set = |line: &str| line.starts_with(&start) && line.contains(&origin);
            assert!(
                printed.lines().any(is_set),
                "--{flag} sets nothing: {printed}"
            );
        }
        assert_eq!(keys, [""; 0], "keys without a flag");
    }

    /// Returns arguments that set a flag.
    fn line(arg: &clap::Arg) -> Vec<String> {
        let flag = arg.get_long().unwrap();
        let choices = arg.get_possible_values();
        match (flag, choices.first()) {
            _ if !arg.get_action().takes_values() => vec![format!("--{flag}")],
            ("listen" | "metrics-listen" | "redirect-listen", _) => vec![format!("--{flag}=:1")],
            ("trusted-proxy", _) => vec![format!("--{flag}=unix")],
            ("compressed-cache-size", _) => {
                vec!["--compressed-cache=/c".into(), format!("--{flag}=1")]
            }
            (_, Some(choice)) => vec![format!("--{flag}={}", choice.get_name())],
            (_, None) => vec![format!("--{flag}=1")],
        }
    }

    /// These flags select the file, or what is done with the settings.
    const FLAGS_WITHOUT_KEY: [&str; 3] = ["config", "check", "print-config"];
}
