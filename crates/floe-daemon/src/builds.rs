//! The results that clients get instead of those of builds.

use std::collections::BTreeMap;

use floe_format::StorePath;
use floe_wire::worker::BuildResult;

use crate::derivations::{Wanted, are_valid, cannot_build, realisations, realise};
use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Fetches a path, or outputs of a derivation.
///
/// Errors: those of the store.
pub(crate) fn realise_with_result(
    store: &HostedStore,
    text: &str,
) -> Result<BuildResult, HostError> {
    let realised = || {
        let wanted = Wanted::parse(text, store.store_dir())?;
        let outputs = realise(store, &wanted)?;
        if outputs.is_empty() {
            return Ok(outputs);
        }
        realisations(store, &wanted.path, &outputs)
    };
    build_result(realised())
}

/// Returns whether the outputs of a derivation, which the store need not have, are valid.
///
/// Errors: those of the store.
pub(crate) fn result_of_derivation(
    store: &HostedStore,
    path: &StorePath,
    outputs: Vec<(String, String)>,
) -> Result<BuildResult, HostError> {
    if !are_valid(store, outputs.iter().map(|(_, path)| &**path))? {
        let shown = store.store_dir().full_path(path);
        return build_result(Err(HostError::Refused(cannot_build(&shown))));
    }
    if !store.reader().is_valid(path)? {
        return build_result(Ok(BTreeMap::new()));
    }
    let parsed =
        |(name, path): (String, String)| Some((name, store.store_dir().parse(&path).ok()?));
    let outputs = outputs.into_iter().filter_map(parsed).collect();
    build_result(realisations(store, path, &outputs))
}

/// Makes the result of a build of what floe does instead.
///
/// Errors: those of the store.
fn build_result(
    built: Result<BTreeMap<String, StorePath>, HostError>,
) -> Result<BuildResult, HostError> {
    match built {
        Ok(outputs) => Ok(BuildResult {
            status: ALREADY_VALID,
            message: String::new(),
            outputs,
        }),
        Err(error @ (HostError::Refused(_) | HostError::Substitute(_))) => Ok(BuildResult {
            status: MISC_FAILURE,
            message: error.to_string(),
            outputs: BTreeMap::new(),
        }),
        Err(error) => Err(error),
    }
}

/// `BuildResult::AlreadyValid`
const ALREADY_VALID: u64 = 2;

/// `BuildResult::MiscFailure`
const MISC_FAILURE: u64 = 9;
