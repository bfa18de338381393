//! `floe config`: shows the settings and the origins of their values.

pub(crate) mod args;
pub(crate) mod page;

use floe_cache::{Proxies, ProxyVar};
use floe_config::{ConfigError, SettingEntry, StoreAccess, StoreChoice, setting_note};
use serde_json::{Map, Value, json};

use crate::display::eprint_line;
use crate::options::Settings;
use crate::stdout::print;
use args::ConfigArgs;

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<()> {
    // `nix config show` has one word more.
    let names = match args.names.as_slice() {
        [first, names @ ..] if first == "show" => names,
        names => names,
    };
    let settings = Settings::load(&args.options, None)?;
    let store_note = store_note(&settings);
    let mut config = settings.config;
    for file in &config.unreadable_files {
        eprint_line(format_args!("floe: ignoring the configuration file {file}"));
    }
    let network = config.network();
    let proxies = config.proxies.clone();
    let proxies = named_proxies(&proxies).filter(|_| names.is_empty());
    let mut entries = config.entries();
    if !names.is_empty() {
        let is = |entry: &SettingEntry<'_>, name: &str| {
            entry.name == name || entry.aliases.contains(&name)
        };
        for name in names {
            if !entries.iter().any(|entry| is(entry, name)) {
                return Err(ConfigError::Unknown(name.clone()).into());
            }
        }
        entries.retain(|entry| names.iter().any(|name| is(entry, name)));
    }
    if args.json {
        let mut object = Map::new();
        for entry in &entries {
            object.insert(entry.name.into(), entry.setting.to_json());
        }
        for (name, variable) in proxies {
            object.insert(name.into(), proxy_json(variable));
        }
        return print(Value::Object(object));
    }
    let shown = |entry: &SettingEntry<'_>| format!("{} = {}", entry.name, entry.setting.text());
    let lines: Vec<String> = entries.iter().map(shown).collect();
    let width = lines.iter().map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0).min(ALIGNED_MAX);
    for (entry, line) in entries.iter().zip(&lines) {
        let note = match entry.name {
            "store" => store_note.clone(),
            name => setting_note(&network, name),
        };
        let note = note.map(|note| format!("; {note}"));
        let (origin, note) = (entry.setting.origin(), note.unwrap_or_default());
        print(format_args!("{line:width$}  # {origin}{note}"))?;
    }
    // A nix.conf cannot set proxies, so these lines are comments as a whole.
    for (name, variable) in proxies {
        let line = format!("# {name}: {}", variable.redacted());
        let name = variable.name;
        print(format_args!("{line:width$}  # environment variable {name}"))?;
    }
    Ok(())
}

/// Returns why floe writes to the default store through the daemon, if it does.
fn store_note(settings: &Settings) -> Option<String> {
    let uri =
        settings
            .config
            .resolve_store(StoreChoice::AUTO, StoreAccess::Write, &settings.context);
    // The commands that need the store report an error.
    let target = uri.ok()?;
    let is_daemon = target.layout().is_none() && target.facts().root_layout.is_some();
    is_daemon.then(|| format!("this user may not write to it, so floe writes through {target}"))
}

/// Returns the proxies of the environment.
fn named_proxies(proxies: &Proxies) -> impl Iterator<Item = (&'static str, &ProxyVar)> {
    let all = [
        ("http-proxy", &proxies.http),
        ("https-proxy", &proxies.https),
        ("no-proxy", &proxies.exceptions),
    ];
    all.into_iter()
        .filter_map(|(name, variable)| Some((name, variable.as_ref()?)))
}

/// Returns a proxy in the form of a setting.
fn proxy_json(variable: &ProxyVar) -> Value {
    json!({
        "value": variable.redacted(),
        "defaultValue": null,
        "source": { "kind": "environment", "variable": variable.name },
    })
}

/// The rightmost column at which comments are aligned. A list of keys is wider than a screen, and
/// must not move the other comments out of sight.
const ALIGNED_MAX: usize = 48;
