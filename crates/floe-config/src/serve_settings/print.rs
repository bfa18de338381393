//! Prints the settings of `floe serve` as a configuration file.

use std::fmt::Write as _;

use super::ServeSettings;
use super::option::{KeyKind, ServeEntry};
use crate::environment::{Environment, NIX_STORE_DIR};
use crate::error::ConfigError;
use crate::origin::Origin;

impl ServeSettings {
    /// Returns the effective settings as the text of a configuration file. The comment of each
    /// line names the origin of the value.
    ///
    /// Errors: [`ConfigError::NotPrintable`].
    pub fn to_toml(mut self, environment: &Environment) -> Result<String, ConfigError> {
        let mut lines = Vec::new();
        let has_store_dir = self.store_dir.is_set() || self.harmonia.names_store();
        for entry in printed_order(self.entries()) {
            let key = entry.key;
            match entry.setting.to_toml() {
                Some(value) => {
                    let value = value.ok_or(ConfigError::NotPrintable(key))?;
                    let origins = entry.setting.all_origins().iter().map(described);
                    let origins: Vec<String> = origins.collect();
                    lines.push((format!("{key} = {value}"), origins.join(" and ")));
                }
                None if matches!(entry.option.kind, KeyKind::Address | KeyKind::Harmonia) => {}
                None => lines.push((format!("# {key}"), "not set".into())),
            }
        }
        // These lines are comments as a whole, because no key means the same.
        let variables = environment.store_directories();
        for (name, value) in variables.filter(|(name, _)| !has_store_dir || *name != NIX_STORE_DIR)
        {
            let value = escaped(&value.to_string_lossy());
            lines.push((format!("# {name}={value}"), "environment variable".into()));
        }
        let width = lines.iter().map(|(line, _)| line.chars().count()).max();
        let width = width.unwrap_or(0).min(ALIGNED_MAX);
        let mut text = String::new();
        for (line, origin) in lines {
            writeln!(text, "{line:width$}  # {origin}").expect("a String takes every text");
        }
        Ok(text)
    }
}

/// Returns the entries in the order of a printed file.
fn printed_order(entries: Vec<ServeEntry<'_>>) -> Vec<ServeEntry<'_>> {
    let mut ordered: Vec<ServeEntry<'_>> = Vec::new();
    for entry in entries {
        let place = |key| ordered.iter().position(|other| other.key == key);
        let place = entry.option.printed_before.and_then(place);
        ordered.insert(place.unwrap_or(ordered.len()), entry);
    }
    ordered
}

fn described(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".into(),
        Origin::File { .. } => format!("file {}", escaped(&origin.to_string())),
        Origin::Flag(flag) => format!("flag {flag}"),
        Origin::NixConfig(_) | Origin::Variable(_) => format!("environment variable {origin}"),
    }
}

/// Returns a text that may stand in a comment, which ends at the first line break.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for char in text.chars() {
        if char.is_control() {
            escaped.extend(char.escape_debug());
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// The rightmost column at which comments are aligned. A list of addresses is wider than a screen,
/// and must not move the other comments out of sight.
const ALIGNED_MAX: usize = 48;

#[cfg(test)]
mod tests;
