//! The reasons why an output of a derivation cannot be found.

use floe_format::derivation::DerivationError;
use floe_format::realisation::DrvOutputError;
use floe_format::{DrvOutput, StorePath};
use floe_transfer::{Error, ErrorKind, StoreFailure};

/// The reason why an output of a derivation cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// No source has the derivation.
    #[error(
        "cannot read the derivation {derivation}: it is not in {}; copy the derivation first, or \
         name the path of the output",
        sources.join(", ")
    )]
    NoDerivation {
        /// The derivation.
        derivation: StorePath,
        /// The sources, and the target.
        sources: Vec<String>,
    },
    /// A derivation is not valid.
    #[error(transparent)]
    Derivation(#[from] DerivationError),
    /// The text of a derivation is damaged.
    #[error("cannot use the derivation {derivation} from {source_name}: {cause}")]
    Damaged {
        /// The derivation.
        derivation: StorePath,
        /// The source.
        source_name: String,
        /// The cause.
        cause: Box<DerivationError>,
    },
    /// A derivation has other contents than its path says.
    #[error(
        "cannot use the derivation {derivation} from {source_name}: its contents are those of {found}"
    )]
    OtherDerivation {
        /// The derivation.
        derivation: StorePath,
        /// The path of its contents.
        found: StorePath,
        /// The source.
        source_name: String,
    },
    /// A derivation is not a regular file, or too large.
    #[error(
        "cannot use the derivation {derivation} from {source_name}: it is not a file of a usual size"
    )]
    NotAFile {
        /// The derivation.
        derivation: StorePath,
        /// The source.
        source_name: String,
    },
    /// The derivation does not have the output.
    #[error(
        "cannot find the output {output} of {derivation}: its outputs are {}",
        outputs.join(", ")
    )]
    NoSuchOutput {
        /// The derivation.
        derivation: StorePath,
        /// The wanted output.
        output: String,
        /// The outputs of the derivation.
        outputs: Vec<String>,
    },
    /// No source has a realisation.
    #[error(
        "cannot find the output {output} of {derivation}: its path is known only after a build, \
         and {} has no realisation of it; build it first",
        sources.join(", ")
    )]
    NotBuilt {
        /// The derivation.
        derivation: StorePath,
        /// The output.
        output: String,
        /// The sources.
        sources: Vec<String>,
    },
    /// No source has the realisation of a dependency.
    #[error("cannot copy realisations: no source has that of {id} with the path {path}")]
    IncompleteRealisation {
        /// The dependency.
        id: DrvOutput,
        /// Its path.
        path: StorePath,
    },
    /// The name of an output is not valid.
    #[error(transparent)]
    Name(#[from] DrvOutputError),
    /// There are more outputs than floe looks up.
    #[error(
        "cannot find the outputs: they depend on more than {} others",
        super::REALISATIONS_MAX
    )]
    TooMany,
}

impl StoreFailure for OutputError {
    fn kind(&self) -> ErrorKind {
        match self {
            OutputError::OtherDerivation { .. }
            | OutputError::NotAFile { .. }
            | OutputError::Damaged { .. } => ErrorKind::Untrusted,
            _ => ErrorKind::Failed,
        }
    }

    fn cause_name(&self) -> &'static str {
        match self {
            OutputError::NoDerivation { .. } => "no derivation",
            OutputError::Derivation(_) => "invalid derivation",
            OutputError::Damaged { .. } => "damaged derivation",
            OutputError::OtherDerivation { .. } => "other derivation",
            OutputError::NotAFile { .. } => "derivation is not a file",
            OutputError::NoSuchOutput { .. } => "no such output",
            OutputError::NotBuilt { .. } => "output is not built",
            OutputError::IncompleteRealisation { .. } => "incomplete realisation",
            OutputError::Name(_) => "invalid output",
            OutputError::TooMany => "too many outputs",
        }
    }

    fn url(&self) -> Option<&str> {
        None
    }

    fn concerns_all_sources(&self) -> bool {
        true
    }
}

impl From<OutputError> for Error {
    fn from(error: OutputError) -> Error {
        Error::OfKind(Box::new(error))
    }
}
