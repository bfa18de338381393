//! The sums of all files of a release, and their signature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{output, write};

/// Signs the files of a release, if there is a key.
pub(super) struct Signer {
    /// `packaging/install.sh`, which has no key.
    template: PathBuf,
    /// The directory of the files.
    directory: PathBuf,
    key: Option<Key>,
}

struct Key {
    /// The private key, a file in the format of OpenSSH.
    file: PathBuf,
    /// The public key without its comment, which may name a person.
    public: String,
}

impl Signer {
    pub(super) fn new(root: &Path, directory: &Path, key: Option<PathBuf>) -> Result<Signer> {
        let read = |file: PathBuf| -> Result<Key> {
            let public = output(Command::new("ssh-keygen").arg("-y").arg("-f").arg(&file))?;
            let words: Vec<&str> = public.split_whitespace().take(2).collect();
            let public = words.join(" ");
            Ok(Key { file, public })
        };
        Ok(Signer {
            template: root.join("packaging/install.sh"),
            directory: directory.to_owned(),
            key: key.map(read).transpose()?,
        })
    }

    /// Writes `SHA256SUMS` in the form of sha256sum, and signs it if there is a key.
    pub(super) fn write_sums(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut lines: Vec<String> = files.iter().map(|file| line(file)).collect::<Result<_>>()?;
        lines.sort_by(|one, other| one[SUM_LENGTH..].cmp(&other[SUM_LENGTH..]));
        let sums = write(&self.directory, SUMS, lines.concat().as_bytes())?;
        let signature = self.directory.join(SIGNATURE);
        let Some(key) = &self.key else {
            return Ok(vec![sums]);
        };
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-Y", "sign", "-n", NAMESPACE, "-f"]);
        output(sign.arg(&key.file).arg(&sums))?;
        ensure!(signature.is_file(), "ssh-keygen wrote no signature");
        Ok(vec![sums, signature])
    }

    /// Writes `install.sh`, which knows the public key of this release.
    pub(super) fn write_installer(&self) -> Result<PathBuf> {
        let template = &self.template;
        let script = fs::read_to_string(template)
            .with_context(|| format!("cannot read {}", template.display()))?;
        ensure!(
            script.contains(NO_SIGNER),
            "install.sh has no place for a key"
        );
        let script = match &self.key {
            None => script,
            Some(key) => script.replacen(NO_SIGNER, &format!("signer='{}'", key.public), 1),
        };
        write(&self.directory, INSTALLER, script.as_bytes())
    }
}

/// Signs the files that `cargo xtask dist` has made without a key, so that nothing that runs during
/// the builds can read the key. Returns all files.
pub(super) fn sign_release(
    root: &Path,
    directory: &Path,
    key: Option<PathBuf>,
) -> Result<Vec<PathBuf>> {
    ensure!(
        key.is_some(),
        "cannot sign the release: there is no key; try FLOE_RELEASE_KEY=FILE"
    );
    let entries = fs::read_dir(directory).with_context(|| {
        let directory = directory.display();
        format!("cannot read {directory}; try `cargo xtask dist` first")
    })?;
    let mut made = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", directory.display()))?;
        if [INSTALLER, SUMS]
            .iter()
            .any(|name| entry.file_name() == **name)
        {
            continue;
        }
        ensure!(
            entry.file_name() != SIGNATURE,
            "cannot sign the release: it has a signature"
        );
        made.push(entry.path());
    }
    made.sort();
    let signer = Signer::new(root, directory, key)?;
    made.push(signer.write_installer()?);
    let sums = signer.write_sums(&made)?;
    made.extend(sums);
    Ok(made)
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

const INSTALLER: &str = "install.sh";
const SUMS: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.sig";

const SUM_LENGTH: usize = 64;

/// The namespace of the signatures, so that one for another purpose is not accepted.
const NAMESPACE: &str = "floe-release";

/// The line of `install.sh` that a release replaces.
const NO_SIGNER: &str = "signer=''";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_signed_once_after_the_builds() {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, key) = (scratch.path().join("dist"), scratch.path().join("key"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("floe.tar.gz"), "archive").unwrap();
        fs::write(directory.join("SHA256SUMS"), "without a signature").unwrap();
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        output(keygen.arg(&key)).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sign = |key: Option<&PathBuf>| sign_release(&root, &directory, key.cloned());
        assert!(sign(None).is_err());
        assert!(sign(Some(&scratch.path().join("absent"))).is_err());
        assert_eq!(sign(Some(&key)).unwrap().len(), 4);
        let script = fs::read_to_string(directory.join(INSTALLER)).unwrap();
        let public = fs::read_to_string(scratch.path().join("key.pub")).unwrap();
        let words: Vec<&str> = public.split_whitespace().take(2).collect();
        assert!(script.contains(&format!("signer='{}'", words.join(" "))));
        let signers = scratch.path().join("signers");
        fs::write(&signers, format!("floe {public}")).unwrap();
        let verify = "sha256sum --check --quiet SHA256SUMS && \
                      ssh-keygen -Y verify -f \"$1\" -I floe -n floe-release \
                      -s SHA256SUMS.sig < SHA256SUMS";
        let mut shell = Command::new("sh");
        shell.args(["-c", verify, "sh"]).arg(&signers);
        output(shell.current_dir(&directory)).unwrap();
        let error = sign(Some(&key)).unwrap_err().to_string();
        assert!(error.contains("it has a signature"), "{error}");
    }
}
