//! The check of nix.conf and of the files that it names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use floe_config::{Config, Origin, read_secret_keys, secret_key_warnings};

use super::findings::{Findings, Part};
use crate::options::{environment, nearest_setting};

/// The files of secrets that others must not read.
const SECRET_MODE: u32 = 0o077;

pub(super) fn check(config: &mut Config, findings: &mut Findings) {
    let part = Part::Configuration;
    for file in &config.unreadable_files {
        let message = format!("the configuration file {file}");
        findings.warn(part, message, "make it readable, or remove it");
    }
    for setting in &config.unknown_settings {
        let message = format!(
            "{}: neither floe nor Nix has the setting {}",
            setting.origin, setting.name
        );
        findings.warn(part, message, nearest_setting(setting));
    }
    for overridden in &config.overridden {
        let message = format!(
            "{} of {} has no effect, because {} sets another value",
            overridden.name, overridden.earlier, overridden.later
        );
        findings.warn(part, message, "remove one of them");
    }
    for warning in secret_key_warnings(&config.secret_key_files.get().0, &environment()) {
        findings.warn(part, warning, "");
    }
    for file in &config.secret_key_files.get().0 {
        if let Err(error) = read_secret_keys(std::slice::from_ref(file), &environment()) {
            findings.problem(part, error, "correct secret-key-files");
        }
    }
    for file in &config.netrc_file.get().0 {
        check_netrc(file, findings);
    }
    if let Some(file) = &config.ssl_cert_file.get().0
        && !config.ssl_cert_file.is_default()
        && let Err(error) = fs::metadata(file)
    {
        let message = format!("the certificates {}: {error}", file.display());
        findings.problem(part, message, "correct ssl-cert-file");
    }
    let files = files_of(config);
    findings.fine(
        part,
        match &*files {
            [] => "no file or variable sets anything that floe uses".into(),
            files => format!("settings of {}", files.join(", ")),
        },
    );
}

fn check_netrc(file: &Path, findings: &mut Findings) {
    let Ok(metadata) = fs::metadata(file) else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & SECRET_MODE != 0 {
        let file = file.display();
        findings.warn(
            Part::Configuration,
            format!("other users can read the passwords in {file} (mode {mode:04o})"),
            format_args!("chmod 600 {file}"),
        );
    }
}

/// Returns the files and variables that set something.
fn files_of(config: &mut Config) -> Vec<String> {
    let mut places = Vec::new();
    for entry in config.entries() {
        for origin in entry.setting.all_origins() {
            let place = match origin {
                Origin::Default => continue,
                Origin::File { path, .. } => path.display().to_string(),
                Origin::NixConfig(_) => "NIX_CONFIG".into(),
                Origin::Variable(name) | Origin::Flag(name) => (*name).to_owned(),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}
