//! The outputs of a derivation.

use std::collections::{BTreeMap, BTreeSet};

use crate::content_address::{ContentAddress, ContentAddressError, ContentAddressMethod};
use crate::derivation::DerivationError;
use crate::hash::HashAlgorithm;
use crate::store_path::{StoreDir, StorePath};

/// What is known of an output's path before the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DerivationOutput {
    /// The path follows from the derivation.
    InputAddressed(StorePath),
    /// The contents are known, and with them the path.
    Fixed(ContentAddress),
    /// The path will follow from the contents.
    Floating {
        /// What will be hashed.
        method: ContentAddressMethod,
        /// How it will be hashed.
        algorithm: HashAlgorithm,
    },
    /// The path will follow from the derivation, once the paths of its inputs are known.
    Deferred,
    /// The path will follow from the contents, which are new each time.
    Impure {
        /// What will be hashed.
        method: ContentAddressMethod,
        /// How it will be hashed.
        algorithm: HashAlgorithm,
    },
}

impl DerivationOutput {
    /// The path, if it is known; `drv_name` is without `.drv`.
    pub fn path(
        &self,
        dir: &StoreDir,
        drv_name: &str,
        output: &str,
    ) -> Result<Option<StorePath>, ContentAddressError> {
        match self {
            DerivationOutput::InputAddressed(path) => Ok(Some(path.clone())),
            DerivationOutput::Fixed(address) => address
                .store_path(
                    dir,
                    &output_path_name(drv_name, output),
                    &BTreeSet::new(),
                    false,
                )
                .map(Some),
            DerivationOutput::Floating { .. }
            | DerivationOutput::Deferred
            | DerivationOutput::Impure { .. } => Ok(None),
        }
    }
}

/// The name of an output's store path: the derivation's, with the output's appended unless it
/// is `out`.
pub fn output_path_name(drv_name: &str, output: &str) -> String {
    match output {
        "out" => drv_name.to_owned(),
        _ => format!("{drv_name}-{output}"),
    }
}

/// Checks that the kinds of the outputs go together.
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
    let mut rest = outputs.iter();
    let Some((first_name, first)) = rest.next() else {
        return problem("it has no outputs");
    };
    if matches!(first, DerivationOutput::Fixed(_)) {
        if !outputs
            .values()
            .all(|output| matches!(output, DerivationOutput::Fixed(_)))
        {
            return problem("its outputs are of several kinds");
        }
        if rest.next().is_some() {
            return problem("it has several fixed outputs");
        }
        if first_name != "out" {
            return problem("its fixed output is not named out");
        }
        return Ok(());
    }
    for (_, output) in rest {
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
