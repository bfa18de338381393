//! The pins of a cache, whose paths a collection keeps.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use floe_format::HashPart;
use floe_format::pin::{PIN_GENERATIONS_FOLDER, PINS_FOLDER, Pin};
use floe_transfer::{Cancel, Error, NamedObjects};

use super::plan::not_collected;

/// The pins of a cache.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// The kept pins and generations: names and paths.
    pub(super) kept: Vec<(String, HashPart)>,
    /// The objects of old generations.
    pub(super) old: Vec<String>,
}

impl Pins {
    /// Reads all pins and their generations.
    ///
    /// Errors: those of the storage; a pin that does not parse, whose path is not known.
    pub(super) fn read(
        objects: &dyn NamedObjects,
        keep: NonZeroUsize,
        cancel: &Cancel,
    ) -> Result<Pins, Error> {
        let mut pins = Pins::default();
        // A pin that is written meanwhile is read, and its generation is not.
        let found = read_folder(objects, PIN_GENERATIONS_FOLDER, cancel)?;
        for (_, pin) in read_folder(objects, PINS_FOLDER, cancel)? {
            pins.kept.push((pin.name, pin.path.hash_part()));
        }
        let mut generations: BTreeMap<String, BTreeMap<u64, (String, HashPart)>> = BTreeMap::new();
        for (object, pin) in found {
            let generation = (object, pin.path.hash_part());
            let of_pin = generations.entry(pin.name).or_default();
            of_pin.insert(pin.serial, generation);
        }
        for (name, generations) in generations {
            // The newest generation is that of the pin, unless it was deleted.
            let is_pinned = pins.kept.iter().any(|(kept, _)| *kept == name);
            let keep = if is_pinned { keep.get() } else { 0 };
            for (age, (_, (object, part))) in generations.into_iter().rev().enumerate() {
                if age < keep {
                    pins.kept.push((name.clone(), part));
                } else {
                    pins.old.push(object);
                }
            }
        }
        Ok(pins)
    }
}

/// Reads the pins of a folder with the names of their objects.
fn read_folder(
    objects: &dyn NamedObjects,
    folder: &str,
    cancel: &Cancel,
) -> Result<Vec<(String, Pin)>, Error> {
    let names = objects.list(folder, cancel)?.unwrap_or_default();
    let names: Vec<String> = names
        .into_iter()
        .map(|it| format!("{folder}{it}"))
        .collect();
    let found = objects.get(&names, cancel);
    let mut pins = Vec::with_capacity(names.len());
    for (name, found) in names.into_iter().zip(found) {
        // `None`: another user has deleted it since.
        let Some(found) = found? else { continue };
        match Pin::parse(&found.contents) {
            Ok(pin) => pins.push((name, pin)),
            Err(error) => {
                return Err(not_collected(format!(
                    "the path of its pin {name} is not known: {error}; delete the object if it is \
                     damaged"
                )));
            }
        }
    }
    Ok(pins)
}
