//! The files of a release beside its programs: manual pages, completions, documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use super::archive::{Archive, gzip};
use super::documents::{self, Documents};
use super::platform::Target;
use super::{MAINTAINER, Release, elf, notices, output};

/// Completion scripts: the shell, and the place below `share` where it looks for them.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/floe"),
    ("fish", "fish/vendor_completions.d/floe.fish"),
    ("zsh", "zsh/site-functions/_floe"),
];

impl Release {
    /// Builds the static binary for a target, and writes the files beside it. `runnable` is a floe
    /// that this machine can run.
    pub(super) fn make_files(
        &self,
        target: &'static Target,
        runnable: Option<&Path>,
    ) -> Result<Files> {
        let floe = self.build_floe(target)?;
        elf::refuse_dynamic(&floe)?;
        let notices = notices::notices(self, "floe-cli", target.triple)?;
        let stage = self.build_directory(target).join("package");
        if stage.exists() {
            fs::remove_dir_all(&stage)
                .with_context(|| format!("cannot remove {}", stage.display()))?;
        }
        let share = stage.join("share");
        write_share(&share, runnable.unwrap_or(&floe))?;
        let documents = documents::documents(&self.root)?;
        self.write_documents(&stage, &documents, &notices)?;
        Ok(Files {
            target,
            floe,
            share,
            documents,
            notices,
        })
    }

    /// Writes the documents, as the packages of distributions have them.
    fn write_documents(&self, stage: &Path, documents: &Documents, notices: &str) -> Result<()> {
        let tree = stage.join("documents");
        for (place, text) in documents {
            let file = tree.join(place);
            create(file.parent().unwrap_or(&tree))?;
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let others = stage.join("doc");
        create(&others)?;
        let changes = self.root.join("CHANGELOG.md");
        let changes =
            fs::read(&changes).with_context(|| format!("cannot read {}", changes.display()))?;
        for (name, text) in [
            ("changelog.gz", &*changes),
            ("changelog.Debian.gz", self.debian_changelog()?.as_bytes()),
            ("THIRD-PARTY.gz", notices.as_bytes()),
        ] {
            let file = others.join(name);
            fs::write(&file, gzip(text)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        // The rpm has the times of its files, unless they are newer than the commit.
        for name in LICENCES {
            let (file, copy) = (self.root.join(name), others.join(name));
            fs::read(&file)
                .and_then(|contents| fs::write(&copy, contents))
                .with_context(|| format!("cannot copy {}", file.display()))?;
        }
        Ok(())
    }

    /// The changes in the form of Debian, which point to those of floe.
    pub(super) fn debian_changelog(&self) -> Result<String> {
        let seconds = i64::try_from(self.time).context("the time of the commit")?;
        let time = Timestamp::from_second(seconds).context("the time of the commit")?;
        Ok(format!(
            "floe ({}-1) unstable; urgency=medium\n\n  * Release {}. The changes are in \
             changelog.gz of the package floe.\n\n -- {MAINTAINER}  {}\n",
            self.version,
            self.version,
            time.strftime("%a, %d %b %Y %H:%M:%S +0000")
        ))
    }

    /// Makes `floe-VERSION-ARCHITECTURE-linux.tar.gz` with everything that belongs to floe.
    pub(super) fn make_tarball(&self, files: &Files) -> Result<PathBuf> {
        let top = format!("floe-{}-{}", self.version, files.target.platform());
        let mut archive = Archive::default();
        archive.copy(&format!("{top}/bin/floe"), 0o755, &files.floe)?;
        add_directory(&mut archive, &format!("{top}/share"), &files.share)?;
        let documents = format!("{top}/share/doc/floe");
        for name in LICENCES {
            archive.copy(&format!("{documents}/{name}"), 0o644, &self.root.join(name))?;
        }
        for (place, text) in &files.documents {
            archive.file(&format!("{documents}/{place}"), 0o644, &**text);
        }
        archive.file(&format!("{documents}/THIRD-PARTY"), 0o644, &*files.notices);
        let tar = archive.tar(self.time)?;
        self.write(&format!("{top}.tar.gz"), &gzip(&tar)?)
    }
}

/// The contents of the packages for one platform.
pub(super) struct Files {
    pub(super) target: &'static Target,
    /// The static binary.
    pub(super) floe: PathBuf,
    /// Manual pages and completions.
    pub(super) share: PathBuf,
    /// Documents and examples.
    pub(super) documents: Documents,
    /// The licences of other works.
    pub(super) notices: String,
}

/// Writes manual pages and completions, by a floe of this machine.
fn write_share(share: &Path, floe: &Path) -> Result<()> {
    let pages = share.join("man/man1");
    create(&pages)?;
    output(Command::new(floe).arg("man").arg(&pages))?;
    compress_pages(&pages)?;
    for (shell, place) in COMPLETIONS {
        let script = output(Command::new(floe).args(["completions", shell]))?;
        let file = share.join(place);
        create(file.parent().unwrap_or(share))?;
        fs::write(&file, script + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Compresses manual pages, as packages have them.
fn compress_pages(pages: &Path) -> Result<()> {
    let entries =
        fs::read_dir(pages).with_context(|| format!("cannot read {}", pages.display()))?;
    let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
    for entry in entries {
        let page = entry.path();
        let text = fs::read(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let compressed = page.with_extension("1.gz");
        fs::write(&compressed, gzip(&text)?)
            .with_context(|| format!("cannot write {}", compressed.display()))?;
        fs::remove_file(&page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}

/// Adds all files of a directory.
fn add_directory(archive: &mut Archive, path: &str, from: &Path) -> Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let name = entry.file_name();
        let name = name.to_str().context("a file name is not UTF-8")?;
        let place = format!("{path}/{name}");
        if entry.path().is_dir() {
            add_directory(archive, &place, &entry.path())?;
        } else {
            archive.copy(&place, 0o644, &entry.path())?;
        }
    }
    Ok(())
}

fn create(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

/// The licences of floe.
const LICENCES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];
