//! The profile of nix-env (`getDefaultProfile` of profiles.cc). floe makes neither the link in the
//! home directory nor directories.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use floe_store::{Profile, StoreLayout, is_trusted_owner};
use rustix::process::geteuid;

use crate::exit::UsageError;
use crate::options::{self, Settings};

/// Returns the profile that `NIX_PROFILE` names, or that of the link in the home directory.
///
/// Errors: there is no home directory, or another user owns the link.
pub(in crate::commands) fn default_profile(
    layout: &StoreLayout,
    settings: &Settings,
) -> Result<Profile> {
    let environment = options::environment();
    if let Some(profile) = environment.profile() {
        return Ok(Profile::at(&profile)?);
    }
    let no_home = || {
        anyhow!(UsageError(
            "cannot find the default profile: HOME is not set; name a profile with --profile"
                .into()
        ))
    };
    let state = environment.nix_state_home().ok_or_else(no_home)?;
    let link = if *settings.config.use_xdg_base_directories.get() {
        state.join("profile")
    } else {
        environment.home().ok_or_else(no_home)?.join(".nix-profile")
    };
    if let Ok(target) = fs::read_link(&link) {
        let is_own = fs::symlink_metadata(&link).is_ok_and(|it| is_trusted_owner(it.uid()));
        if !is_own {
            bail!(
                "cannot use the profile of {}: another user owns this link and could redirect it; \
                 try --profile PROFILE, or running as that user",
                link.display()
            );
        }
        let directory = link.parent().unwrap_or(Path::new("/"));
        return Ok(Profile::at(&directory.join(target))?);
    }
    let directory = if geteuid().is_root() {
        layout.state_dir.join("profiles/per-user/root")
    } else {
        state.join("profiles")
    };
    Ok(Profile::at(&directory.join("profile"))?)
}
