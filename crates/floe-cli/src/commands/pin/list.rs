//! `floe pins`: shows the pins of a cache.

use floe_format::TrustedKeys;
use floe_format::pin::{PINS_FOLDER, Pin, is_pin_name};
use floe_names::pin_object;
use floe_transfer::NamedObject;
use serde_json::{Value, json};

use super::args::PinsArgs;
use super::{PinnedCache, check_name};
use crate::display::{eprint_error, eprint_line};
use crate::messages::escaped;
use crate::options::Settings;
use crate::package_names::ago;
use crate::stdout::print;

/// A pin as the cache has it.
struct Row {
    name: String,
    /// The pin, or why it cannot be used.
    pin: Result<Pin, String>,
}

pub(crate) fn run(args: &PinsArgs) -> anyhow::Result<()> {
    for name in &args.names {
        check_name(name)?;
    }
    let settings = Settings::load(&args.options, None)?;
    let cache = PinnedCache::open(&settings, args.from.as_deref())?;
    let cancel = &cache.session.cancel;
    let names = if args.names.is_empty() {
        let listed = cache.objects.list(PINS_FOLDER, cancel)?;
        let listed = listed.ok_or_else(|| {
            anyhow::anyhow!(
                "cannot list the pins of {}: the server has no list of them; give their names",
                cache.config
            )
        })?;
        listed
            .into_iter()
            .filter(|name| is_pin_name(name))
            .collect()
    } else {
        args.names.clone()
    };
    let mut rows = Vec::new();
    // The texts of all pins could fill the memory.
    for names in names.chunks(NAMES_AT_ONCE) {
        let objects: Vec<String> = names.iter().map(|name| pin_object(name)).collect();
        let found = cache.objects.get(&objects, cancel);
        for (name, found) in names.iter().zip(found) {
            rows.push(Row::new(name, found?));
        }
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let keys = settings.trusted_keys(&args.trust)?;
    if args.json {
        let pins: Vec<Value> = rows.iter().map(|row| row.to_json(&keys)).collect();
        print(json!({ "pins": pins }))?;
    } else {
        show(&rows, &keys)?;
    }
    let mut unusable = rows.iter().filter(|row| row.pin.is_err());
    match unusable.next() {
        None => Ok(()),
        Some(_) => anyhow::bail!("cannot show all pins of {}", cache.config),
    }
}

fn show(rows: &[Row], keys: &TrustedKeys) -> anyhow::Result<()> {
    if rows.is_empty() {
        eprint_line("the cache has no pins");
        return Ok(());
    }
    let width = rows
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or_default();
    for row in rows {
        match &row.pin {
            Ok(pin) => print(escaped(format!(
                "{:width$}  {}  {}, {}",
                row.name,
                pin.full_path(),
                ago(pin.time),
                match pin.trusted_by(keys) {
                    Some(key) => format!("signed by {key}"),
                    None => "not signed by a trusted key".into(),
                }
            )))?,
            Err(reason) => eprint_error(format!("cannot use the pin {}: {reason}", row.name)),
        }
    }
    Ok(())
}

/// How many pins are asked for at once.
const NAMES_AT_ONCE: usize = 512;

impl Row {
    fn new(name: &str, found: Option<NamedObject>) -> Row {
        let pin = match found {
            None => Err("the cache has no such pin".to_owned()),
            Some(object) => match Pin::parse(&object.contents) {
                Ok(pin) if pin.name != name => Err(format!("it is for the name {}", pin.name)),
                pin => pin.map_err(|error| error.to_string()),
            },
        };
        let name = name.to_owned();
        Row { name, pin }
    }

    fn to_json(&self, keys: &TrustedKeys) -> Value {
        match &self.pin {
            Ok(pin) => json!({
                "name": self.name,
                "path": pin.full_path(),
                "serial": pin.serial,
                "time": pin.time,
                "cacheId": pin.cache_id,
                "trustedBy": pin.trusted_by(keys),
            }),
            Err(reason) => json!({ "name": self.name, "error": reason }),
        }
    }
}
