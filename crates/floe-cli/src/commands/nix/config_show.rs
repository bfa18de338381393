//! `nix config show`: the settings that floe knows, in the form of Nix.

use floe_config::{ConfigError, SettingEntry};
use serde_json::{Map, Value};

use super::args::ConfigShowArgs;
use crate::options::Settings;
use crate::stdout::print;

pub(super) fn run(args: &ConfigShowArgs) -> anyhow::Result<()> {
    let mut config = Settings::load(&args.options, None)?.config;
    let entries = config.entries();
    if let Some(name) = &args.name {
        let is_named = |entry: &&SettingEntry<'_>| {
            entry.name == name || entry.aliases.contains(&name.as_str())
        };
        return match entries.iter().find(is_named) {
            Some(entry) => print(entry.setting.text()),
            None => Err(ConfigError::Unknown(name.clone()).into()),
        };
    }
    if args.json {
        let objects = entries
            .iter()
            .map(|entry| (entry.name.to_owned(), to_json(entry)));
        return print(Value::Object(objects.collect::<Map<_, _>>()));
    }
    entries
        .iter()
        .try_for_each(|entry| print(format_args!("{} = {}", entry.name, entry.setting.text())))
}

/// Returns the fields of Nix that floe knows.
fn to_json(entry: &SettingEntry<'_>) -> Value {
    let mut value = entry.setting.to_json();
    value["aliases"] = entry.aliases.into();
    value
}
