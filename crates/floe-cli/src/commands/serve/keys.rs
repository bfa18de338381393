//! The files of the keys that sign what is served.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use floe_format::SecretKey;

/// The keys in these files, each of them once, and what the operator should be warned of.
///
/// `credentials` is where systemd puts credentials: their modes look open, but an access list
/// guards them.
pub(crate) fn read(
    files: &[PathBuf],
    credentials: Option<&Path>,
) -> anyhow::Result<(Vec<SecretKey>, Vec<String>)> {
    let mut keys: Vec<SecretKey> = Vec::new();
    let mut warnings = Vec::new();
    for file in files {
        let key = read_one(file)?;
        if keys.iter().any(|known| known.to_text() == key.to_text()) {
            continue;
        }
        keys.push(key);
        warnings.extend(permission_warning(file, credentials));
    }
    Ok((keys, warnings))
}

/// What is wrong with a key is never said in words of the file: they could be the secret.
fn read_one(file: &Path) -> anyhow::Result<SecretKey> {
    let attempt = || format!("reading the secret key in {}", file.display());
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|open| open.take(KEY_LEN_MAX).read_to_end(&mut bytes))
        .with_context(attempt)?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    match SecretKey::parse(text.trim()) {
        Ok(key) => Ok(key),
        Err(_) => bail!(
            "{}: it is not one key of the form NAME:BASE64; floe key generate NAME makes one",
            attempt()
        ),
    }
}

fn permission_warning(file: &Path, credentials: Option<&Path>) -> Option<String> {
    let place = |path: &Path| fs::canonicalize(path).ok();
    let is_credential = credentials
        .and_then(place)
        .zip(place(file))
        .is_some_and(|(dir, file)| file.starts_with(dir));
    let mode = fs::metadata(file).ok()?.permissions().mode() & 0o777;
    (!is_credential && mode & GROUP_OR_WORLD_READABLE != 0).then(|| {
        format!(
            "the secret key {} can be read by others than its owner (mode {mode:04o}); \
             chmod 600 would close it",
            file.display()
        )
    })
}

/// Far beyond any key with any sensible name.
const KEY_LEN_MAX: u64 = 64 * 1024;

/// The bits of a mode that let group and others read.
const GROUP_OR_WORLD_READABLE: u32 = 0o044;

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let file = dir.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn key_text(name: &str) -> String {
        format!(
            "{}\n",
            SecretKey::from_seed(name, [7; 32]).unwrap().to_text()
        )
    }

    #[test]
    fn a_key_that_is_named_twice_signs_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = key_file(dir.path(), "a", &key_text("a-1"), 0o600);
        let second = key_file(dir.path(), "b", &key_text("b-1"), 0o400);
        let (keys, warnings) = read(&[first.clone(), second, first], None).unwrap();
        let names: Vec<&str> = keys.iter().map(SecretKey::name).collect();
        assert_eq!(names, ["a-1", "b-1"]);
        assert_eq!(warnings, [] as [String; 0]);
    }

    #[test]
    fn a_file_that_others_can_read_gives_a_warning_unless_it_is_a_credential() {
        let dir = tempfile::tempdir().unwrap();
        let file = key_file(dir.path(), "a", &key_text("a-1"), 0o640);
        let (_, warnings) = read(std::slice::from_ref(&file), None).unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains(file.to_str().unwrap()) && warnings[0].contains("0640"));
        let (_, warnings) = read(&[file], Some(dir.path())).unwrap();
        assert_eq!(warnings, [] as [String; 0]);
    }

    #[test]
    fn an_error_names_the_file_and_nothing_of_its_content() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["sesame", "sesame:open", "sesame:b3Blbg==", ""] {
            let file = key_file(dir.path(), "bad", text, 0o600);
            let message = format!("{:#}", read(&[file], None).unwrap_err());
            assert!(message.contains("/bad"), "{message}");
            assert!(!message.contains("sesame"), "{message}");
        }
        let message = format!(
            "{:#}",
            read(&[dir.path().join("absent")], None).unwrap_err()
        );
        assert!(message.contains("/absent"), "{message}");
    }
}
