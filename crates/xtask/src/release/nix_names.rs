//! The package `floe-nix-names`: links to floe under the names of Nix's programs, where sshd finds
//! them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::Release;
use super::debian_package::Package;
use crate::target_directory;

impl Release {
    /// Makes `floe-nix-names_VERSION-1_all.deb`, which is the same for all machines.
    pub(super) fn make_nix_names(&self) -> Result<PathBuf> {
        let stage = target_directory(&self.root).join("nix-names");
        if stage.exists() {
            fs::remove_dir_all(&stage).context("cannot remove the files of an older build")?;
        }
        let package = Package::new(self, "all", &stage, "floe-nix-names");
        for (name, page) in NAMES {
            package.link("floe", &format!("usr/bin/{name}"))?;
            let place = format!("usr/share/man/man1/{name}.1.gz");
            package.link(&format!("{page}.1.gz"), &place)?;
        }
        package.licence_and_changes("floe")?;
        let preinst = self.root.join("packaging/nix-names/preinst");
        package.copy(&preinst, "DEBIAN/preinst", 0o755)?;
        package.build(&format!(
            "Section: utils\nMulti-Arch: foreign\nDepends: floe (>= {})\nConflicts: nix-bin\n\
             Description: copies closures of Nix under the names of Nix's programs\n \
             This package has links to floe under the names nix, nix-collect-garbage,\n \
             nix-copy-closure, nix-daemon, nix-env and nix-store. Then nix copy,\n \
             nix-copy-closure and deploy tools reach this machine over SSH, although it\n \
             has no Nix.\n \
             .\n \
             floe has the operations of these programs that build nothing. The package\n \
             refuses a machine that has Nix.\n",
            self.version
        ))
    }
}

/// The names that `floe link-names` links, and floe's manual pages for them.
const NAMES: [(&str, &str); 6] = [
    ("nix", "floe-nix"),
    ("nix-collect-garbage", "floe-nix-collect-garbage"),
    ("nix-copy-closure", "floe-nix-copy-closure"),
    ("nix-daemon", "floe-nix-daemon"),
    ("nix-env", "floe-nix-env"),
    ("nix-store", "floe-nix-store"),
];
