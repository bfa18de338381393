//! `floe config`: the settings that floe knows, and where their values come from.

use floe_engine::{Proxies, ProxyVar};
use serde_json::{Map, Value, json};

use super::print;
use crate::args::ConfigArgs;
use crate::config::note;
use crate::config::{ConfigError, Named};
use crate::display::say;
use crate::failure::Usage;
use crate::settings;

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<()> {
    let mut config = settings::config(&args.options)?;
    for file in &config.unread {
        say(format_args!("floe: passed over, as by Nix: {file}"));
    }
    let network = config.network();
    let proxies = config.proxies.clone();
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
        let settings = slots
            .iter()
            .map(|named| (named.name.to_owned(), named.slot.to_json()));
        let proxies = named_proxies(&proxies, &args.names)
            .map(|(name, variable)| (name.to_owned(), proxy_json(variable)));
        let object: Map<_, _> = settings.chain(proxies).collect();
        return print(Value::Object(object));
    }
    let lines: Vec<String> = slots
        .iter()
        .map(|named| format!("{} = {}", named.name, named.slot.text()))
        .collect();
    let width = lines.iter().map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0).min(ALIGNED_MAX);
    for (named, line) in slots.iter().zip(&lines) {
        let note = note(&network, named.name).map(|note| format!("; {note}"));
        let notes = note.unwrap_or_default();
        print(format_args!(
            "{line:width$}  # {}{notes}",
            named.slot.origin()
        ))?;
    }
    // A nix.conf cannot say these, so that they are comments as a whole.
    for (name, variable) in named_proxies(&proxies, &args.names) {
        let line = format!("# {name}: {}", variable.redacted());
        print(format_args!(
            "{line:width$}  # environment variable {}",
            variable.name
        ))?;
    }
    Ok(())
}

/// The proxies that the environment names, unless settings alone are asked for.
fn named_proxies<'a>(
    proxies: &'a Proxies,
    names: &[String],
) -> impl Iterator<Item = (&'static str, &'a ProxyVar)> + use<'a> {
    let all = [
        ("http-proxy", &proxies.http),
        ("https-proxy", &proxies.https),
        ("no-proxy", &proxies.exceptions),
    ];
    let is_wanted = names.is_empty();
    all.into_iter()
        .filter(move |_| is_wanted)
        .filter_map(|(name, variable)| Some((name, variable.as_ref()?)))
}

/// As of a setting.
fn proxy_json(variable: &ProxyVar) -> Value {
    json!({
        "value": variable.redacted(),
        "defaultValue": null,
        "source": { "kind": "environment", "variable": variable.name },
    })
}

/// How far to the right comments are aligned. A list of keys is longer than a screen is wide, and
/// shall not move the comments of all others out of sight.
const ALIGNED_MAX: usize = 48;
