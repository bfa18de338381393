//! Checking that a derivation is consistent with itself and with what it is built from.

use crate::derivation::modulo::{Read, masked_hash};
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
pub(super) fn check_kinds(derivation: &Derivation, name: &str) -> Result<(), DerivationError> {
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
