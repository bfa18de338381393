//! Checks that a derivation is consistent with itself and with its inputs.

use crate::derivation::hash_modulo::masked_hash;
use crate::derivation::output::{check_output_kinds, check_output_path};
use crate::derivation::{
    Derivation, DerivationError, DerivationHashCache, DerivationOutput, output_path_name,
};
use crate::store_path::{StoreDir, StorePath};

impl Derivation {
    /// Checks that the outputs are consistent, like Nix's `checkInvariants`.
    ///
    /// The kinds of the outputs must be compatible. Every stated path must be the computed one, in
    /// the outputs and in the environment variables named after them.
    ///
    /// `name` is without `.drv`. `read` returns the input derivations. It is called at most once
    /// for each of them as long as the caller keeps `cache`.
    ///
    /// An output that is deferred without need is valid; Nix only warns of it. Nix's experimental
    /// feature `builder-rpc-v0` omits the variables and is not supported.
    pub fn check_invariants(
        &self,
        dir: &StoreDir,
        name: &str,
        cache: &mut DerivationHashCache,
        read: &mut dyn FnMut(&StorePath) -> Result<Derivation, DerivationError>,
    ) -> Result<(), DerivationError> {
        check_output_kinds(&self.outputs, name)?;
        // Computed for the first output that needs it.
        let mut hash = None;
        for (output, value) in &self.outputs {
            let computed = match value {
                DerivationOutput::InputAddressed(stated) => {
                    let hash = match hash {
                        Some(hash) => hash,
                        None => *hash.insert(masked_hash(self, dir, cache, read)?),
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
                    check_output_path(name, output, stated, &computed)?;
                    Some(computed)
                }
                _ => value.path(dir, name, output)?,
            };
            let Some(computed) = computed else {
                continue;
            };
            let variable = self.env.get(output.as_bytes());
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
}
