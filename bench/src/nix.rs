//! Programs of Nix, and settings that keep them away from the machine's own store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use xtask::{corpora, system};

/// The `bin` directory of the newest Nix: the one in FLOE_BENCH_NIX, else the one that
/// `cargo xtask test --full` unpacked, else the installed one.
pub(crate) fn newest(root: &Path) -> Result<PathBuf> {
    let given = system::variable("FLOE_BENCH_NIX").map(|given| root.join(given));
    let newest = given.or_else(|| corpora::newer_nix(root));
    let bin = newest.map(|directory| directory.join("bin"));
    bin.or_else(installed).context(
        "there is no Nix; run apt-get install nix-bin, or set FLOE_BENCH_NIX to a directory with \
         bin/nix",
    )
}

/// The `bin` directory of the installed Nix.
pub(crate) fn installed() -> Option<PathBuf> {
    Some(system::find_command("nix-store")?.parent()?.to_owned())
}

/// A directory with settings and an empty home.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    directory: PathBuf,
}

impl Settings {
    /// Writes the settings into a directory.
    pub(crate) fn write(directory: &Path) -> Result<Settings> {
        let file = directory.join("nix.conf");
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&file, NIX_CONF))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Settings {
            directory: directory.to_owned(),
        })
    }

    /// The home directory, which need not exist.
    pub(crate) fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Variables for every command; `None` removes a variable.
    pub(crate) fn environment(&self) -> Vec<(String, Option<String>)> {
        let home = self.home().display().to_string();
        let directory = self.directory.display().to_string();
        vec![
            ("NIX_REMOTE".into(), Some("local".into())),
            ("NIX_CONF_DIR".into(), Some(directory)),
            ("XDG_CACHE_HOME".into(), Some(format!("{home}/.cache"))),
            ("XDG_CONFIG_HOME".into(), None),
            ("XDG_DATA_HOME".into(), None),
            ("XDG_STATE_HOME".into(), None),
            ("HOME".into(), Some(home)),
        ]
    }

    /// A command with these settings, without stdin.
    pub(crate) fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        for (name, value) in self.environment() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command
    }
}

const NIX_CONF: &str = "sandbox = false\nbuild-users-group =\nsubstituters =\n\
                        experimental-features = nix-command\n";
