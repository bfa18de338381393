//! An export as the source of a copy.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_format::{Compression, HashPart, NarInfo, StoreDir, StorePath};
use floe_transfer::{
    CachePolicy, Cancel, Error, NarDump, NarInfoCallback, NarRequest, NarStream, OpenTarget,
    PathSpec, Source, SourceContext, SourceFacts, StoreConfig, TargetContext,
};

use super::error::ExportError;
use super::read::{ExportedPath, read_export};

/// An export that was read, as the source of a copy.
#[derive(Clone, Debug)]
pub struct ReadExport(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    store_dir: StoreDir,
    file: File,
    paths: HashMap<HashPart, ExportedPath>,
}

impl ReadExport {
    /// Reads an export whole. `name` is that of the file in messages. A pipe is copied into an
    /// unnamed file in `directory`.
    ///
    /// Errors: [`ExportError`], [`Error::Cancelled`].
    pub fn read(
        (file, name): (File, &str),
        store_dir: StoreDir,
        directory: &Path,
        cancel: &Cancel,
    ) -> Result<ReadExport, Error> {
        let (file, found) = read_export((file, name), &store_dir, directory, cancel)?;
        let mut paths: HashMap<HashPart, ExportedPath> = HashMap::new();
        for path in found {
            let part = path.info.path.hash_part();
            let earlier = paths.get(&part);
            if earlier.is_some_and(|earlier| earlier.info != path.info) {
                let (name, path) = (name.to_owned(), path.info.path);
                return Err(ExportError::Ambiguous { name, path }.into());
            }
            paths.entry(part).or_insert(path);
        }
        Ok(ReadExport(Arc::new(Shared {
            name: name.to_owned(),
            store_dir,
            file,
            paths,
        })))
    }
}

impl PartialEq for ReadExport {
    fn eq(&self, other: &ReadExport) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for ReadExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl StoreConfig for ReadExport {
    fn open_source(&self, _: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        Ok(Arc::new(self.clone()))
    }

    fn open_target(&self, _: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Err(Error::Internal("an export that was read is a target"))
    }
}

impl Source for ReadExport {
    fn name(&self) -> String {
        self.to_string()
    }

    fn store_dir(&self) -> &StoreDir {
        &self.0.store_dir
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts {
            has_nar_files: false,
            ..SourceFacts::default()
        }
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        let narinfo = self.0.paths.get(&spec.hash_part()).map(|found| NarInfo {
            info: found.info.clone(),
            url: self.0.name.clone(),
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        });
        reply(Ok(narinfo.into()));
    }

    fn open_nar(&self, narinfo: &NarInfo, _: NarRequest) -> Result<NarStream, Error> {
        let found = self.0.paths.get(&narinfo.info.path.hash_part());
        let found = found.ok_or(Error::Internal("an export lacks a path that it had"))?;
        let (export, mut at, mut left) = (self.clone(), found.nar_at, found.info.nar_size);
        let dump: NarDump = Box::new(move |write| {
            let mut chunk = vec![0; CHUNK_LEN];
            while left > 0 {
                let len = usize::try_from(left).map_or(CHUNK_LEN, |left| left.min(CHUNK_LEN));
                let read = export.0.file.read_exact_at(&mut chunk[..len], at);
                read.map_err(|source| ExportError::Io {
                    action: "read",
                    name: export.0.name.clone(),
                    source,
                })?;
                write(&chunk[..len])?;
                (at, left) = (at + len as u64, left - len as u64);
            }
            Ok(())
        });
        Ok(NarStream::Dump(dump))
    }

    fn nar_url(&self, _: &NarInfo) -> String {
        self.0.name.clone()
    }

    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        let paths = self.0.paths.values();
        Ok(Some(paths.map(|found| found.info.path.clone()).collect()))
    }
}

const CHUNK_LEN: usize = 128 * 1024;
