//! The hash of a derivation modulo its fixed outputs, from which its output paths follow.
//!
//! The path of an input-addressed output is a hash of the derivation in which each input
//! derivation is replaced by a hash of its own, found in the same way. The hash of a derivation
//! with a fixed output depends on that output only, so that it does not matter to a path how
//! its sources are fetched.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::derivation::output::check_output_kinds;
use crate::derivation::{Derivation, DerivationError, DerivationOutput, write};
use crate::hash::Hash;
use crate::store_path::{StoreDir, StorePath};

/// The hashes of derivations that were found already, by their paths.
///
/// It is good for one store directory, and for as long as derivations are read from the same
/// store or are known to hash to their paths.
#[derive(Clone, Debug, Default)]
pub struct DerivationHashCache(HashMap<StorePath, DerivationHash>);

impl DerivationHashCache {
    /// A cache that knows nothing.
    pub fn new() -> DerivationHashCache {
        DerivationHashCache::default()
    }
}

/// What stands for a derivation in the hash of one that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DerivationHash {
    /// A hash for the derivation as a whole.
    Regular(Hash),
    /// A hash for its fixed outputs, by name.
    FixedOutputs(BTreeMap<String, Hash>),
    /// Nothing: the paths of its outputs, or of what they are built from, are not known yet.
    Deferred,
}

/// Reads the derivation at a path.
pub(super) type ReadDerivation<'a> =
    dyn FnMut(&StorePath) -> Result<Derivation, DerivationError> + 'a;

/// The hash that the paths of a derivation's own outputs follow from; `None` if deferred.
pub(super) fn masked_hash(
    derivation: &Derivation,
    dir: &StoreDir,
    cache: &mut DerivationHashCache,
    read: &mut ReadDerivation<'_>,
) -> Result<Option<Hash>, DerivationError> {
    for input in derivation.input_derivations.keys() {
        add_to_cache(input, dir, cache, read)?;
    }
    let inputs = input_hashes(derivation, cache)?;
    Ok(inputs.map(|inputs| sha256(&write::aterm_modulo(derivation, dir, &inputs, true))))
}

/// Brings the hash of the derivation at this path, and all that it needs, into the cache.
///
/// Chains of derivations can be long, so this keeps its own stack.
fn add_to_cache(
    path: &StorePath,
    dir: &StoreDir,
    cache: &mut DerivationHashCache,
    read: &mut ReadDerivation<'_>,
) -> Result<(), DerivationError> {
    // The derivations whose inputs are being resolved. Those on the stack but not in here have
    // not been looked at yet.
    let mut open: HashMap<StorePath, Derivation> = HashMap::new();
    let mut stack = vec![path.clone()];
    while let Some(path) = stack.last().cloned() {
        if cache.0.contains_key(&path) {
            stack.pop();
            continue;
        }
        let (derivation, is_new) = match open.remove(&path) {
            Some(derivation) => (derivation, false),
            None => (read(&path)?, true),
        };
        let name = Derivation::name_from_path(&path)?;
        if is_new {
            check_output_kinds(&derivation.outputs, name)?;
        }
        let mut modulo = hash_from_outputs(&derivation, dir, name)?;
        if modulo.is_none() {
            let missing: Vec<StorePath> = derivation
                .input_derivations
                .keys()
                .filter(|input| !cache.0.contains_key(*input))
                .cloned()
                .collect();
            if missing.is_empty() {
                let inputs = input_hashes(&derivation, cache)?;
                modulo = Some(match inputs {
                    Some(inputs) => DerivationHash::Regular(sha256(&write::aterm_modulo(
                        &derivation,
                        dir,
                        &inputs,
                        false,
                    ))),
                    None => DerivationHash::Deferred,
                });
            } else {
                open.insert(path.clone(), derivation);
                if let Some(input) = missing.iter().find(|input| open.contains_key(*input)) {
                    return Err(DerivationError::Cycle(input.clone()));
                }
                stack.extend(missing);
            }
        }
        if let Some(modulo) = modulo {
            cache.0.insert(path, modulo);
            stack.pop();
        }
    }
    Ok(())
}

/// What stands for a derivation, if its outputs alone say so.
fn hash_from_outputs(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
) -> Result<Option<DerivationHash>, DerivationError> {
    let mut fixed = BTreeMap::new();
    for (output, value) in &derivation.outputs {
        match value {
            DerivationOutput::InputAddressed(_) => return Ok(None),
            DerivationOutput::Fixed(address) => {
                let path = value.path(dir, name, output).map_err(|source| {
                    DerivationError::OutputPath {
                        output: output.clone(),
                        source,
                    }
                })?;
                let path = path.map(|path| dir.full_path(&path)).unwrap_or_default();
                let method = address.method.prefix();
                let text = format!("fixed:out:{method}{}:{path}", address.hash.to_base16());
                fixed.insert(output.clone(), sha256(text.as_bytes()));
            }
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => return Ok(Some(DerivationHash::Deferred)),
        }
    }
    Ok(Some(DerivationHash::FixedOutputs(fixed)))
}

/// What stands for the input derivations, which must all be in the cache: hashes, and the outputs
/// used. `None` if one of them is deferred.
fn input_hashes(
    derivation: &Derivation,
    cache: &DerivationHashCache,
) -> Result<Option<BTreeMap<String, BTreeSet<String>>>, DerivationError> {
    let mut hashes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (input, outputs) in &derivation.input_derivations {
        match cache.0.get(input) {
            None | Some(DerivationHash::Deferred) => return Ok(None),
            Some(DerivationHash::Regular(hash)) => {
                let used = hashes.entry(hash.digest_base16()).or_default();
                used.extend(outputs.iter().cloned());
            }
            Some(DerivationHash::FixedOutputs(fixed)) => {
                for output in outputs {
                    let hash = fixed
                        .get(output)
                        .ok_or_else(|| DerivationError::NoSuchOutput {
                            input: input.clone(),
                            output: output.clone(),
                        })?;
                    hashes
                        .entry(hash.digest_base16())
                        .or_default()
                        .insert("out".into());
                }
            }
        }
    }
    Ok(Some(hashes))
}

fn sha256(text: &[u8]) -> Hash {
    Hash::sha256(floe_hash::sha256(text))
}
