//! Finds the paths of outputs that the user names as `DERIVATION^OUTPUTS`.
//!
//! The derivation states the path of an ordinary output. The path of a floating output follows from
//! its contents, and a realisation tells it. The sources are asked in both of Nix's generations of
//! realisations, and those that are found are registered in the target after the copy. Up to Nix
//! 2.34 one realisation tells the output. In later versions it is that of the *resolved*
//! derivation, which follows from the realisations of the inputs, so these are needed too
//! (`deepQueryPartialDerivationOutput`).

mod derivations;
mod error;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use floe_format::derivation::DerivationHashCache;
use floe_format::{Derivation, DrvKey, DrvOutput, Realisation, StorePath};
use floe_store::StoreReader;
use floe_transfer::{CopyOptions, DerivedPath, Error, OutputNames, Source, Target};

use derivations::Derivations;
pub use error::OutputError;

/// Finds outputs, and collects their realisations.
pub(crate) struct OutputFinder<'a> {
    sources: &'a [Arc<dyn Source>],
    options: &'a CopyOptions,
    requires_trust: bool,
    derivations: Derivations<'a>,
    hashes: DerivationHashCache,
    /// The paths of outputs of derivations that are known, or known to be unknown.
    paths: HashMap<(StorePath, String), Option<StorePath>>,
    found: FoundRealisations,
}

/// Realisations, dependencies first.
#[derive(Debug, Default)]
struct FoundRealisations {
    list: Vec<Realisation>,
    ids: BTreeSet<DrvOutput>,
}

impl FoundRealisations {
    fn add(&mut self, realisation: Realisation) {
        if self.ids.insert(realisation.id.clone()) {
            self.list.push(realisation);
        }
    }
}

impl<'a> OutputFinder<'a> {
    /// Makes a finder. `reader` is the local store that is the target, if it exists.
    pub(crate) fn new(
        sources: &'a [Arc<dyn Source>],
        target: &'a dyn Target,
        reader: Option<StoreReader>,
        options: &'a CopyOptions,
    ) -> OutputFinder<'a> {
        OutputFinder {
            sources,
            options,
            requires_trust: target.facts().requires_trust && options.check_signatures,
            derivations: Derivations::new(sources, target.store_dir(), reader, &options.cancel),
            hashes: DerivationHashCache::default(),
            paths: HashMap::new(),
            found: FoundRealisations::default(),
        }
    }

    /// Returns the paths of outputs.
    ///
    /// Errors: [`OutputError`]; [`Error::UntrustedRealisation`]; those of the sources.
    pub(crate) fn find(&mut self, wanted: &DerivedPath) -> Result<Vec<StorePath>, Error> {
        let derivation = self.derivations.read(&wanted.derivation)?;
        let names: Vec<String> = match &wanted.outputs {
            OutputNames::All => derivation.outputs.keys().cloned().collect(),
            OutputNames::Some(names) => names.iter().cloned().collect(),
        };
        let mut paths = Vec::with_capacity(names.len());
        for name in names {
            paths.push(self.find_output(&wanted.derivation, &derivation, &name)?);
        }
        Ok(paths)
    }

    /// Returns the realisations that [`OutputFinder::find`] has found, dependencies first.
    pub(crate) fn into_realisations(self) -> Vec<Realisation> {
        self.found.list
    }

    fn find_output(
        &mut self,
        path: &StorePath,
        derivation: &Derivation,
        name: &str,
    ) -> Result<StorePath, Error> {
        if let Some(stated) = self.stated_path(path, derivation, name)? {
            return Ok(stated);
        }
        let by_hash = self.find_by_hash(path, derivation, name);
        let by_path = self.find_by_path(path, name);
        // A failure of one generation does not matter if the other one has the output.
        match (by_hash, by_path) {
            (Err(Error::Cancelled), _) | (_, Err(Error::Cancelled)) => Err(Error::Cancelled),
            (Ok(Some(found)), _) | (_, Ok(Some(found))) => Ok(found),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(None), Ok(None)) => Err(OutputError::NotBuilt {
                derivation: path.clone(),
                output: name.to_owned(),
                sources: self.sources.iter().map(|source| source.name()).collect(),
            }
            .into()),
        }
    }

    /// Returns the path of an output that its derivation states.
    fn stated_path(
        &self,
        path: &StorePath,
        derivation: &Derivation,
        name: &str,
    ) -> Result<Option<StorePath>, Error> {
        let output = derivation.outputs.get(name);
        let output = output.ok_or_else(|| OutputError::NoSuchOutput {
            derivation: path.clone(),
            output: name.to_owned(),
            outputs: derivation.outputs.keys().cloned().collect(),
        })?;
        let drv_name = Derivation::name_from_path(path).map_err(OutputError::from)?;
        let stated = output.path(self.derivations.dir, drv_name, name);
        Ok(stated.map_err(OutputError::from)?)
    }

    /// Finds an output by the hash of its derivation, as Nix up to 2.34 records it.
    fn find_by_hash(
        &mut self,
        path: &StorePath,
        derivation: &Derivation,
        name: &str,
    ) -> Result<Option<StorePath>, Error> {
        let drv_name = Derivation::name_from_path(path).map_err(OutputError::from)?;
        let derivations = &mut self.derivations;
        let dir = derivations.dir;
        let hashes = derivations
            .with_reader(|read| derivation.output_hashes(dir, drv_name, &mut self.hashes, read))?;
        let Some(hash) = hashes.get(name) else {
            return Ok(None);
        };
        let id = DrvOutput::new(DrvKey::Hash(*hash), name).map_err(OutputError::from)?;
        let Some(realisation) = self.query(&id)? else {
            return Ok(None);
        };
        let found = realisation.out_path.clone();
        for realisation in self.with_dependencies(realisation)? {
            self.found.add(realisation);
        }
        Ok(Some(found))
    }

    /// Returns a realisation after those of its dependencies, which Nix up to 2.8 records.
    fn with_dependencies(&self, realisation: Realisation) -> Result<Vec<Realisation>, Error> {
        let mut ids = BTreeSet::from([realisation.id.clone()]);
        let mut all = vec![realisation];
        let mut next = 0;
        while next < all.len() {
            let dependencies = all[next].dependent_realisations.clone();
            next += 1;
            for (id, path) in dependencies {
                if self.found.ids.contains(&id) || !ids.insert(id.clone()) {
                    continue;
                }
                if ids.len() > REALISATIONS_MAX {
                    return Err(OutputError::TooMany.into());
                }
                match self.query(&id)? {
                    Some(found) if found.out_path == path => all.push(found),
                    _ => return Err(OutputError::IncompleteRealisation { id, path }.into()),
                }
            }
        }
        Ok(dependencies_first(all))
    }

    /// Finds an output by the path of its resolved derivation, as Nix after 2.34 records it.
    ///
    /// The stack is a vector, because chains of derivations can be longer than recursion allows. A
    /// derivation cannot need itself, because its path is a hash of the paths of its inputs.
    fn find_by_path(&mut self, path: &StorePath, name: &str) -> Result<Option<StorePath>, Error> {
        let wanted = (path.clone(), name.to_owned());
        let mut stack = vec![wanted.clone()];
        // Realisations of inputs are of use only together with that of the output.
        let mut found = Vec::new();
        while let Some(output) = stack.last().cloned() {
            if self.paths.contains_key(&output) {
                stack.pop();
                continue;
            }
            if self.paths.len() > REALISATIONS_MAX {
                return Err(OutputError::TooMany.into());
            }
            match self.resolve_output(&output, &mut found)? {
                Resolution::Known(path) => {
                    self.paths.insert(output, path);
                    stack.pop();
                }
                Resolution::Needs(input) => stack.push(input),
            }
        }
        let path = self.paths.get(&wanted).cloned().flatten();
        if path.is_some() {
            found.into_iter().for_each(|it| self.found.add(it));
        }
        Ok(path)
    }

    fn resolve_output(
        &mut self,
        (path, name): &(StorePath, String),
        found: &mut Vec<Realisation>,
    ) -> Result<Resolution, Error> {
        let derivation = self.derivations.read(path)?;
        if let Some(stated) = self.stated_path(path, &derivation, name)? {
            return Ok(Resolution::Known(Some(stated)));
        }
        let mut resolved_path = path.clone();
        if derivation.needs_resolution() {
            let drv_name = Derivation::name_from_path(path).map_err(OutputError::from)?;
            let mut needed = None;
            let mut path_of = |input: &StorePath, output: &str| {
                let key = (input.clone(), output.to_owned());
                let known = self.paths.get(&key).cloned();
                if known.is_none() {
                    needed = Some(key);
                }
                Ok::<_, OutputError>(known.flatten())
            };
            let dir = self.derivations.dir;
            let resolved = derivation.resolve(dir, drv_name, &mut path_of)?;
            if let Some(needed) = needed {
                return Ok(Resolution::Needs(needed));
            }
            let Some(resolved) = resolved else {
                return Ok(Resolution::Known(None));
            };
            if let Some(stated) = self.stated_path(path, &resolved, name)? {
                return Ok(Resolution::Known(Some(stated)));
            }
            resolved_path = resolved
                .store_path(dir, drv_name)
                .map_err(OutputError::from)?;
        }
        let id = DrvOutput::new(DrvKey::Path(resolved_path), name).map_err(OutputError::from)?;
        let realisation = self.query(&id)?;
        let path = realisation.as_ref().map(|it| it.out_path.clone());
        found.extend(realisation);
        Ok(Resolution::Known(path))
    }

    /// Queries the sources for a realisation. If the target requires trust, a source counts only if
    /// a trusted key has signed its realisation.
    ///
    /// Errors: [`Error::UntrustedRealisation`], and those of the sources, if no source has a usable
    /// one.
    fn query(&self, id: &DrvOutput) -> Result<Option<Realisation>, Error> {
        let (mut untrusted, mut failure) = (None, None);
        for source in self.sources {
            let is_trusted = self.options.obey_trusted && source.facts().is_trusted;
            match source.query_realisation(id, &self.options.cancel) {
                Ok(None) => {}
                Ok(Some(found))
                    if !self.requires_trust
                        || is_trusted
                        || found.is_signed_by(&self.options.trusted_keys) =>
                {
                    return Ok(Some(found));
                }
                Ok(Some(found)) => {
                    untrusted.get_or_insert_with(|| self.untrusted(&**source, &found));
                }
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        match untrusted.or(failure) {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    fn untrusted(&self, source: &dyn Source, found: &Realisation) -> Error {
        let signers = found.signatures.iter();
        Error::UntrustedRealisation {
            output: found.id.to_string(),
            path: found.out_path.clone(),
            source_name: source.name(),
            signed_by: signers.map(|it| it.key_name().to_owned()).collect(),
            trusted: self
                .options
                .trusted_keys
                .names()
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// A step towards the path of an output.
enum Resolution {
    /// The path, or that it is not known.
    Known(Option<StorePath>),
    /// An output of an input must be found first.
    Needs((StorePath, String)),
}

/// Sorts realisations so that dependencies come first. A circle, which only a hostile source can
/// make, ends up in any order; the target refuses it.
fn dependencies_first(realisations: Vec<Realisation>) -> Vec<Realisation> {
    let mut left = realisations;
    let mut sorted: Vec<Realisation> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let ids: BTreeSet<DrvOutput> = left.iter().map(|it| it.id.clone()).collect();
        let is_ready = |it: &Realisation| {
            let mut dependencies = it.dependent_realisations.keys();
            dependencies.all(|id| *id == it.id || !ids.contains(id))
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
        if ready.is_empty() {
            sorted.extend(waiting);
            break;
        }
        sorted.extend(ready);
        left = waiting;
    }
    sorted
}

/// How many outputs one copy looks up, in realisations of dependencies and in inputs.
const REALISATIONS_MAX: usize = 1_000_000;
