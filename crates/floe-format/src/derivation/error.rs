//! What can be wrong with a derivation.

use crate::content_address::ContentAddressError;
use crate::derivation::DERIVATION_LEN_MAX;
use crate::hash::HashError;
use crate::store_path::{StorePath, StorePathError};

/// Why bytes are not a derivation, or a derivation is not consistent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivationError {
    /// It is longer than [`DERIVATION_LEN_MAX`].
    #[error(
        "cannot parse derivation of {0} bytes: longer than DERIVATION_LEN_MAX, \
         {DERIVATION_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// It is in a format with a version. The only one known is for dynamic derivations, an
    /// experiment of Nix.
    #[error("cannot parse derivation: DrvWithVersion (dynamic derivations) is not supported")]
    DrvWithVersion,
    /// Something else is expected.
    #[error("cannot parse derivation: expected {expected:?} at byte {offset}")]
    Expected {
        /// Where it is expected.
        offset: usize,
        /// What is expected.
        expected: &'static str,
    },
    /// A string does not end.
    #[error("cannot parse derivation: the string at byte {offset} does not end")]
    Unterminated {
        /// Where the string begins.
        offset: usize,
    },
    /// A string that stands for a name, a path or a hash is not UTF-8, or has characters that
    /// are printed with a backslash.
    #[error("cannot parse derivation: the string at byte {offset} is not a plain word")]
    NotUnescaped {
        /// Where the string begins.
        offset: usize,
    },
    /// A store path in it is not valid.
    #[error("cannot parse derivation: {0}")]
    StorePath(#[from] StorePathError),
    /// A hash in it is not valid.
    #[error("cannot parse derivation: output {output:?}: {source}")]
    Hash {
        /// The output with the hash.
        output: String,
        /// What is wrong with it.
        source: HashError,
    },
    /// A hash algorithm in it is unknown.
    #[error("cannot parse derivation: output {output:?} has the unknown hash algorithm {name:?}")]
    UnknownAlgorithm {
        /// The output with the algorithm.
        output: String,
        /// The name found.
        name: String,
    },
    /// An output whose path is known only after the build states one.
    #[error("cannot parse derivation: output {output:?} cannot have a path before it is built")]
    UnexpectedPath {
        /// The output.
        output: String,
    },
    /// An input derivation is listed without any outputs.
    #[error("cannot parse derivation: no outputs of input derivation {0} are used")]
    NoOutputsUsed(StorePath),
    /// The path of a derivation's output cannot be computed.
    #[error("cannot compute the path of output {output:?}: {source}")]
    OutputPath {
        /// The output.
        output: String,
        /// Why not.
        source: ContentAddressError,
    },
    /// An output has another path than follows from the derivation.
    #[error("derivation {derivation:?} has output {output:?} at {stated}, not at {computed}")]
    OutputPathMismatch {
        /// The derivation's name.
        derivation: String,
        /// The output.
        output: String,
        /// The path that the derivation states.
        stated: StorePath,
        /// The path that follows from the derivation.
        computed: StorePath,
    },
    /// An output states a path although it depends on outputs that have none before they are
    /// built.
    #[error("derivation {derivation:?} has output {output:?} at {stated}, which cannot be known")]
    ShouldBeDeferred {
        /// The derivation's name.
        derivation: String,
        /// The output.
        output: String,
        /// The path that the derivation states.
        stated: StorePath,
    },
    /// The environment variable named after an output is not the output's path.
    #[error("derivation {derivation:?} does not set variable {output:?} to {computed}")]
    OutputVariableMismatch {
        /// The derivation's name.
        derivation: String,
        /// The output.
        output: String,
        /// The path that follows from the derivation.
        computed: StorePath,
    },
    /// The outputs are none, or of kinds that cannot go together.
    #[error("derivation {derivation:?}: {problem}")]
    InvalidOutputs {
        /// The derivation's name.
        derivation: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A derivation uses an output that its input does not have.
    #[error("no output {output:?} of input derivation {input}")]
    NoSuchOutput {
        /// The input derivation.
        input: StorePath,
        /// The output asked for.
        output: String,
    },
    /// The path is not that of a derivation.
    #[error("{0} is not the path of a derivation")]
    NotADerivation(StorePath),
    /// A derivation is its own input by way of others.
    #[error("derivation {0} depends on itself")]
    Cycle(StorePath),
    /// A derivation could not be read; to be made by the callback that reads inputs.
    #[error("cannot read the derivation {path}: {reason}")]
    Read {
        /// The derivation.
        path: StorePath,
        /// What went wrong.
        reason: String,
    },
}
