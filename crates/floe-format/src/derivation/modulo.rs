//! The hash of a derivation modulo its fixed outputs, from which its output paths follow.
//!
//! The path of an input-addressed output is a hash of the derivation in which each input
//! derivation is replaced by a hash of its own, found in the same way. The hash of a derivation
//! with a fixed output depends on that output only, so that it does not matter to a path how
//! its sources are fetched.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::derivation::{Derivation, DerivationError, DerivationOutput, output_path_name, print};
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

type Read<'a> = dyn FnMut(&StorePath) -> Result<Derivation, DerivationError> + 'a;

/// See [`Derivation::check_invariants`].
pub(super) fn check_invariants(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
    cache: &mut ModuloCache,
    read: &mut Read<'_>,
) -> Result<(), DerivationError> {
    check_kinds(derivation, name)?;
    // Found for the first output that needs it.
    let mut hash = None;
    for (output, value) in &derivation.outputs {
        let output_path = |source| DerivationError::OutputPath {
            output: output.clone(),
            source,
        };
        match value {
            DerivationOutput::InputAddressed(stated) => {
                let hash = match hash {
                    Some(hash) => hash,
                    None => *hash.insert(masked_hash(derivation, dir, cache, read)?),
                };
                let Some(hash) = hash else {
                    return Err(DerivationError::NotDeferred {
                        derivation: name.into(),
                        output: output.clone(),
                        stated: stated.clone(),
                    });
                };
                let computed = dir.make_path(
                    &format!("output:{output}"),
                    &hash.to_base16(),
                    &output_path_name(name, output),
                )?;
                if *stated != computed {
                    return Err(DerivationError::WrongPath {
                        derivation: name.into(),
                        output: output.clone(),
                        stated: stated.clone(),
                        computed,
                    });
                }
                check_variable(derivation, dir, name, output, computed)?;
            }
            DerivationOutput::Fixed(_) => {
                if let Some(computed) = value.path(dir, name, output).map_err(output_path)? {
                    check_variable(derivation, dir, name, output, computed)?;
                }
            }
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => {}
        }
    }
    Ok(())
}

fn check_variable(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
    output: &str,
    computed: StorePath,
) -> Result<(), DerivationError> {
    match derivation.env.get(output.as_bytes()) {
        Some(value) if *value == dir.print(&computed).as_bytes() => Ok(()),
        _ => Err(DerivationError::WrongVariable {
            derivation: name.into(),
            output: output.into(),
            computed,
        }),
    }
}

/// Checks that the kinds of the outputs go together.
fn check_kinds(derivation: &Derivation, name: &str) -> Result<(), DerivationError> {
    let problem = |problem| {
        Err(DerivationError::Outputs {
            derivation: name.into(),
            problem,
        })
    };
    let mut outputs = derivation.outputs.iter();
    let Some((first_name, first)) = outputs.next() else {
        return problem("it has no outputs");
    };
    if matches!(first, DerivationOutput::Fixed(_)) {
        if !derivation
            .outputs
            .values()
            .all(|output| matches!(output, DerivationOutput::Fixed(_)))
        {
            return problem("its outputs are of several kinds");
        }
        if outputs.next().is_some() {
            return problem("it has several fixed outputs");
        }
        if first_name != "out" {
            return problem("its fixed output is not named out");
        }
        return Ok(());
    }
    for (_, output) in outputs {
        match (first, output) {
            (DerivationOutput::InputAddressed(_), DerivationOutput::InputAddressed(_))
            | (DerivationOutput::Deferred, DerivationOutput::Deferred)
            | (DerivationOutput::Impure { .. }, DerivationOutput::Impure { .. }) => {}
            (
                DerivationOutput::Floating { algorithm: one, .. },
                DerivationOutput::Floating {
                    algorithm: other, ..
                },
            ) => {
                if one != other {
                    return problem("its floating outputs have several hash algorithms");
                }
            }
            _ => return problem("its outputs are of several kinds"),
        }
    }
    Ok(())
}

/// The hash that the paths of a derivation's own outputs follow from; `None` if deferred.
fn masked_hash(
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
            check_kinds(&derivation, name)?;
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
