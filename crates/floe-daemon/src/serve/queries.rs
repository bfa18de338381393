//! The replies that need the database alone.

use std::collections::BTreeSet;

use floe_format::StorePath;

use crate::derivations::{Wanted, realise};
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
    let reader = store.reader();
    for path in &paths {
        store.valid_path_info(path)?;
    }
    let mut closure: BTreeSet<StorePath> = BTreeSet::new();
    let mut roots: Vec<StorePath> = paths.into_iter().collect();
    while !roots.is_empty() {
        let found = reader.closure_paths(&roots)?;
        roots.clear();
        for path in found {
            if !closure.insert(path.clone()) || !include_outputs {
                continue;
            }
            for output in reader.derivation_outputs(&path)? {
                if !closure.contains(&output) && reader.is_valid(&output)? {
                    roots.push(output);
                }
            }
        }
    }
    Ok(closure)
}

/// Fetches paths, unless they are valid. Returns why that is impossible; `None` if all of them are
/// there.
pub(super) fn refusal_to_build(
    store: &HostedStore,
    texts: &[String],
) -> Result<Option<String>, HostError> {
    for text in texts {
        let wanted = Wanted::parse_legacy(text, store.store_dir());
        match wanted.and_then(|wanted| realise(store, &wanted)) {
            Ok(_) => {}
            Err(error @ (HostError::Refused(_) | HostError::Substitute(_))) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
