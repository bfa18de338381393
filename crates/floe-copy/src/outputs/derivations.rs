//! Reads derivations from the target and the sources of a copy.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use floe_format::derivation::{DERIVATION_LEN_MAX, DerivationError};
use floe_format::nar::read::NarEvent;
use floe_format::{Derivation, StoreDir, StorePath};
use floe_store::StoreReader;
use floe_transfer::{Cancel, Error, PathSpec, Source};

use super::OutputError;

/// The derivations of a copy. Each is read once.
pub(super) struct Derivations<'a> {
    sources: &'a [Arc<dyn Source>],
    pub(super) dir: &'a StoreDir,
    /// The local store that is the target. It may have derivations that no cache has, because
    /// evaluation writes them.
    reader: Option<StoreReader>,
    cancel: &'a Cancel,
    known: HashMap<StorePath, Arc<Derivation>>,
}

impl<'a> Derivations<'a> {
    pub(super) fn new(
        sources: &'a [Arc<dyn Source>],
        dir: &'a StoreDir,
        reader: Option<StoreReader>,
        cancel: &'a Cancel,
    ) -> Derivations<'a> {
        Derivations {
            sources,
            dir,
            reader,
            cancel,
            known: HashMap::new(),
        }
    }

    /// Returns a derivation. Its contents match its path, so it needs no signature.
    ///
    /// Errors: [`OutputError`], and those of the sources if none has it.
    pub(super) fn read(&mut self, path: &StorePath) -> Result<Arc<Derivation>, Error> {
        if let Some(known) = self.known.get(path) {
            return Ok(known.clone());
        }
        let derivation = Arc::new(self.find(path)?);
        self.known.insert(path.clone(), derivation.clone());
        Ok(derivation)
    }

    /// Calls `run` with a callback that reads derivations, and keeps the error of a source.
    pub(super) fn with_reader<T>(
        &mut self,
        run: impl FnOnce(
            &mut dyn FnMut(&StorePath) -> Result<Derivation, DerivationError>,
        ) -> Result<T, DerivationError>,
    ) -> Result<T, Error> {
        let mut failure = None;
        let mut read = |path: &StorePath| match self.read(path) {
            Ok(derivation) => Ok((*derivation).clone()),
            Err(error) => {
                let reason = error.to_string();
                failure = Some(error);
                Err(DerivationError::Read {
                    path: path.clone(),
                    reason,
                })
            }
        };
        let ran = run(&mut read);
        ran.map_err(|error| failure.unwrap_or_else(|| OutputError::from(error).into()))
    }

    fn find(&self, path: &StorePath) -> Result<Derivation, Error> {
        if let Some(reader) = &self.reader
            && let Ok(derivation) = reader.derivation(path)
            && self.check(path, &derivation, "").is_ok()
        {
            return Ok(derivation);
        }
        let mut failure = None;
        for source in self.sources {
            match self.read_from(&**source, path) {
                Ok(Some(derivation)) => return Ok(derivation),
                Ok(None) => {}
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let target = self.reader.iter();
        let target = target.map(|it| it.layout().real_store_dir.display().to_string());
        let sources = self.sources.iter().map(|source| source.name());
        Err(failure.unwrap_or_else(|| {
            let mut sources: Vec<String> = sources.chain(target).collect();
            sources.dedup();
            let derivation = path.clone();
            OutputError::NoDerivation {
                derivation,
                sources,
            }
            .into()
        }))
    }

    fn read_from(
        &self,
        source: &dyn Source,
        path: &StorePath,
    ) -> Result<Option<Derivation>, Error> {
        let name = Derivation::name_from_path(path).map_err(OutputError::from)?;
        let spec = PathSpec::Path(path.clone());
        let Some(narinfo) = source.query_path_info(&spec, self.cancel)? else {
            return Ok(None);
        };
        if narinfo.info.path != *path {
            return Ok(None);
        }
        let not_a_file = || OutputError::NotAFile {
            derivation: path.clone(),
            source_name: source.name(),
        };
        let mut text = Vec::new();
        let mut is_file = false;
        source.scan_nar(&narinfo, &mut |event| {
            match event {
                NarEvent::File { size, .. } if size <= DERIVATION_LEN_MAX as u64 => is_file = true,
                NarEvent::Data(bytes) => text.extend_from_slice(bytes),
                NarEvent::EndFile | NarEvent::End => {}
                _ => {
                    is_file = false;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if !is_file {
            return Err(not_a_file().into());
        }
        let derivation = Derivation::parse(&text, self.dir, name);
        let derivation = derivation.map_err(|cause| OutputError::Damaged {
            derivation: path.clone(),
            source_name: source.name(),
            cause: Box::new(cause),
        })?;
        self.check(path, &derivation, &source.name())?;
        Ok(Some(derivation))
    }

    /// Checks that a derivation has the contents that its path tells.
    fn check(
        &self,
        path: &StorePath,
        derivation: &Derivation,
        source_name: &str,
    ) -> Result<(), OutputError> {
        let found = derivation.store_path(self.dir, Derivation::name_from_path(path)?)?;
        if found == *path {
            return Ok(());
        }
        Err(OutputError::OtherDerivation {
            derivation: path.clone(),
            found,
            source_name: source_name.to_owned(),
        })
    }
}
