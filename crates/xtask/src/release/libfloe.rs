//! The packages of libfloe: `libfloe1` with the shared library, and `libfloe-dev` with all that
//! other programs need to be built with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian_package::Package;
use super::platform::Target;
use super::{Release, notices, output};

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
        let package = Package::new(self, target.debian, stage, "libfloe1");
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
        let package = Package::new(self, target.debian, stage, "libfloe-dev");
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

/// The version of the ABI: the major one is the number of the soname.
const ABI: &str = "1.1";
