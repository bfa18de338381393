//! Resolves a derivation: replaces the outputs of its inputs by their paths, which only their
//! builds tell, like Nix's `tryResolve`.
//!
//! Nix builds the resolved derivation. Versions after 2.34 record the outputs under its path.

use std::collections::BTreeMap;

use crate::derivation::hash_modulo::masked_hash;
use crate::derivation::{
    Derivation, DerivationError, DerivationHashCache, DerivationOutput, output_path_name,
};
use crate::nix32;
use crate::store_path::{StoreDir, StorePath};

/// A callback that returns the path of an output of an input, if it is known.
type PathOfOutput<'a, E> = dyn FnMut(&StorePath, &str) -> Result<Option<StorePath>, E> + 'a;

impl Derivation {
    /// Whether Nix resolves the derivation before it builds it (`shouldResolve`).
    pub fn needs_resolution(&self) -> bool {
        let is_input_addressed =
            |output: &DerivationOutput| matches!(output, DerivationOutput::InputAddressed(_));
        !self.input_derivations.is_empty() && !self.outputs.values().any(is_input_addressed)
    }

    /// Returns the resolved derivation. `path_of` returns the path of an output of an input.
    ///
    /// Returns `None` if one of these paths is not known. `name` is without `.drv`.
    ///
    /// Errors: those of `path_of`; [`DerivationError`] if a path of an output cannot be computed.
    pub fn resolve<E: From<DerivationError>>(
        &self,
        dir: &StoreDir,
        name: &str,
        path_of: &mut PathOfOutput<'_, E>,
    ) -> Result<Option<Derivation>, E> {
        let mut resolved = self.clone();
        let mut paths = BTreeMap::new();
        for (input, outputs) in std::mem::take(&mut resolved.input_derivations) {
            for output in outputs {
                let Some(path) = path_of(&input, &output)? else {
                    return Ok(None);
                };
                let placeholder = placeholder(&input, &output)?;
                paths.insert(placeholder, dir.full_path(&path).into_bytes());
                resolved.input_sources.insert(path);
            }
        }
        resolved.replace(&paths);
        resolved.fill_in_output_paths(dir, name)?;
        Ok(Some(resolved))
    }

    /// Replaces texts in all strings for the builder.
    fn replace(&mut self, replacements: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let replace = |text: &[u8]| {
            let mut text = text.to_vec();
            for (from, to) in replacements {
                text = replace_all(text, from, to);
            }
            text
        };
        self.builder = replace(&self.builder);
        self.args = self.args.iter().map(|arg| replace(arg)).collect();
        let variables = self.env.iter();
        self.env = variables
            .map(|(name, value)| (replace(name), replace(value)))
            .collect();
    }

    /// Computes the output paths that waited for those of the inputs.
    fn fill_in_output_paths(&mut self, dir: &StoreDir, name: &str) -> Result<(), DerivationError> {
        let deferred = |output: &DerivationOutput| matches!(output, DerivationOutput::Deferred);
        if !self.outputs.values().any(deferred) {
            return Ok(());
        }
        // A resolved derivation has no inputs.
        let mut no_inputs = |path: &StorePath| Err(DerivationError::NotADerivation(path.clone()));
        let cache = &mut DerivationHashCache::default();
        let Some(hash) = masked_hash(self, dir, cache, &mut no_inputs)? else {
            return Ok(());
        };
        for (output, value) in &mut self.outputs {
            if deferred(value) {
                let path = dir.make_store_path(
                    &format!("output:{output}"),
                    &hash.to_base16(),
                    &output_path_name(name, output),
                )?;
                let variable = output.clone().into_bytes();
                self.env.insert(variable, dir.full_path(&path).into());
                *value = DerivationOutput::InputAddressed(path);
            }
        }
        Ok(())
    }
}

/// Returns the text that stands for an output of an input until its path is known.
fn placeholder(derivation: &StorePath, output: &str) -> Result<Vec<u8>, DerivationError> {
    let name = Derivation::name_from_path(derivation)?;
    let text = format!(
        "nix-upstream-output:{}:{}",
        derivation.hash_part(),
        output_path_name(name, output)
    );
    let hash = floe_hash::sha256(text.as_bytes());
    Ok(format!("/{}", nix32::encode(&hash)).into_bytes())
}

fn replace_all(text: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.windows(from.len()).position(|part| part == from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    if replaced.is_empty() && rest.len() == text.len() {
        return text;
    }
    replaced.extend_from_slice(rest);
    replaced
}
