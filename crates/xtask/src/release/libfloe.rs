//! The packages of libfloe: `libfloe1` with the shared library, and `libfloe-dev` with all that
//! other programs need to be built with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::platform::Target;
use super::{HOME_PAGE, MAINTAINER, Release, archive, notices, output};

impl Release {
    /// Makes `libfloe1_VERSION-1_ARCHITECTURE.deb` and `libfloe-dev_VERSION-1_ARCHITECTURE.deb`.
    pub(super) fn make_libfloe(&self, target: &Target) -> Result<Vec<PathBuf>> {
        let built = self.build_libfloe(target)?;
        let stage = built.join("libfloe");
        if stage.exists() {
            fs::remove_dir_all(&stage).context("cannot remove the files of an older build")?;
        }
        let notices = notices::notices(self, "floe-ffi", target.triple)?;
        let runtime = self.runtime_package(target, &built, &stage, &notices)?;
        let development = self.development_package(target, &built, &stage, &notices)?;
        Ok(vec![runtime, development])
    }

    fn runtime_package(
        &self,
        target: &Target,
        built: &Path,
        stage: &Path,
        notices: &str,
    ) -> Result<PathBuf> {
        let package = Package::new(self, target, stage, "libfloe1");
        let library = format!("usr/lib/{}", target.gnu);
        let name = format!("{library}/libfloe.so.{ABI}");
        package.copy(&built.join("libfloe.so"), &name, 0o644)?;
        package.link(
            &format!("libfloe.so.{ABI}"),
            &format!("{library}/libfloe.so.1"),
        )?;
        package.documents(notices)?;
        package.file("DEBIAN/triggers", b"activate-noawait ldconfig\n", 0o644)?;
        package.file("DEBIAN/shlibs", b"libfloe 1 libfloe1\n", 0o644)?;
        let symbols = self.root.join("packaging/libfloe/symbols");
        package.copy(&symbols, "DEBIAN/symbols", 0o644)?;
        let depends = package.shared_libraries(&name)?;
        package.build(&format!(
            "Section: libs\nMulti-Arch: same\nDepends: {depends}\n\
             Description: copies closures of Nix inside other programs: library\n \
             libfloe installs and copies closures of Nix, verifies stores and serves\n \
             them, behind a C interface. It needs neither Nix nor a daemon.\n \
             .\n \
             This package has the shared library.\n"
        ))
    }

    fn development_package(
        &self,
        target: &Target,
        built: &Path,
        stage: &Path,
        notices: &str,
    ) -> Result<PathBuf> {
        let package = Package::new(self, target, stage, "libfloe-dev");
        let library = format!("usr/lib/{}", target.gnu);
        let archive = format!("{library}/libfloe.a");
        package.copy(&built.join("libfloe.a"), &archive, 0o644)?;
        // Symbols for debuggers and the bitcode of the standard library are more than half of the
        // archive.
        let strip = [
            "--strip-unneeded",
            "--remove-section=.llvmbc",
            "--remove-section=.llvmcmd",
            "--enable-deterministic-archives",
        ];
        let archive = package.directory.join(archive);
        output(Command::new("strip").args(strip).arg(archive))?;
        package.link("libfloe.so.1", &format!("{library}/libfloe.so"))?;
        let headers = self.root.join("crates/floe-ffi/include");
        package.copy_directory(&headers, "usr/include")?;
        let cpp = self.root.join("bindings/cpp/floe");
        package.copy_directory(&cpp, "usr/include/floe")?;
        let file = self.root.join("crates/floe-ffi/floe.pc");
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let pkg_config = format!("{library}/pkgconfig/floe.pc");
        package.file(&pkg_config, installed(&text, target).as_bytes(), 0o644)?;
        for (language, name) in [("c", "install.c"), ("cpp", "install.cpp")] {
            let example = self.root.join("bindings").join(language).join(name);
            let place = format!("usr/share/doc/libfloe-dev/examples/{name}");
            package.copy(&example, &place, 0o644)?;
        }
        package.documents(notices)?;
        package.build(&format!(
            "Section: libdevel\nMulti-Arch: same\nDepends: libfloe1 (= {}-1)\n\
             Description: copies closures of Nix inside other programs: development files\n \
             libfloe installs and copies closures of Nix, verifies stores and serves\n \
             them, behind a C interface. It needs neither Nix nor a daemon.\n \
             .\n \
             This package has the headers for C and C++20, the static library, the\n \
             file for pkg-config, and examples.\n",
            self.version
        ))
    }
}

/// The text of `floe.pc` for the directories of an installed library.
fn installed(text: &str, target: &Target) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| match line.split_once('=') {
        Some(("libdir", _)) => format!("libdir=/usr/lib/{}\n", target.gnu),
        Some(("includedir", _)) => "includedir=/usr/include\n".to_owned(),
        Some(("cppdir", _)) => String::new(),
        _ => format!("{}\n", line.replace(" -I${cppdir}", "")),
    });
    lines.collect()
}

/// A package of Debian, while its files are collected.
struct Package<'a> {
    release: &'a Release,
    target: &'a Target,
    name: &'static str,
    directory: PathBuf,
}

impl<'a> Package<'a> {
    fn new(
        release: &'a Release,
        target: &'a Target,
        stage: &Path,
        name: &'static str,
    ) -> Package<'a> {
        Package {
            release,
            target,
            name,
            directory: stage.join(name),
        }
    }

    fn file(&self, place: &str, contents: &[u8], mode: u32) -> Result<()> {
        let file = self.new_file(place)?;
        fs::write(&file, contents).with_context(|| format!("cannot write {}", file.display()))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&file, mode)
            .with_context(|| format!("cannot change the mode of {}", file.display()))
    }

    fn copy(&self, from: &Path, place: &str, mode: u32) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(place, &contents, mode)
    }

    fn copy_directory(&self, from: &Path, place: &str) -> Result<()> {
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

    fn link(&self, target: &str, place: &str) -> Result<()> {
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

    /// Adds the licences and the changes, as Debian wants them.
    fn documents(&self, notices: &str) -> Result<()> {
        let place = format!("usr/share/doc/{}", self.name);
        let copyright = self.release.root.join("packaging/deb/copyright");
        let text = fs::read_to_string(&copyright)
            .with_context(|| format!("cannot read {}", copyright.display()))?;
        let text = text.replace("/doc/floe/", &format!("/doc/{}/", self.name));
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
        self.file(&file, overrides.as_bytes(), 0o644)?;
        let notices = archive::gzip(notices.as_bytes())?;
        self.file(&format!("{place}/THIRD-PARTY.gz"), &notices, 0o644)
    }

    /// Returns the packages that a library needs, as dpkg-shlibdeps finds them.
    fn shared_libraries(&self, place: &str) -> Result<String> {
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
                .env("DEB_HOST_ARCH", self.target.debian)
                .stderr(std::process::Stdio::null()),
        )?;
        let depends = printed.strip_prefix("shlibs:Depends=");
        Ok(depends
            .context("dpkg-shlibdeps printed no dependencies")?
            .to_owned())
    }

    /// Builds the package with these further fields.
    fn build(&self, fields: &str) -> Result<PathBuf> {
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
            release.version, self.target.debian,
        );
        self.file("DEBIAN/control", control.as_bytes(), 0o644)?;
        let deb = format!("{name}_{}-1_{}.deb", release.version, self.target.debian);
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

/// The version of the ABI: the major one is the number of the soname.
const ABI: &str = "1.1";
