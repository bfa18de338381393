//! Derivations, the recipes that store paths are built from: the `.drv` files of a store.
//!
//! floe builds nothing. It reads derivations to find the outputs of one, and checks that a
//! derivation names the output paths that follow from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::hash::Hash;
use crate::store_path::{DERIVATION_EXTENSION, StoreDir, StorePath};

mod check;
mod error;
mod hash_modulo;
mod output;
mod parse;
mod write;

pub use error::DerivationError;
pub use hash_modulo::DerivationHashCache;
pub use output::{DerivationOutput, output_path_name};

/// A derivation. Strings that the builder gets are bytes, since they need not be UTF-8.
///
/// Attributes that are structured, that is, JSON in the variable `__json`, stay the text that
/// they were found as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// The outputs by name.
    pub outputs: BTreeMap<String, DerivationOutput>,
    /// The derivations to be built before, and which of their outputs are used.
    pub input_derivations: BTreeMap<StorePath, BTreeSet<String>>,
    /// The paths to be there before that are built from nothing.
    pub input_sources: BTreeSet<StorePath>,
    /// The kind of machine to build on, such as `x86_64-linux`.
    pub platform: String,
    /// The program to run.
    pub builder: Vec<u8>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// Its environment.
    pub env: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Derivation {
    /// Parses the text of a `.drv` file. `name` is the derivation's name without `.drv`, as
    /// [`Derivation::name_from_path`] gives it; the paths of fixed outputs are checked with it.
    ///
    /// As strict as the newest Nix, and laxer where it is: commas between list items may be
    /// absent. What is experimental in Nix is understood, except for dynamic derivations. Beyond
    /// Nix, bytes behind the end are refused, and words printed without escaping that need it.
    pub fn parse(text: &[u8], dir: &StoreDir, name: &str) -> Result<Derivation, DerivationError> {
        parse::parse(text, dir, name)
    }

    /// The text of the `.drv` file; `name` is without `.drv`.
    pub fn to_aterm(&self, dir: &StoreDir, name: &str) -> Result<Vec<u8>, DerivationError> {
        write::aterm(self, dir, name)
    }

    /// The name, without `.drv`, of the derivation at this path.
    pub fn name_from_path(path: &StorePath) -> Result<&str, DerivationError> {
        path.name()
            .strip_suffix(DERIVATION_EXTENSION)
            .ok_or_else(|| DerivationError::NotADerivation(path.clone()))
    }

    /// The path at which a store keeps this derivation; `name` is without `.drv`.
    pub fn store_path(&self, dir: &StoreDir, name: &str) -> Result<StorePath, DerivationError> {
        let hash = Hash::sha256(floe_hash::sha256(&self.to_aterm(dir, name)?));
        let inputs = self.input_derivations.keys().chain(&self.input_sources);
        ContentAddress {
            method: ContentAddressMethod::Text,
            hash,
        }
        .store_path(
            dir,
            &format!("{name}{DERIVATION_EXTENSION}"),
            &inputs.cloned().collect(),
            false,
        )
        .map_err(|source| DerivationError::OutputPath {
            output: "the derivation".into(),
            source,
        })
    }

    /// The paths of the outputs; `None` where the build or other builds have to come first.
    /// `drv_name` is without `.drv`.
    pub fn output_paths(
        &self,
        dir: &StoreDir,
        drv_name: &str,
    ) -> BTreeMap<String, Option<StorePath>> {
        self.outputs
            .iter()
            .map(|(name, output)| {
                // It fails only for a fixed output that no parsed derivation can have.
                (
                    name.clone(),
                    output.path(dir, drv_name, name).unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Checks that the outputs' kinds go together and that every stated path is the one that
    /// follows from the derivation, in the outputs and in the variables named after them.
    ///
    /// `name` is without `.drv`. `read` gets the input derivations, each at most once as long as
    /// `cache` is kept. An output that is deferred without need is let pass, as in Nix, which
    /// warns. Nix's experimental feature `builder-rpc-v0`, under which the variables are absent,
    /// is not known here.
    pub fn check_invariants(
        &self,
        dir: &StoreDir,
        name: &str,
        cache: &mut DerivationHashCache,
        read: &mut dyn FnMut(&StorePath) -> Result<Derivation, DerivationError>,
    ) -> Result<(), DerivationError> {
        check::check_invariants(self, dir, name, cache, read)
    }
}

/// The longest derivation that is parsed. The largest in nixpkgs have a few megabytes.
pub const DERIVATION_LEN_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests;
