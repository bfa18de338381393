//! Builds, which floe refuses: whether their results are there already, and the message.

use floe_format::StorePath;

use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Returns the known paths of the outputs of a derivation.
pub(crate) fn outputs_of(
    store: &HostedStore,
    derivation: &StorePath,
) -> Result<Vec<StorePath>, HostError> {
    Ok(store.reader().derivation_outputs(derivation)?)
}

/// Whether there are paths, and all of them are valid.
pub(crate) fn are_valid<'a>(
    store: &HostedStore,
    paths: impl Iterator<Item = &'a str>,
) -> Result<bool, HostError> {
    let mut has_any = false;
    for path in paths {
        has_any = true;
        let Ok(path) = store.store_dir().parse(path) else {
            return Ok(false);
        };
        if !store.reader().is_valid(&path)? {
            return Ok(false);
        }
    }
    Ok(has_any)
}

/// The message for a client that wants a build.
pub(crate) fn cannot_build(path: &str) -> String {
    format!(
        "cannot build {path}: this machine has floe, which copies paths and builds none; build it \
         elsewhere, and copy the result"
    )
}
