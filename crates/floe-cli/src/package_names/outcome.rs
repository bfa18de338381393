//! The messages about names that were looked up.

use std::time::SystemTime;

use floe_format::StoreDir;
use floe_names::{Origin, ResolvedName};
use serde_json::{Value, json};

use crate::display::{Level, eprint_line, is_json, warn, write_event};
use crate::messages::counted;
use crate::times;

/// Prints the path of a name, and what the user should know of it.
pub(crate) fn print_name(name: &ResolvedName, dir: &StoreDir) {
    let path = dir.full_path(&name.path);
    if let Origin::Offline(why) = &name.origin {
        warn(format_args!(
            "using the path of {} that was looked up {}: {why}",
            name.name,
            ago(name.resolved_at)
        ));
    }
    name.notes.iter().for_each(warn);
    let built = match (&name.pin, name.built_at) {
        (Some(pin), _) => Some(format!(", pinned {}", ago(pin.time))),
        (None, built) => built.map(|time| format!(", built {}", ago(time))),
    };
    let looked_up = match name.origin {
        Origin::Source => String::new(),
        _ if age(name.resolved_at) < 60 => String::new(),
        _ => format!(", looked up {}", ago(name.resolved_at)),
    };
    let line = format!(
        "{} is {path} ({}{}{looked_up})",
        name.name,
        name.alias.as_ref().unwrap_or(&name.source),
        built.unwrap_or_default()
    );
    if is_json() {
        let mut fields = to_json(name, dir);
        fields["message"] = line.into();
        write_event(Level::Info, "resolved", fields);
    } else {
        eprint_line(line);
    }
}

/// Returns the JSON of a name.
pub(crate) fn to_json(name: &ResolvedName, dir: &StoreDir) -> Value {
    json!({
        "name": name.name.to_string(),
        "path": dir.full_path(&name.path),
        "source": name.source,
        "resolvedAt": name.resolved_at,
        "builtAt": name.built_at,
        "pinnedAt": name.pin.as_ref().map(|pin| pin.time),
        "serial": name.pin.as_ref().map(|pin| pin.serial),
        "remembered": name.origin != Origin::Source,
    })
}

/// Returns how long ago a time was, such as `3 days ago`. A time in the future counts as now.
pub(crate) fn ago(seconds: u64) -> String {
    let age = age(seconds);
    let units = [
        (24 * 3600, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    match units.into_iter().find(|(unit, _)| age >= *unit) {
        Some((unit, name)) => format!("{} ago", counted(age / unit, name)),
        None => "now".into(),
    }
}

fn age(seconds: u64) -> u64 {
    times::seconds(SystemTime::now()).saturating_sub(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_in_the_largest_unit() {
        let now = times::seconds(SystemTime::now());
        assert_eq!(ago(now + 100), "now");
        assert_eq!(ago(now - 3 * 24 * 3600 - 5), "3 days ago");
        assert_eq!(ago(now - 3601), "1 hour ago");
    }
}
