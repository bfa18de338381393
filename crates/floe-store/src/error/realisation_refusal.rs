//! The refusal of a realisation.

use floe_format::{DrvOutput, StorePath};

/// The reason why a store refuses a realisation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RealisationRefusal {
    /// The output has another path.
    #[error(
        "cannot register {new} as the output {id}: the store has {known} for it; delete that path \
         to replace it"
    )]
    Conflict {
        /// The output.
        id: DrvOutput,
        /// The registered path.
        known: StorePath,
        /// The path that was to be registered.
        new: StorePath,
    },
    /// The path is not valid, or a dependency of the output is not registered.
    #[error("cannot register {path} as the output {id}: it or a dependency is not valid")]
    NotValid {
        /// The output.
        id: DrvOutput,
        /// The path.
        path: StorePath,
    },
}
