//! `floe config`: the settings that floe knows, and where their values come from.

use serde_json::Map;

use super::print;
use crate::args::ConfigArgs;
use crate::config::note;
use crate::config::{ConfigError, Named};
use crate::failure::Usage;
use crate::progress::say;
use crate::settings;

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<()> {
    let mut config = settings::config(&args.options)?;
    for file in &config.unread {
        say(format_args!("floe: passed over, as by Nix: {file}"));
    }
    let network = config.network();
    let mut slots = config.slots();
    if !args.names.is_empty() {
        let is =
            |named: &Named<'_>, name: &str| named.name == name || named.aliases.contains(&name);
        for name in &args.names {
            if !slots.iter().any(|named| is(named, name)) {
                return Err(Usage::from(ConfigError::Unknown(name.clone())).into());
            }
        }
        slots.retain(|named| args.names.iter().any(|name| is(named, name)));
    }
    if args.json {
        let object: Map<_, _> = slots
            .iter()
            .map(|named| (named.name.to_owned(), named.slot.to_json()))
            .collect();
        return print(serde_json::Value::Object(object));
    }
    let lines: Vec<String> = slots
        .iter()
        .map(|named| format!("{} = {}", named.name, named.slot.text()))
        .collect();
    let width = lines.iter().map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0).min(ALIGNED_MAX);
    for (named, line) in slots.iter().zip(&lines) {
        let unused = UNUSED
            .contains(&named.name)
            .then(|| "not used yet".to_owned());
        let notes = note(&network, named.name).into_iter().chain(unused);
        let notes: String = notes.map(|note| format!("; {note}")).collect();
        print(format_args!(
            "{line:width$}  # {}{notes}",
            named.slot.origin()
        ))?;
    }
    Ok(())
}

/// Settings that are read and checked, and that nothing obeys yet: nobody shall trust in them.
const UNUSED: [&str; 3] = ["build-users-group", "fsync-metadata", "use-sqlite-wal"];

/// How far to the right comments are aligned. A list of keys is longer than a screen is wide, and
/// shall not move the comments of all others out of sight.
const ALIGNED_MAX: usize = 48;
