//! A package of Debian that is made from files, a directory and a few fields, with dpkg-deb.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{HOME_PAGE, MAINTAINER, Release, archive, output};

/// A package of Debian, while its files are collected.
pub(super) struct Package<'a> {
    release: &'a Release,
    architecture: &'static str,
    name: &'static str,
    pub(super) directory: PathBuf,
}

impl<'a> Package<'a> {
    pub(super) fn new(
        release: &'a Release,
        architecture: &'static str,
        stage: &Path,
        name: &'static str,
    ) -> Package<'a> {
        Package {
            release,
            architecture,
            name,
            directory: stage.join(name),
        }
    }

    pub(super) fn file(&self, place: &str, contents: &[u8], mode: u32) -> Result<()> {
        let file = self.new_file(place)?;
        fs::write(&file, contents).with_context(|| format!("cannot write {}", file.display()))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&file, mode)
            .with_context(|| format!("cannot change the mode of {}", file.display()))
    }

    pub(super) fn copy(&self, from: &Path, place: &str, mode: u32) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(place, &contents, mode)
    }

    pub(super) fn copy_directory(&self, from: &Path, place: &str) -> Result<()> {
        let entries =
            fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
            let name = entry.file_name();
            let place = format!("{place}/{}", name.to_string_lossy());
            if entry.path().is_dir() {
                self.copy_directory(&entry.path(), &place)?
            } else {
                self.copy(&entry.path(), &place, 0o644)?
            }
        }
        Ok(())
    }

    pub(super) fn link(&self, target: &str, place: &str) -> Result<()> {
        let link = self.new_file(place)?;
        symlink(target, &link).with_context(|| format!("cannot create {}", link.display()))
    }

    /// Returns a place in the package, whose directory exists.
    fn new_file(&self, place: &str) -> Result<PathBuf> {
        let file = self.directory.join(place);
        let parent = file.parent().unwrap_or(&self.directory);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        Ok(file)
    }

    /// Adds the licences of floe and of other works, and the changes.
    pub(super) fn documents(&self, notices: &str) -> Result<()> {
        self.licence_and_changes(self.name)?;
        let notices = archive::gzip(notices.as_bytes())?;
        let place = format!("usr/share/doc/{}/THIRD-PARTY.gz", self.name);
        self.file(&place, &notices, 0o644)
    }

    /// Adds the licence of floe and the changes, as Debian wants them. The package `holder` has the
    /// licences of other works.
    pub(super) fn licence_and_changes(&self, holder: &str) -> Result<()> {
        let place = format!("usr/share/doc/{}", self.name);
        let copyright = self.release.root.join("packaging/deb/copyright");
        let text = fs::read_to_string(&copyright)
            .with_context(|| format!("cannot read {}", copyright.display()))?;
        let text = text.replace("/doc/floe/", &format!("/doc/{holder}/"));
        self.file(&format!("{place}/copyright"), text.as_bytes(), 0o644)?;
        let changes = archive::gzip(self.release.debian_changelog()?.as_bytes())?;
        self.file(&format!("{place}/changelog.Debian.gz"), &changes, 0o644)?;
        let overrides = format!(
            "# The project has no public address yet.\n{name}: bogus-mail-host Maintainer *\n\
             # The package is not part of Debian.\n{name}: \
             initial-upload-closes-no-bugs [{place}/changelog.Debian.gz:1]\n",
            name = self.name
        );
        let file = format!("usr/share/lintian/overrides/{}", self.name);
        self.file(&file, overrides.as_bytes(), 0o644)
    }

    /// Returns the packages that a library needs, as dpkg-shlibdeps finds them.
    pub(super) fn shared_libraries(&self, place: &str) -> Result<String> {
        // The program reads debian/control, and needs no more of it than this.
        let source = self.directory.with_extension("source");
        fs::create_dir_all(source.join("debian")).context("cannot create debian")?;
        let control = "Source: floe\n\nPackage: libfloe1\nArchitecture: any\n";
        fs::write(source.join("debian/control"), control).context("cannot write debian/control")?;
        let printed = output(
            Command::new("dpkg-shlibdeps")
                .args(["-O", "--ignore-missing-info", "-e"])
                .arg(self.directory.join(place))
                .current_dir(&source)
                .env("DEB_HOST_ARCH", self.architecture)
                .stderr(std::process::Stdio::null()),
        )?;
        let depends = printed.strip_prefix("shlibs:Depends=");
        Ok(depends
            .context("dpkg-shlibdeps printed no dependencies")?
            .to_owned())
    }

    /// Builds the package with these further fields.
    pub(super) fn build(&self, fields: &str) -> Result<PathBuf> {
        let (release, name) = (self.release, self.name);
        let size = output(
            Command::new("du")
                .args(["--apparent-size", "-sk", "--exclude=DEBIAN"])
                .arg(&self.directory),
        )?;
        let size = size.split_whitespace().next().unwrap_or("0").to_owned();
        let control = format!(
            "Package: {name}\nSource: floe\nVersion: {}-1\nArchitecture: {}\n\
             Maintainer: {MAINTAINER}\nHomepage: {HOME_PAGE}\nInstalled-Size: {size}\n\
             Priority: optional\n{fields}",
            release.version, self.architecture,
        );
        self.file("DEBIAN/control", control.as_bytes(), 0o644)?;
        let deb = format!("{name}_{}-1_{}.deb", release.version, self.architecture);
        let deb = release.directory.join(deb);
        output(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "-Zxz", "--build"])
                .arg(&self.directory)
                .arg(&deb)
                .env("SOURCE_DATE_EPOCH", release.time.to_string()),
        )?;
        Ok(deb)
    }
}
