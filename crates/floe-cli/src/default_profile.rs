//! The profile of nix-env (`getDefaultProfile` of profiles.cc). A command that only reads makes no
//! link.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use floe_store::{Profile, StoreError, StoreLayout, is_trusted_owner};
use rustix::process::geteuid;

use crate::exit::UsageError;
use crate::options::{self, Settings};

/// The default profile, and the link in the home directory that leads to it.
#[derive(Debug)]
pub(crate) struct DefaultProfile {
    pub(crate) profile: Profile,
    /// `None` if `NIX_PROFILE` names the profile.
    link: Option<PathBuf>,
}

impl DefaultProfile {
    /// Finds the profile that `NIX_PROFILE` names, or that of the link in the home directory.
    ///
    /// Errors: there is no home directory, or another user owns the link.
    pub(crate) fn find(layout: &StoreLayout, settings: &Settings) -> Result<DefaultProfile> {
        if let Some(profile) = options::environment().profile() {
            let profile = Profile::at(&profile)?;
            return Ok(DefaultProfile {
                profile,
                link: None,
            });
        }
        let link = link(settings).ok_or_else(no_home)?;
        if fs::symlink_metadata(&link).is_ok_and(|found| !found.is_symlink()) {
            bail!(
                "cannot use the default profile: {} is no link; move it away, or name a profile \
                 with --profile",
                link.display()
            );
        }
        Ok(DefaultProfile {
            profile: profile_of(&link, layout)?,
            link: Some(link),
        })
    }

    /// Checks that a path of this store may become a generation.
    ///
    /// Errors: the link in the home directory leads to something else than a profile, or to one
    /// among those of another store.
    pub(crate) fn check(&self, layout: &StoreLayout) -> Result<()> {
        let place = self.profile.path();
        let shown = || match &self.link {
            Some(link) => format!("{}, to which {} leads", place.display(), link.display()),
            None => place.display().to_string(),
        };
        let advice = "name another profile with --profile PROFILE";
        match Profile::check(layout, place) {
            Err(StoreError::NotAProfile { .. } | StoreError::NotARoot(_)) => {
                bail!(
                    "cannot use the default profile {}: it is no profile; {advice}",
                    shown()
                )
            }
            checked => checked?,
        };
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let own = real(&layout.state_dir.join("profiles"));
        let mut directories = place.ancestors().skip(1).map(real);
        let of_a_store = directories.find(|it| it.ends_with("nix/var/nix/profiles"));
        if of_a_store.is_some_and(|it| it != own) {
            bail!(
                "cannot use the default profile {}: it belongs to another store; {advice}",
                shown()
            );
        }
        Ok(())
    }

    /// Makes the link in the home directory, if nothing is at its place.
    pub(crate) fn make_link(&self) -> Result<()> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        match symlink(self.profile.path(), link) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made.with_context(|| format!("cannot create the link {}", link.display())),
        }
    }
}

/// Returns the place of the link to the default profile. `None` without a home directory.
pub(crate) fn link(settings: &Settings) -> Option<PathBuf> {
    let environment = options::environment();
    let link = if *settings.config.use_xdg_base_directories.get() {
        environment.nix_state_home()?.join("profile")
    } else {
        environment.home()?.join(".nix-profile")
    };
    // With an empty HOME it would be in the working directory.
    link.is_absolute().then_some(link)
}

fn no_home() -> anyhow::Error {
    anyhow!(UsageError(
        "cannot find the default profile: HOME is no absolute path; name a profile with --profile"
            .into()
    ))
}

/// Returns the profile to which a link leads, or is to lead.
fn profile_of(link: &Path, layout: &StoreLayout) -> Result<Profile> {
    if let Ok(target) = fs::read_link(link) {
        let is_own = fs::symlink_metadata(link).is_ok_and(|it| is_trusted_owner(it.uid()));
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
        let state = options::environment().nix_state_home();
        state.ok_or_else(no_home)?.join("profiles")
    };
    Ok(Profile::at(&directory.join("profile"))?)
}
