//! The hash of a derivation modulo its fixed outputs, from which its output paths follow.
//!
//! The path of an input-addressed output is a hash of the derivation in which each input
//! derivation is replaced by a hash of its own, found in the same way. The hash of a derivation
//! with a fixed output depends on that output only, so that it does not matter to a path how
//! its sources are fetched.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::derivation::output::check_kinds;
use crate::derivation::{Derivation, DerivationError, DerivationOutput, print};
use crate::hash::Hash;
use crate::store_path::{StoreDir, StorePath};

/// The hashes of derivations that were found already, by their paths.
///
/// It is good for one store directory, and for as long as derivations are read from the same
/// store or are known to hash to their paths.
#[derive(Clone, Debug, Default)]
pub struct ModuloCache(HashMap<StorePath, Modulo>);

impl ModuloCache {
    /// A cache that knows nothing.
    pub fn new() -> ModuloCache {
        ModuloCache::default()
    }
}

/// What stands for a derivation in the hash of one that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Modulo {
    /// A hash for the derivation as a whole.
    Derivation(Hash),
    /// A hash for its fixed outputs, by name.
    Fixed(BTreeMap<String, Hash>),
    /// Nothing: the paths of its outputs, or of what they are built from, are not known yet.
    Deferred,
}

/// Reads the derivation at a path.
pub(super) type Read<'a> = dyn FnMut(&StorePath) -> Result<Derivation, DerivationError> + 'a;

/// The hash that the paths of a derivation's own outputs follow from; `None` if deferred.
pub(super) fn masked_hash(
    derivation: &Derivation,
    dir: &StoreDir,
    cache: &mut ModuloCache,
    read: &mut Read<'_>,
) -> Result<Option<Hash>, DerivationError> {
    for input in derivation.input_derivations.keys() {
        resolve(input, dir, cache, read)?;
    }
    let inputs = input_hashes(derivation, cache)?;
    Ok(inputs.map(|inputs| sha256(&print::modulo(derivation, dir, &inputs, true))))
}

/// Brings the hash of the derivation at this path, and all that it needs, into the cache.
///
/// Chains of derivations can be long, so this keeps its own stack.
fn resolve(
    path: &StorePath,
    dir: &StoreDir,
    cache: &mut ModuloCache,
    read: &mut Read<'_>,
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
            check_kinds(&derivation.outputs, name)?;
        }
        let mut modulo = immediate(&derivation, dir, name)?;
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
                    Some(inputs) => {
                        Modulo::Derivation(sha256(&print::modulo(&derivation, dir, &inputs, false)))
                    }
                    None => Modulo::Deferred,
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
fn immediate(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
) -> Result<Option<Modulo>, DerivationError> {
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
                let path = path.map(|path| dir.print(&path)).unwrap_or_default();
                let method = address.method.prefix();
                let text = format!("fixed:out:{method}{}:{path}", address.hash.to_base16());
                fixed.insert(output.clone(), sha256(text.as_bytes()));
            }
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => return Ok(Some(Modulo::Deferred)),
        }
    }
    Ok(Some(Modulo::Fixed(fixed)))
}

/// What stands for the input derivations, which must all be in the cache: hashes, and the outputs
/// used. `None` if one of them is deferred.
fn input_hashes(
    derivation: &Derivation,
    cache: &ModuloCache,
) -> Result<Option<BTreeMap<String, BTreeSet<String>>>, DerivationError> {
    let mut hashes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (input, outputs) in &derivation.input_derivations {
        match cache.0.get(input) {
            None | Some(Modulo::Deferred) => return Ok(None),
            Some(Modulo::Derivation(hash)) => {
                let used = hashes.entry(hash.digest_base16()).or_default();
                used.extend(outputs.iter().cloned());
            }
            Some(Modulo::Fixed(fixed)) => {
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
