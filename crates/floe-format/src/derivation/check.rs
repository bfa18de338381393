//! Checks that a derivation is consistent with itself and with its inputs.

use crate::derivation::hash_modulo::{ReadDerivation, masked_hash};
use crate::derivation::output::check_output_kinds;
use crate::derivation::{
    Derivation, DerivationError, DerivationHashCache, DerivationOutput, output_path_name,
};
use crate::store_path::StoreDir;

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
        let computed = match value {
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
                Some(computed)
            }
            _ => value.path(dir, name, output)?,
        };
        let Some(computed) = computed else {
            continue;
        };
        let variable = derivation.env.get(output.as_bytes());
        if variable.is_none_or(|value| *value != dir.full_path(&computed).as_bytes()) {
            return Err(DerivationError::OutputVariableMismatch {
                derivation: name.into(),
                output: output.clone(),
                computed,
            });
        }
    }
    Ok(())
}
