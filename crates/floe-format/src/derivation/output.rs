//! Outputs of derivations and their paths.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::derivation::DerivationError;
use crate::hash::HashAlgorithm;
use crate::store_path::{StoreDir, StorePath};

/// An output of a derivation, by what determines its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DerivationOutput {
    /// The path follows from the derivation and is stated in it.
    InputAddressed(StorePath),
    /// The hash of the contents is known, and the path follows from it.
    Fixed(ContentAddress),
    /// The path follows from the contents, which are known after the build.
    Floating {
        /// The kind of data to hash.
        method: ContentAddressMethod,
        /// The algorithm to hash it with.
        algorithm: HashAlgorithm,
    },
    /// The path follows from the derivation, but depends on an input whose path is not known yet.
    Deferred,
    /// The path follows from the contents, which may differ in every build.
    Impure {
        /// The kind of data to hash.
        method: ContentAddressMethod,
        /// The algorithm to hash it with.
        algorithm: HashAlgorithm,
    },
}

impl DerivationOutput {
    /// Returns the path, or `None` if it is not known before the build.
    ///
    /// `drv_name` is the name of the derivation without `.drv`.
    pub fn path(
        &self,
        dir: &StoreDir,
        drv_name: &str,
        output: &str,
    ) -> Result<Option<StorePath>, DerivationError> {
        match self {
            DerivationOutput::InputAddressed(path) => Ok(Some(path.clone())),
            DerivationOutput::Fixed(address) => {
                let name = output_path_name(drv_name, output);
                let path = address.store_path(dir, &name, &BTreeSet::new(), false);
                path.map(Some)
                    .map_err(|source| DerivationError::OutputPath {
                        output: output.into(),
                        source,
                    })
            }
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => Ok(None),
        }
    }
}

/// Returns the name of an output's store path, like Nix's `outputPathName`.
///
/// It is the name of the derivation, followed by a dash and the output unless that is `out`.
pub fn output_path_name(drv_name: &str, output: &str) -> String {
    match output {
        "out" => drv_name.to_owned(),
        _ => format!("{drv_name}-{output}"),
    }
}

/// Checks that the stated path of an output is the computed one.
pub(super) fn check_output_path(
    drv_name: &str,
    output: &str,
    stated: &StorePath,
    computed: &StorePath,
) -> Result<(), DerivationError> {
    if stated == computed {
        return Ok(());
    }
    Err(DerivationError::OutputPathMismatch {
        derivation: drv_name.into(),
        output: output.into(),
        stated: stated.clone(),
        computed: computed.clone(),
    })
}

/// Checks that a derivation may have outputs of these kinds together.
pub(super) fn check_output_kinds(
    outputs: &BTreeMap<String, DerivationOutput>,
    name: &str,
) -> Result<(), DerivationError> {
    let problem = |problem| {
        Err(DerivationError::InvalidOutputs {
            derivation: name.into(),
            problem,
        })
    };
    let Some((first_name, first)) = outputs.first_key_value() else {
        return problem("there are none");
    };
    for output in outputs.values() {
        match (first, output) {
            (
                DerivationOutput::Floating { algorithm: one, .. },
                DerivationOutput::Floating {
                    algorithm: other, ..
                },
            ) if one != other => {
                return problem("floating outputs with different hash algorithms");
            }
            _ if discriminant(first) != discriminant(output) => {
                return problem("outputs of different kinds");
            }
            _ => {}
        }
    }
    if matches!(first, DerivationOutput::Fixed(_)) {
        if outputs.len() > 1 {
            return problem("several fixed outputs");
        }
        if first_name != "out" {
            return problem("the fixed output is not named out");
        }
    }
    Ok(())
}
