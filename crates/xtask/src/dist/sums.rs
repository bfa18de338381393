//! The sums of all files of a release, and their signature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Release, output};

impl Release {
    /// Writes `SHA256SUMS` in the form of sha256sum, and signs it if there is a key.
    pub(super) fn write_sums(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut lines: Vec<String> = files.iter().map(|file| line(file)).collect::<Result<_>>()?;
        lines.sort_by(|one, other| one[SUM_LENGTH..].cmp(&other[SUM_LENGTH..]));
        let sums = self.write("SHA256SUMS", lines.concat().as_bytes())?;
        let signature = self.directory.join("SHA256SUMS.sig");
        let Some(key) = &self.key else {
            return Ok(vec![sums]);
        };
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-Y", "sign", "-n", NAMESPACE, "-f"]);
        output(sign.arg(key).arg(&sums))?;
        ensure!(signature.is_file(), "ssh-keygen wrote no signature");
        Ok(vec![sums, signature])
    }

    /// Writes `install.sh`, which knows the public key of this release.
    pub(super) fn write_installer(&self) -> Result<PathBuf> {
        let template = self.root.join("packaging/install.sh");
        let script = fs::read_to_string(&template)
            .with_context(|| format!("cannot read {}", template.display()))?;
        let script = match &self.key {
            None => script,
            Some(key) => {
                let public = output(Command::new("ssh-keygen").arg("-y").arg("-f").arg(key))?;
                // The comment of a key may name a person.
                let words: Vec<&str> = public.split_whitespace().take(2).collect();
                let line = format!("signer='{}'", words.join(" "));
                ensure!(
                    script.contains(NO_SIGNER),
                    "install.sh has no place for a key"
                );
                script.replacen(NO_SIGNER, &line, 1)
            }
        };
        self.write("install.sh", script.as_bytes())
    }
}

/// A line of `SHA256SUMS`.
fn line(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let digest = sha256(&bytes);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{digest}  {name}\n"))
}

/// The SHA-256 of bytes in base 16.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = floe_hash::sha256(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

const SUM_LENGTH: usize = 64;

/// The namespace of the signatures, so that one for another purpose is not accepted.
const NAMESPACE: &str = "floe-release";

/// The line of `install.sh` that a release replaces.
const NO_SIGNER: &str = "signer=''";
