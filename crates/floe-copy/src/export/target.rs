//! An export as the target of a copy.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use floe_format::{StoreDir, StorePath};
use floe_transfer::{
    CommitOutcome, Error, IncomingNar, MissingPaths, NarSink, OpenTarget, Source, SourceContext,
    StoreConfig, Target, TargetContext, TargetFacts,
};
use floe_wire::serve::export::{write_end, write_entry, write_info};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl};

use super::error::ExportError;

/// An export that is written, as the target of a copy: references first, one path after the other.
///
/// Paths need trust as in a store: an import has no signatures to check.
#[derive(Clone, Debug)]
pub struct Export(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    output: Mutex<Output>,
}

#[derive(Debug)]
struct Output {
    file: File,
    written: HashSet<StorePath>,
    /// A path of which only a part is in a file that cannot be cut off.
    unfinished: Option<StorePath>,
}

impl Export {
    /// Makes an export. `name` is that of the file in messages.
    pub fn new(file: File, name: &str) -> Export {
        Export(Arc::new(Shared {
            name: name.to_owned(),
            output: Mutex::new(Output {
                file,
                written: HashSet::new(),
                unfinished: None,
            }),
        }))
    }

    /// Ends the export. Without its end, no program accepts it.
    ///
    /// Errors: [`ExportError::Io`].
    pub fn finish(&self) -> Result<(), Error> {
        let mut end = Vec::new();
        write_end(&mut end);
        let mut output = self.0.output.lock();
        let written = output.file.write_all(&end);
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        let (action, name) = ("write", self.0.name.clone());
        let error = ExportError::Io {
            action,
            name,
            source,
        };
        error.into()
    }

    fn write(
        &self,
        nar: &mut IncomingNar<'_>,
        output: &mut Output,
        dir: &StoreDir,
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        write_entry(&mut bytes);
        let mut sink = ExportSink {
            export: self,
            file: &output.file,
        };
        sink.write(&bytes)?;
        nar.write_to(&mut sink)?;
        bytes.clear();
        write_info(&mut bytes, &nar.narinfo().info, dir);
        sink.write(&bytes)
    }
}

impl PartialEq for Export {
    fn eq(&self, other: &Export) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl StoreConfig for Export {
    fn open_source(&self, _: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        Err(Error::Internal("an export that is written is a source"))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Ok(OpenTarget {
            target: Arc::new(ExportTarget {
                export: self.clone(),
                store_dir: context.store_dir.clone().unwrap_or_default(),
            }),
            local_store: None,
        })
    }
}

#[derive(Debug)]
struct ExportTarget {
    export: Export,
    store_dir: StoreDir,
}

impl Target for ExportTarget {
    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            needs_references_first: true,
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let output = self.export.0.output.lock();
        let missing = paths.iter().filter(|path| !output.written.contains(*path));
        Ok(missing.cloned().collect::<Vec<_>>().into())
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let output = &mut *self.export.0.output.lock();
        if let Some(path) = output.unfinished.clone() {
            let name = self.export.0.name.clone();
            return Err(ExportError::Unfinished { name, path }.into());
        }
        let path = nar.path().clone();
        let begin = begin_of(&mut output.file);
        let written = self.export.write(nar, output, &self.store_dir);
        match (&written, begin) {
            (Ok(()), _) => _ = output.written.insert(path),
            (Err(_), Some(begin)) if cut_off(&mut output.file, begin).is_ok() => {}
            (Err(_), _) => output.unfinished = Some(path),
        }
        written
    }

    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        Ok(CommitOutcome {
            valid: batch.to_vec(),
            ..CommitOutcome::default()
        })
    }
}

/// Returns the end of a regular file that is written there; `None` for a pipe, and in the middle of
/// a file.
fn begin_of(file: &mut File) -> Option<u64> {
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    let is_appended = fcntl_getfl(&*file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    let is_at_end = is_appended || file.stream_position().is_ok_and(|at| at == found.len());
    is_at_end.then_some(found.len())
}

/// Removes what was written since a position.
fn cut_off(file: &mut File, begin: u64) -> io::Result<()> {
    file.set_len(begin)?;
    file.seek(SeekFrom::Start(begin))?;
    Ok(())
}

struct ExportSink<'a> {
    export: &'a Export,
    file: &'a File,
}

impl NarSink for ExportSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|source| self.export.failed(source))
    }
}
