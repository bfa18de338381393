//! The replies that need the database alone.

use std::collections::BTreeSet;

use floe_format::StorePath;

use crate::derivations::realise;
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
    match realise(store, texts) {
        Ok(_) => Ok(None),
        Err(error) if error.is_result_of_build() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
