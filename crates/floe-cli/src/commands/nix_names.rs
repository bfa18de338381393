//! The names of Nix's programs: floe does their work if it is called by one of them.

use std::ffi::OsString;
use std::path::Path;

use super::{nix_collect_garbage, nix_copy_closure, nix_daemon, nix_env, nix_store};

/// The names, which are also commands of floe.
const NAMES: [&str; 5] = [
    nix_collect_garbage::NAME,
    nix_copy_closure::NAME,
    nix_daemon::NAME,
    nix_env::NAME,
    nix_store::NAME,
];

/// Returns the command line of floe. A name of Nix as that of the program is the command.
pub(crate) fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = arguments.into_iter().collect();
    let program = line.first().and_then(|name| Path::new(name).file_name());
    let name = program.and_then(|program| NAMES.into_iter().find(|name| program == *name));
    if let Some(name) = name {
        // `--help` shows both words.
        line.splice(..1, ["floe".into(), name.into()]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_selects_the_command() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        let expected = ["floe", "nix-copy-closure", "host"];
        assert_eq!(line(&["/bin/nix-copy-closure", "host"]), expected);
        let expected = ["floe", "nix-store", "--serve"];
        assert_eq!(line(&["nix-store", "--serve"]), expected);
        assert_eq!(line(&["floe", "copy"]), ["floe", "copy"]);
        assert!(line(&[]).is_empty());
    }
}
