//! The realisations of a binary cache: `realisations/ID.doi`, and for Nix after 2.34
//! `build-trace-v2/DRV/OUTPUT.doi`.

use floe_format::{DrvOutput, Realisation, SecretKey};
use floe_transfer::{Cancel, Error};

use crate::error::CacheError;
use crate::storage::{Durability, ReadStorage, WriteStorage, get_and_wait, put_and_wait};

/// Returns the realisation of an output, and waits for it.
///
/// Errors: those of the storage; [`CacheError::Realisation`].
pub(crate) fn get_realisation<S: ReadStorage + ?Sized>(
    storage: &S,
    id: &DrvOutput,
    cancel: &Cancel,
) -> Result<Option<Realisation>, Error> {
    let name = id.object_name();
    let Some(text) = get_and_wait(storage, &name, cancel)? else {
        return Ok(None);
    };
    let parsed = Realisation::parse(id, &text).map_err(|source| CacheError::Realisation {
        url: format!("{}/{name}", storage.name().trim_end_matches('/')),
        source,
    });
    Ok(Some(parsed?))
}

/// Writes realisations with signatures by keys. A realisation that the cache has for the same path
/// keeps its signatures; another one is replaced, as Nix does.
pub(crate) fn put_realisations(
    storage: &dyn WriteStorage,
    realisations: &[Realisation],
    keys: &[SecretKey],
    cancel: &Cancel,
) -> Result<(), Error> {
    for realisation in realisations {
        let mut new = realisation.clone();
        for key in keys {
            new.sign(key);
        }
        match get_realisation(storage, &new.id, cancel) {
            Ok(Some(known)) if is_same(&known, &new) => {
                if known.signatures.is_superset(&new.signatures) {
                    continue;
                }
                new.signatures.extend(known.signatures);
            }
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            // One that cannot be read is of no use to clients, either.
            _ => {}
        }
        let text = new.to_json().to_string().into_bytes();
        put_and_wait(storage, &new.id.object_name(), text, Durability::Synced)?;
    }
    storage.sync()
}

/// Whether the signatures of two realisations sign the same text.
fn is_same(one: &Realisation, other: &Realisation) -> bool {
    one.out_path == other.out_path && one.dependent_realisations == other.dependent_realisations
}
