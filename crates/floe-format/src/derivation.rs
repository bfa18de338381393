//! Derivations: the build instructions in the `.drv` files of a store.
//!
//! floe does not build. It parses a derivation to find its outputs, and checks that the stated
//! output paths are those that Nix computes from the derivation.

use std::collections::{BTreeMap, BTreeSet};

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::hash::Hash;
use crate::store_path::{DERIVATION_EXTENSION, StoreDir, StorePath};

mod check;
mod error;
mod hash_modulo;
mod output;
mod parse;
mod resolve;
mod write;

pub use error::DerivationError;
pub use hash_modulo::DerivationHashCache;
pub use output::{DerivationOutput, output_path_name};

/// A derivation.
///
/// Strings for the builder are bytes, because they need not be UTF-8. Structured attributes stay
/// the JSON text of the variable `__json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// The outputs, by name.
    pub outputs: BTreeMap<String, DerivationOutput>,
    /// The derivations that must be built first, each with the outputs that are used.
    pub input_derivations: BTreeMap<StorePath, BTreeSet<String>>,
    /// The store paths that must exist first and that no derivation builds.
    pub input_sources: BTreeSet<StorePath>,
    /// The system to build on, such as `x86_64-linux`.
    pub platform: String,
    /// The program that builds the outputs.
    pub builder: Vec<u8>,
    /// The arguments of the builder.
    pub args: Vec<Vec<u8>>,
    /// The environment of the builder.
    pub env: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Derivation {
    /// Returns the name of the derivation at a path, without `.drv`.
    pub fn name_from_path(path: &StorePath) -> Result<&str, DerivationError> {
        path.name()
            .strip_suffix(DERIVATION_EXTENSION)
            .ok_or_else(|| DerivationError::NotADerivation(path.clone()))
    }

    /// Computes the store path of the derivation itself. `name` is without `.drv`.
    pub fn store_path(&self, dir: &StoreDir, name: &str) -> Result<StorePath, DerivationError> {
        let hash = Hash::sha256(floe_hash::sha256(&self.to_aterm(dir, name)?));
        let method = ContentAddressMethod::Text;
        let inputs = self.input_derivations.keys().chain(&self.input_sources);
        let references = inputs.cloned().collect();
        let file_name = format!("{name}{DERIVATION_EXTENSION}");
        ContentAddress { method, hash }
            .store_path(dir, &file_name, &references, false)
            .map_err(|source| DerivationError::OutputPath {
                output: "the derivation".into(),
                source,
            })
    }

    /// Returns the paths of the outputs, by name. `drv_name` is without `.drv`.
    ///
    /// The path is `None` if it depends on the contents of this or another output.
    pub fn output_paths(
        &self,
        dir: &StoreDir,
        drv_name: &str,
    ) -> BTreeMap<String, Option<StorePath>> {
        let path = |(name, output): (&String, &DerivationOutput)| {
            // The parser has computed the paths of all fixed outputs, so this does not fail.
            let path = output.path(dir, drv_name, name).unwrap_or_default();
            (name.clone(), path)
        };
        self.outputs.iter().map(path).collect()
    }
}

/// Length of the longest derivation that parses, in bytes. The largest in nixpkgs have a few MB.
pub const DERIVATION_LEN_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests;
