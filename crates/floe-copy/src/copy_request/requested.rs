//! The requested paths and outputs of a copy.

use floe_format::{Realisation, StoreDir};
use floe_store::StoreReader;
use floe_transfer::{CopyOptions, DerivedPath, Error, PathSpec, Target};

use crate::outputs::OutputFinder;
use crate::sources::Sources;

/// A requested path, or requested outputs of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedSpec {
    Path(PathSpec),
    Outputs(DerivedPath),
}

impl RequestedSpec {
    /// Parses the requested paths, and drops duplicates in any spelling.
    ///
    /// Errors: [`Error::InvalidStorePath`].
    pub(super) fn parse_all(texts: &[String], dir: &StoreDir) -> Result<Vec<RequestedSpec>, Error> {
        let mut requested = Vec::new();
        for text in texts {
            let spec = if DerivedPath::is_one(text) {
                RequestedSpec::Outputs(DerivedPath::parse(text, dir)?)
            } else {
                RequestedSpec::Path(PathSpec::parse(text, dir)?)
            };
            if !requested.contains(&spec) {
                requested.push(spec);
            }
        }
        Ok(requested)
    }
}

/// The paths of a copy.
#[derive(Debug, Default)]
pub(super) struct FoundSpecs {
    /// The requested paths, each once.
    pub(super) specs: Vec<PathSpec>,
    /// The realisations of requested outputs, and those that these need, dependencies first.
    pub(super) realisations: Vec<Realisation>,
}

impl FoundSpecs {
    /// Finds the outputs among the requested paths. `reader` opens the local store that is the
    /// target, if it is one.
    ///
    /// Errors: [`OutputError`](crate::OutputError), [`Error::UntrustedRealisation`], those of the
    /// sources.
    pub(super) fn find(
        requested: Vec<RequestedSpec>,
        (sources, target): (&Sources, &dyn Target),
        reader: impl FnOnce() -> Option<StoreReader>,
        options: &CopyOptions,
    ) -> Result<FoundSpecs, Error> {
        let has_outputs = requested
            .iter()
            .any(|it| matches!(it, RequestedSpec::Outputs(_)));
        let reader = if has_outputs { reader() } else { None };
        let mut finder = OutputFinder::new(&sources.list, target, reader, options);
        let mut specs = Vec::with_capacity(requested.len());
        for spec in requested {
            match spec {
                RequestedSpec::Path(spec) => specs.push(spec),
                RequestedSpec::Outputs(outputs) => {
                    let paths = finder.find(&outputs)?.into_iter();
                    specs.extend(paths.map(PathSpec::Path));
                }
            }
        }
        if has_outputs {
            drop_duplicates(&mut specs);
        }
        Ok(FoundSpecs {
            specs,
            realisations: finder.into_realisations(),
        })
    }
}

impl From<Vec<PathSpec>> for FoundSpecs {
    fn from(specs: Vec<PathSpec>) -> FoundSpecs {
        FoundSpecs {
            specs,
            ..FoundSpecs::default()
        }
    }
}

/// Two outputs may have the same contents, and so the same path.
fn drop_duplicates(specs: &mut Vec<PathSpec>) {
    let all = std::mem::take(specs);
    for spec in all {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
}
