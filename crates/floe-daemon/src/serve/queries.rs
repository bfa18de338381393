//! The replies that need the database alone.

use std::collections::BTreeSet;

use floe_format::StorePath;

use crate::derivations::realise_text;
use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Returns the closure of some paths.
///
/// Errors: [`HostError::NotValid`], and those of the database.
pub(super) fn closure(
    store: &HostedStore,
    paths: BTreeSet<StorePath>,
    include_outputs: bool,
) -> Result<BTreeSet<StorePath>, HostError> {
    for path in &paths {
        store.valid_path_info(path)?;
    }
    Ok(store.reader().full_closure(paths, include_outputs)?)
}

/// Fetches paths, unless they are valid. Returns why that is impossible; `None` if all of them are
/// there.
pub(super) fn refusal_to_build(
    store: &HostedStore,
    texts: &[String],
) -> Result<Option<String>, HostError> {
    for text in texts {
        match realise_text(store, text) {
            Ok(_) => {}
            Err(error @ (HostError::Refused(_) | HostError::Substitute(_))) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
