//! The errors of derivations.

use crate::content_address::ContentAddressError;
use crate::derivation::DERIVATION_LEN_MAX;
use crate::hash::HashError;
use crate::store_path::{StorePath, StorePathError};

/// Reason why bytes are not a valid derivation, or a derivation is not consistent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivationError {
    /// The derivation is longer than [`DERIVATION_LEN_MAX`].
    #[error("cannot parse derivation: longer than {DERIVATION_LEN_MAX} bytes")]
    TooLong(usize),
    /// The derivation has a version, as only experimental dynamic derivations have.
    #[error("cannot parse derivation: DrvWithVersion (dynamic derivations) is not supported")]
    DrvWithVersion,
    /// The syntax requires another text.
    #[error("cannot parse derivation: expected {expected:?} at byte {offset}")]
    Expected {
        /// Where the text is expected.
        offset: usize,
        /// The expected text.
        expected: &'static str,
    },
    /// A string has no closing quote.
    #[error("cannot parse derivation: the string at byte {offset} has no closing quote")]
    Unterminated {
        /// Where the string starts.
        offset: usize,
    },
    /// A name, a path or a hash is not UTF-8, or has characters that need escapes.
    #[error("cannot parse derivation: the string at byte {offset} has escapes or is not UTF-8")]
    NotUnescaped {
        /// Where the string starts.
        offset: usize,
    },
    /// A store path is not valid.
    #[error("cannot parse derivation: {0}")]
    StorePath(#[from] StorePathError),
    /// The hash of an output is not valid.
    #[error("cannot parse derivation: output {output:?}: {source}")]
    Hash {
        /// The output.
        output: String,
        /// The error in the hash.
        source: HashError,
    },
    /// The hash algorithm of an output is unknown.
    #[error("cannot parse derivation: output {output:?} has unknown hash algorithm {name:?}")]
    UnknownAlgorithm {
        /// The output.
        output: String,
        /// The name found.
        name: String,
    },
    /// An output states a path that is known only after the build.
    #[error("cannot parse derivation: output {output:?} must not state a path before the build")]
    UnexpectedPath {
        /// The output.
        output: String,
    },
    /// An input derivation is listed without outputs.
    #[error("cannot parse derivation: input derivation {0} has an empty list of outputs")]
    NoOutputsUsed(StorePath),
    /// The path of an output cannot be computed.
    #[error("cannot compute the path of output {output:?}: {source}")]
    OutputPath {
        /// The output.
        output: String,
        /// The cause.
        source: ContentAddressError,
    },
    /// The stated path of an output differs from the computed one.
    #[error(
        "derivation {derivation:?} states path {stated} for output {output:?}, but the computed \
         path is {computed}"
    )]
    OutputPathMismatch {
        /// The name of the derivation.
        derivation: String,
        /// The output.
        output: String,
        /// The path in the derivation.
        stated: StorePath,
        /// The path that Nix would compute.
        computed: StorePath,
    },
    /// An output states a path although it depends on inputs without a known path.
    #[error(
        "derivation {derivation:?} states path {stated} for output {output:?}, but it depends on \
         outputs whose paths are not known yet"
    )]
    ShouldBeDeferred {
        /// The name of the derivation.
        derivation: String,
        /// The output.
        output: String,
        /// The path in the derivation.
        stated: StorePath,
    },
    /// The environment variable named after an output is not the path of the output.
    #[error("derivation {derivation:?} does not set variable {output:?} to {computed}")]
    OutputVariableMismatch {
        /// The name of the derivation.
        derivation: String,
        /// The output.
        output: String,
        /// The path that Nix would compute.
        computed: StorePath,
    },
    /// There are no outputs, or a derivation cannot have outputs of these kinds together.
    #[error("derivation {derivation:?} has invalid outputs: {problem}")]
    InvalidOutputs {
        /// The name of the derivation.
        derivation: String,
        /// The broken rule.
        problem: &'static str,
    },
    /// A derivation uses an output that its input derivation does not have.
    #[error("input derivation {input} has no output {output:?}")]
    NoSuchOutput {
        /// The input derivation.
        input: StorePath,
        /// The missing output.
        output: String,
    },
    /// A store path does not end with `.drv`.
    #[error("{0} is not the path of a derivation")]
    NotADerivation(StorePath),
    /// A derivation is directly or indirectly its own input.
    #[error("derivation {0} depends on itself")]
    Cycle(StorePath),
    /// An input derivation cannot be read. The callback that reads inputs returns this error.
    #[error("cannot read the derivation {path}: {reason}")]
    Read {
        /// The input derivation.
        path: StorePath,
        /// The cause.
        reason: String,
    },
}
