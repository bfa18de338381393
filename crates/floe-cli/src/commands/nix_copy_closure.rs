//! `floe nix-copy-closure`: `floe copy` with the options of Nix's command, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use std::ffi::OsString;
use std::path::Path;

use anyhow::bail;
use clap::Parser as _;
use floe_transfer::url::redact_credentials;

use crate::commands::{Cli, Command};
use crate::exit::UsageError;
use args::NixCopyClosureArgs;

/// Returns the command line of floe. If the program was called as `nix-copy-closure`, that is the
/// command.
pub(crate) fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = arguments.into_iter().collect();
    let name = line.first().and_then(|name| Path::new(name).file_name());
    if name.is_some_and(|name| name == NAME) {
        line.insert(1, NAME.into());
    }
    line
}

pub(crate) fn run(args: &NixCopyClosureArgs) -> anyhow::Result<()> {
    if args.include_outputs {
        bail!(UsageError(
            "cannot use --include-outputs: floe does not read derivations for it; name the outputs"
                .into()
        ));
    }
    let mut uri = store_uri(&args.host)?;
    if args.gzip {
        uri += "?compress=true";
    }
    let direction = if args.from { "--from" } else { "--to" };
    // Nix's command demands no signatures either.
    let mut line = vec!["floe", "copy", "--no-check-sigs", direction, &uri];
    line.extend(
        args.use_substitutes
            .then_some("--substitute-on-destination"),
    );
    line.extend(args.dry_run.then_some("--dry-run"));
    line.push("--");
    line.extend(args.paths.iter().map(String::as_str));
    match Cli::try_parse_from(line)?.command {
        Command::Copy(copy) => super::copy::run(copy),
        _ => bail!("floe copy is another command"),
    }
}

/// Returns the URI of the store of `[USER@]HOST[:PORT]`. As with Nix, `ssh://` may stand before it.
fn store_uri(host: &str) -> anyhow::Result<String> {
    let schemes = ["ssh-ng://", "ssh://"];
    let address = schemes.iter().find_map(|scheme| host.strip_prefix(scheme));
    let address = address.unwrap_or(host);
    // It comes from inventories, and must not set parameters, which name programs.
    if let Some(other) = address.chars().find(|it| "/?#".contains(*it)) {
        let host = redact_credentials(host);
        bail!(UsageError(format!(
            "cannot use {host:?} as a host: it has the character {other:?}; use \
             [USER@]HOST[:PORT], or floe copy for a store URI"
        )));
    }
    // A zone of an IPv6 address follows a percent sign, which has another meaning in a URI.
    Ok(format!("ssh-ng://{}", address.replace('%', "%25")))
}

const NAME: &str = "nix-copy-closure";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_no_store_uri() {
        for (host, uri) in [
            ("host", "ssh-ng://host"),
            ("ssh://me@host:22", "ssh-ng://me@host:22"),
            ("ssh-ng://host", "ssh-ng://host"),
            ("fe80::1%eth0", "ssh-ng://fe80::1%25eth0"),
        ] {
            assert_eq!(store_uri(host).unwrap(), uri);
        }
        for host in [
            "localhost?remote-program=sh",
            "localhost/?remote-program=sh",
            "host#x",
            "https://host",
        ] {
            let error = store_uri(host).unwrap_err().to_string();
            assert!(error.contains("as a host"), "{error}");
        }
        let error = store_uri("http://u:secret@h?x").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn program_name_selects_the_command() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        let expected = ["/bin/nix-copy-closure", "nix-copy-closure", "host"];
        assert_eq!(line(&["/bin/nix-copy-closure", "host"]), expected);
        assert_eq!(line(&["floe", "copy"]), ["floe", "copy"]);
        assert!(line(&[]).is_empty());
    }
}
