//! The replies that need the database alone.

use std::collections::BTreeSet;

use floe_format::StorePath;

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::refusals::{are_valid, cannot_build, outputs_of};

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

/// Returns why paths cannot be built; `None` if all of them are there. A text is a path, or a
/// derivation with the names of outputs: `DERIVATION!OUTPUT,…`.
pub(super) fn refusal_to_build(
    store: &HostedStore,
    texts: &[String],
) -> Result<Option<String>, HostError> {
    for text in texts {
        let (path, _) = text.split_once('!').unwrap_or((text, ""));
        let is_built = match store.store_dir().parse(path) {
            Ok(path) if path.name().ends_with(".drv") => {
                let outputs = outputs_of(store, &path)?;
                let outputs: Vec<String> = outputs
                    .iter()
                    .map(|output| store.store_dir().full_path(output))
                    .collect();
                are_valid(store, outputs.iter().map(String::as_str))?
            }
            Ok(_) => are_valid(store, [path].into_iter())?,
            Err(_) => false,
        };
        if !is_built {
            return Ok(Some(cannot_build(path)));
        }
    }
    Ok(None)
}
