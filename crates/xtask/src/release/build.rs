//! Builds programs and libraries whose bytes do not depend on the machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::platform::Target;
use super::{Release, output};
use crate::target_directory;
use xtask::system::find_command;

impl Release {
    /// Builds the static binary and returns its path.
    pub(super) fn build_floe(&self, target: &Target) -> Result<PathBuf> {
        let directory = target_directory(&self.root);
        let built = self.build(target, "floe-cli", STATIC, &directory)?;
        Ok(built.join("floe"))
    }

    /// Builds the shared and the static library and returns their directory.
    pub(super) fn build_libfloe(&self, target: &Target) -> Result<PathBuf> {
        // With other flags, cargo would build all dependencies again in each release.
        let directory = target_directory(&self.root).join("libfloe");
        self.build(target, "floe-ffi", "", &directory)
    }

    /// Builds a package in a target directory and returns the directory with its files.
    fn build(
        &self,
        target: &Target,
        package: &str,
        flags: &str,
        directory: &Path,
    ) -> Result<PathBuf> {
        self.toolchain.add_target(target.triple)?;
        // With --target, the flags apply to the package and its dependencies alone. Procedural
        // macros are shared libraries and cannot be static.
        let status = self
            .cargo(target, flags)?
            .args(["build", "--release", "--locked", "--package", package])
            .args(["--target", target.triple, "--target-dir"])
            .arg(directory)
            .args(["--config", "profile.release.lto='thin'"])
            .args(["--config", "profile.release.strip='symbols'"])
            .status()
            .context("cannot run cargo build")?;
        ensure!(status.success(), "cargo build: {status}");
        Ok(directory.join(target.triple).join("release"))
    }

    /// The directory with the static binary for a target.
    pub(super) fn build_directory(&self, target: &Target) -> PathBuf {
        let directory = target_directory(&self.root).join(target.triple);
        directory.join("release")
    }

    /// A cargo whose compilers write no path of this machine.
    fn cargo(&self, target: &Target, flags: &str) -> Result<Command> {
        let prefixes = self.prefixes()?;
        let remap = |option: &str| {
            let options = prefixes.iter().map(|(path, name)| {
                let path = path.display();
                format!("{option}={path}={name}")
            });
            options.collect::<Vec<String>>().join(" ")
        };
        let rust_flags = format!("{flags} {}", remap("--remap-path-prefix"));
        let triple = target.triple.replace('-', "_");
        let compiler = self.c_compiler(target)?;
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase());
        let mut cargo = self.toolchain.command("cargo");
        cargo
            .current_dir(&self.root)
            .env("RUSTFLAGS", rust_flags)
            .env(linker, &compiler)
            .env(format!("CC_{triple}"), &compiler)
            .env(format!("CFLAGS_{triple}"), remap("-ffile-prefix-map"))
            .env("SOURCE_DATE_EPOCH", self.time.to_string())
            .env("CARGO_INCREMENTAL", "0");
        Ok(cargo)
    }

    /// The C compiler for a target, which also links.
    fn c_compiler(&self, target: &Target) -> Result<String> {
        if self.toolchain.host()? == target.triple {
            return Ok("cc".into());
        }
        let compiler = format!("{}-gcc", target.gnu);
        ensure!(
            find_command(&compiler).is_some(),
            "cannot build for {}: there is no {compiler}; install the compiler and its library \
             (Debian: gcc-{} and libc6-dev-{}-cross), or try --target {}",
            target.triple,
            target.gnu.replace('_', "-"),
            target.debian,
            self.toolchain.host()?
        );
        Ok(compiler)
    }

    /// Directories of this machine, and the names that stand for them in the files. If several
    /// contain a path, the compilers use the last of them.
    fn prefixes(&self) -> Result<Vec<(PathBuf, String)>> {
        let sysroot = self.toolchain.sysroot()?;
        let library = format!("/rustc/{}", self.toolchain.commit()?);
        let mut prefixes = vec![
            (cargo_home()?, "/cargo".into()),
            (self.root.clone(), "/floe".into()),
            (target_directory(&self.root), "/floe/target".into()),
            (Path::new(&sysroot).join("lib/rustlib/src/rust"), library),
        ];
        // A directory below another one decides, such as a home of cargo in the repository.
        prefixes.sort_by_key(|(path, _)| path.as_os_str().len());
        let has_space = |path: &Path| path.to_string_lossy().contains(char::is_whitespace);
        for (path, _) in &prefixes {
            ensure!(
                !has_space(path),
                "cannot build in {}: the flags of compilers are separated by spaces; try a path \
                 without spaces",
                path.display()
            );
        }
        Ok(prefixes)
    }

    /// The origin of the release: the commit, the compilers and the library of the system.
    pub(super) fn build_record(&self, target: &Target) -> Result<String> {
        let first_line = |program: &str, option: &str| -> Result<String> {
            let text = output(Command::new(program).arg(option))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        };
        Ok(format!(
            "commit: {}\ntarget: {}\ncc: {}\nld: {}\nlibc: {}\nrustflags: {STATIC}\n{}\n",
            self.commit,
            target.triple,
            first_line(&self.c_compiler(target)?, "--version")?,
            first_line("ld", "--version")?,
            first_line("ldd", "--version")?,
            self.toolchain.version()?,
        ))
    }
}

/// The directory in which cargo keeps the sources of dependencies.
pub(super) fn cargo_home() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    home.context("cannot find the home of cargo: HOME is not set")
}

/// Links the static archive of glibc, because the allocator and the locks of musl are slower.
/// Random numbers come from a system call: a static program cannot look up the function in glibc,
/// and would fall back to `/dev/urandom`, which an empty root directory lacks.
const STATIC: &str = "-Ctarget-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";
