//! Checking that a derivation is consistent with itself and with what it is built from.

use crate::derivation::modulo::{Read, masked_hash};
use crate::derivation::output::check_kinds;
use crate::derivation::{
    Derivation, DerivationError, DerivationOutput, ModuloCache, output_path_name,
};
use crate::store_path::{StoreDir, StorePath};

/// See [`Derivation::check_invariants`].
pub(super) fn check_invariants(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
    cache: &mut ModuloCache,
    read: &mut Read<'_>,
) -> Result<(), DerivationError> {
    check_kinds(&derivation.outputs, name)?;
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
