//! Checks that a derivation is consistent with itself and with its inputs.

use crate::derivation::hash_modulo::{ReadDerivation, masked_hash};
use crate::derivation::output::check_output_kinds;
use crate::derivation::{
    Derivation, DerivationError, DerivationHashCache, DerivationOutput, output_path_name,
};
use crate::store_path::{StoreDir, StorePath};

/// Implements [`Derivation::check_invariants`].
pub(super) fn check_invariants(
    derivation: &Derivation,
    dir: &StoreDir,
    name: &str,
    cache: &mut DerivationHashCache,
    read: &mut ReadDerivation<'_>,
) -> Result<(), DerivationError> {
    check_output_kinds(&derivation.outputs, name)?;
    // Computed for the first output that needs it.
    let mut hash = None;
    for (output, value) in &derivation.outputs {
        match value {
            DerivationOutput::InputAddressed(stated) => {
                let hash = match hash {
                    Some(hash) => hash,
                    None => *hash.insert(masked_hash(derivation, dir, cache, read)?),
                };
                let Some(hash) = hash else {
                    return Err(DerivationError::ShouldBeDeferred {
                        derivation: name.into(),
                        output: output.clone(),
                        stated: stated.clone(),
                    });
                };
                let computed = dir.make_store_path(
                    &format!("output:{output}"),
                    &hash.to_base16(),
                    &output_path_name(name, output),
                )?;
                if *stated != computed {
                    return Err(DerivationError::OutputPathMismatch {
                        derivation: name.into(),
                        output: output.clone(),
                        stated: stated.clone(),
                        computed,
                    });
                }
                check_variable(derivation, dir, name, output, computed)?;
            }
            DerivationOutput::Fixed(_) => {
                if let Some(computed) = value.path(dir, name, output)? {
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
        Some(value) if *value == dir.full_path(&computed).as_bytes() => Ok(()),
        _ => Err(DerivationError::OutputVariableMismatch {
            derivation: name.into(),
            output: output.into(),
            computed,
        }),
    }
}
