//! Reads the secret keys that sign what a server sends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use floe_cache::read_secret_key;
use floe_format::SecretKey;

use crate::environment::Environment;
use crate::error::ConfigError;

/// Reads secret keys, each of them once, and returns warnings for the operator too.
///
/// There is no warning about the mode of a systemd credential: its mode looks open, but an access
/// list guards it.
///
/// Errors: [`ConfigError::SecretKey`].
pub fn read_secret_keys(
    files: &[PathBuf],
    environment: &Environment,
) -> Result<(Vec<SecretKey>, Vec<String>), ConfigError> {
    read(files, environment.credentials_dir().as_deref())
}

fn read(
    files: &[PathBuf],
    credentials: Option<&Path>,
) -> Result<(Vec<SecretKey>, Vec<String>), ConfigError> {
    let mut keys: Vec<SecretKey> = Vec::new();
    let mut warnings = Vec::new();
    for file in files {
        let key = read_secret_key(file).map_err(|error| ConfigError::SecretKey(error.into()))?;
        if keys.iter().any(|known| known.to_text() == key.to_text()) {
            continue;
        }
        keys.push(key);
        warnings.extend(permission_warning(file, credentials));
    }
    Ok((keys, warnings))
}

/// Returns the warnings for the operator about files of secret keys that other users can read.
pub fn secret_key_warnings(files: &[PathBuf], environment: &Environment) -> Vec<String> {
    let credentials = environment.credentials_dir();
    let warnings = files.iter();
    let warnings = warnings.filter_map(|file| permission_warning(file, credentials.as_deref()));
    warnings.collect()
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
            "using the secret key {}, which other users can read (mode {mode:04o}); close it with \
             chmod 600",
            file.display()
        )
    })
}

/// The mode bits that let the group or other users read.
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
    fn key_named_twice_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = key_file(dir.path(), "a", &key_text("a-1"), 0o600);
        let second = key_file(dir.path(), "b", &key_text("b-1"), 0o400);
        let (keys, warnings) = read(&[first.clone(), second, first], None).unwrap();
        let names: Vec<&str> = keys.iter().map(SecretKey::name).collect();
        assert_eq!(names, ["a-1", "b-1"]);
        assert_eq!(warnings, [] as [String; 0]);
    }

    #[test]
    fn readable_key_file_gives_a_warning_unless_credential() {
        let dir = tempfile::tempdir().unwrap();
        let file = key_file(dir.path(), "a", &key_text("a-1"), 0o640);
        let (_, warnings) = read(std::slice::from_ref(&file), None).unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains(file.to_str().unwrap()) && warnings[0].contains("0640"));
        let (_, warnings) = read(&[file], Some(dir.path())).unwrap();
        assert_eq!(warnings, [] as [String; 0]);
    }

    #[test]
    fn key_error_names_the_file_and_no_content() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["sesame", "sesame:open", "sesame:b3Blbg==", ""] {
            let file = key_file(dir.path(), "bad", text, 0o600);
            let message = format!("{}", read(&[file], None).unwrap_err());
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
