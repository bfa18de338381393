//! `floe nix-copy-closure`: `floe copy` with the options of Nix's command, also under its name.

pub(crate) mod args;
pub(crate) mod page;

use std::ffi::OsString;
use std::path::Path;

use anyhow::bail;
use clap::Parser as _;

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
    let uri = if args.gzip {
        format!("ssh-ng://{}?compress=true", args.host)
    } else {
        format!("ssh-ng://{}", args.host)
    };
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

const NAME: &str = "nix-copy-closure";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_selects_the_command() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        let expected = ["/bin/nix-copy-closure", "nix-copy-closure", "host"];
        assert_eq!(line(&["/bin/nix-copy-closure", "host"]), expected);
        assert_eq!(line(&["floe", "copy"]), ["floe", "copy"]);
        assert!(line(&[]).is_empty());
    }
}
