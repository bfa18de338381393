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
    /// The hash of a derivation whose output paths are not known before a build, or those of one of
    /// its inputs. No output path follows from it.
    Deferred(Hash),
}

/// A callback that returns the derivation at a path.
type ReadDerivation<'a> = dyn FnMut(&StorePath) -> Result<Derivation, DerivationError> + 'a;

impl Derivation {
    /// Returns the hash that identifies each output in realisations, by name
    /// (`staticOutputHashes`).
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
    ) -> Result<BTreeMap<String, Hash>, DerivationError> {
        if let Some(hashes) = fixed_output_hashes(self, dir, name)? {
            return Ok(hashes);
        }
        let inputs = add_inputs_to_cache(self, dir, cache, read)?;
        let hash = sha256(&write::aterm_modulo(self, dir, &inputs.hashes, true));
        let names = self.outputs.keys().cloned();
        Ok(names.map(|name| (name, hash)).collect())
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
    let inputs = add_inputs_to_cache(derivation, dir, cache, read)?;
    let hash = || sha256(&write::aterm_modulo(derivation, dir, &inputs.hashes, true));
    Ok((!inputs.are_deferred).then(hash))
}

/// Adds the hashes of all inputs to the cache, and returns them.
fn add_inputs_to_cache(
    derivation: &Derivation,
    dir: &StoreDir,
    cache: &mut DerivationHashCache,
    read: &mut ReadDerivation<'_>,
) -> Result<InputHashes, DerivationError> {
    for input in derivation.input_derivations.keys() {
        add_to_cache(input, dir, cache, read)?;
    }
    input_hashes(derivation, cache)
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
        let fixed = fixed_output_hashes(&derivation, dir, name)?;
        let mut hash = fixed.map(DerivationHash::FixedOutputs);
        if hash.is_none() {
            let missing: Vec<StorePath> = derivation
                .input_derivations
                .keys()
                .filter(|input| !cache.0.contains_key(*input))
                .cloned()
                .collect();
            if missing.is_empty() {
                let inputs = input_hashes(&derivation, cache)?;
                let text = write::aterm_modulo(&derivation, dir, &inputs.hashes, false);
                let is_deferred = inputs.are_deferred || has_paths_of_contents(&derivation);
                hash = Some(if is_deferred {
                    DerivationHash::Deferred(sha256(&text))
                } else {
                    DerivationHash::Regular(sha256(&text))
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

/// Returns the hashes of the outputs if all of them are fixed.
fn fixed_output_hashes(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
) -> Result<Option<BTreeMap<String, Hash>>, DerivationError> {
    let mut fixed = BTreeMap::new();
    for (output, value) in &derivation.outputs {
        let DerivationOutput::Fixed(address) = value else {
            return Ok(None);
        };
        let path = value.path(dir, name, output)?;
        let path = path.map(|path| dir.full_path(&path)).unwrap_or_default();
        fixed.insert(output.clone(), address.fixed_output_hash(&path));
    }
    Ok(Some(fixed))
}

/// Whether the contents of an output determine its path. Paths that wait for those of inputs do not
/// count, because Nix defers some without need.
fn has_paths_of_contents(derivation: &Derivation) -> bool {
    let mut outputs = derivation.outputs.values();
    outputs.any(|output| {
        matches!(
            output,
            DerivationOutput::Floating { .. } | DerivationOutput::Impure { .. }
        )
    })
}

/// The replacements of the inputs of a derivation.
struct InputHashes {
    /// The hashes in hexadecimal, each with the outputs used.
    hashes: BTreeMap<String, BTreeSet<String>>,
    /// Whether one of them is deferred.
    are_deferred: bool,
}

/// Returns the hashes of the input derivations. All of them must be in the cache.
fn input_hashes(
    derivation: &Derivation,
    cache: &DerivationHashCache,
) -> Result<InputHashes, DerivationError> {
    let mut inputs = InputHashes {
        hashes: BTreeMap::new(),
        are_deferred: false,
    };
    for (input, outputs) in &derivation.input_derivations {
        let found = cache.0.get(input);
        inputs.are_deferred |= matches!(found, None | Some(DerivationHash::Deferred(_)));
        match found {
            None => {}
            Some(DerivationHash::Regular(hash) | DerivationHash::Deferred(hash)) => {
                let used = inputs.hashes.entry(hash.digest_base16()).or_default();
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
                    let used = inputs.hashes.entry(hash.digest_base16()).or_default();
                    used.insert("out".into());
                }
            }
        }
    }
    Ok(inputs)
}

fn sha256(text: &[u8]) -> Hash {
    Hash::sha256(floe_hash::sha256(text))
}
