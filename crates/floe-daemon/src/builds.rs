//! The results that clients get instead of those of builds.

use std::collections::BTreeMap;

use floe_format::StorePath;
use floe_format::derivation::DerivationHashCache;
use floe_wire::worker::BuildResult;

use crate::derivations::{Fetched, Wanted, are_valid, realisations};
use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Fetches what some texts name, and returns the result of each.
///
/// Errors: a text is not that of a path; those of the store.
pub(crate) fn realise_with_results(
    store: &HostedStore,
    texts: Vec<String>,
) -> Result<Vec<(String, BuildResult)>, HostError> {
    let wanted = parse_all(store, &texts)?;
    let fetched = Fetched::fetch(store, &wanted)?;
    let mut cache = DerivationHashCache::default();
    let results = texts.into_iter().zip(&wanted).map(|(text, wanted)| {
        let realised = fetched.outputs(wanted).and_then(|outputs| {
            if outputs.is_empty() {
                return Ok(outputs);
            }
            realisations(store, &wanted.path, &outputs, &mut cache)
        });
        Ok((text, build_result(realised)?))
    });
    results.collect()
}

/// Fetches what some texts name.
///
/// Errors: a text is not that of a path; the first thing that would have to be built; those of the
/// substituters and of the store.
pub(crate) fn realise_all(store: &HostedStore, texts: &[String]) -> Result<(), HostError> {
    let wanted = parse_all(store, texts)?;
    let fetched = Fetched::fetch(store, &wanted)?;
    wanted
        .iter()
        .try_for_each(|wanted| fetched.outputs(wanted).map(drop))
}

fn parse_all(store: &HostedStore, texts: &[String]) -> Result<Vec<Wanted>, HostError> {
    let parsed = texts
        .iter()
        .map(|text| Wanted::parse(text, store.store_dir()));
    parsed.collect()
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
        return build_result(Err(HostError::CannotBuild(shown)));
    }
    if !store.reader().is_valid(path)? {
        return build_result(Ok(BTreeMap::new()));
    }
    let parsed =
        |(name, path): (String, String)| Some((name, store.store_dir().parse(&path).ok()?));
    let outputs = outputs.into_iter().filter_map(parsed).collect();
    let cache = &mut DerivationHashCache::default();
    build_result(realisations(store, path, &outputs, cache))
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
        Err(error) if error.is_result_of_build() => Ok(BuildResult {
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
