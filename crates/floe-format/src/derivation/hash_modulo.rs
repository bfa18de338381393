//! The hash of a derivation modulo its fixed outputs, like Nix's `hashDerivationModulo`.
//!
//! The path of an input-addressed output is a hash of the derivation. Before hashing, each input
//! derivation is replaced by its own hash, which is computed in the same way. The hash of a
//! derivation with fixed outputs depends on these outputs only. A change in how a source is
//! fetched therefore changes no other path.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::derivation::output::check_output_kinds;
use crate::derivation::{Derivation, DerivationError, DerivationOutput, write};
use crate::hash::Hash;
use crate::store_path::{StoreDir, StorePath};

/// The computed hashes of derivations, by path.
///
/// A cache is valid for one store directory. All derivations must come from the same store, or be
/// known to match their paths.
#[derive(Clone, Debug, Default)]
pub struct DerivationHashCache(HashMap<StorePath, DerivationHash>);

/// The replacement of an input derivation in the hash of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DerivationHash {
    /// The hash of the derivation, for all of its outputs.
    Regular(Hash),
    /// The hashes of the fixed outputs, by name.
    FixedOutputs(BTreeMap<String, Hash>),
    /// No hash yet: the path of an output, or of one of its inputs, is not known before a build.
    Deferred,
}

/// A callback that returns the derivation at a path.
type ReadDerivation<'a> = dyn FnMut(&StorePath) -> Result<Derivation, DerivationError> + 'a;

impl Derivation {
    /// Returns the hash that identifies each output in realisations, by name
    /// (`staticOutputHashes`). Returns `None` if it is known only after a build.
    ///
    /// `name` is without `.drv`. `read` returns the input derivations.
    ///
    /// Errors: those of `read`, and those of input derivations that are inconsistent.
    pub fn output_hashes(
        &self,
        dir: &StoreDir,
        name: &str,
        cache: &mut DerivationHashCache,
        read: &mut ReadDerivation<'_>,
    ) -> Result<Option<BTreeMap<String, Hash>>, DerivationError> {
        match hash_from_outputs(self, dir, name)? {
            Some(DerivationHash::FixedOutputs(hashes)) => Ok(Some(hashes)),
            Some(_) => Ok(None),
            None => {
                let hash = masked_hash(self, dir, cache, read)?;
                let of_output = |hash| {
                    let names = self.outputs.keys().cloned();
                    names.map(|name| (name, hash)).collect()
                };
                Ok(hash.map(of_output))
            }
        }
    }
}

/// Computes the hash for the output paths of a derivation.
///
/// Returns `None` if an input derivation is deferred.
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

/// Adds the hash of the derivation at `path` to the cache, and first those of its inputs.
///
/// The stack is a vector, because chains of derivations can be longer than recursion allows.
fn add_to_cache(
    path: &StorePath,
    dir: &StoreDir,
    cache: &mut DerivationHashCache,
    read: &mut ReadDerivation<'_>,
) -> Result<(), DerivationError> {
    // The derivations that wait for their inputs. A path on the stack that is not in this map has
    // not been read yet.
    let mut open: HashMap<StorePath, Derivation> = HashMap::new();
    let mut stack = vec![path.clone()];
    while let Some(path) = stack.last().cloned() {
        if cache.0.contains_key(&path) {
            stack.pop();
            continue;
        }
        let derivation = match open.remove(&path) {
            Some(derivation) => derivation,
            None => {
                let derivation = read(&path)?;
                check_output_kinds(&derivation.outputs, Derivation::name_from_path(&path)?)?;
                derivation
            }
        };
        let name = Derivation::name_from_path(&path)?;
        let mut hash = hash_from_outputs(&derivation, dir, name)?;
        if hash.is_none() {
            let missing: Vec<StorePath> = derivation
                .input_derivations
                .keys()
                .filter(|input| !cache.0.contains_key(*input))
                .cloned()
                .collect();
            if missing.is_empty() {
                hash = Some(match input_hashes(&derivation, cache)? {
                    Some(inputs) => {
                        let text = write::aterm_modulo(&derivation, dir, &inputs, false);
                        DerivationHash::Regular(sha256(&text))
                    }
                    None => DerivationHash::Deferred,
                });
            } else {
                open.insert(path.clone(), derivation);
                // An input that still waits for its own inputs is below on the stack.
                if let Some(input) = missing.iter().find(|input| open.contains_key(*input)) {
                    return Err(DerivationError::Cycle(input.clone()));
                }
                stack.extend(missing);
            }
        }
        if let Some(hash) = hash {
            cache.0.insert(path, hash);
            stack.pop();
        }
    }
    Ok(())
}

/// Returns the replacement of a derivation if its outputs alone determine it.
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
                let path = value.path(dir, name, output)?;
                let path = path.map(|path| dir.full_path(&path)).unwrap_or_default();
                fixed.insert(output.clone(), address.fixed_output_hash(&path));
            }
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => return Ok(Some(DerivationHash::Deferred)),
        }
    }
    Ok(Some(DerivationHash::FixedOutputs(fixed)))
}

/// Returns the hashes of the input derivations in hexadecimal, each with the outputs used.
///
/// All input derivations must be in the cache. Returns `None` if one of them is deferred.
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
                    let used = hashes.entry(hash.digest_base16()).or_default();
                    used.insert("out".into());
                }
            }
        }
    }
    Ok(Some(hashes))
}

fn sha256(text: &[u8]) -> Hash {
    Hash::sha256(floe_hash::sha256(text))
}
