//! Files and trees of this machine that a copy adds to a store, under paths that follow from their
//! contents.

mod read;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use floe_format::content_address::ContentAddressMethod;
use floe_format::{Compression, HashAlgorithm, HashPart, NarInfo, PathInfo, StoreDir, StorePath};
use floe_transfer::{
    CachePolicy, Cancel, Error, NarDump, NarInfoCallback, NarRequest, NarStream, OpenTarget,
    PathSpec, Source, SourceContext, SourceFacts, StoreConfig, TargetContext,
};

use read::{describe, dump_unchanged};

/// A file or tree of this machine that is added to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToAdd {
    /// The file or tree.
    pub file: PathBuf,
    /// The name of the store path; `None` for the name of the file.
    pub name: Option<String>,
    /// The data from which the store path follows.
    pub method: ContentAddressMethod,
    /// The algorithm of the content address.
    pub algorithm: HashAlgorithm,
}

/// Files and trees of this machine, as the source of a copy.
///
/// Their contents are read twice: once for their paths, which a store needs first, and once for the
/// copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedFiles {
    store_dir: StoreDir,
    files: Vec<AddedFile>,
}

/// A file or tree with what follows from its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddedFile {
    file: PathBuf,
    /// Whether it is a regular file, of which only the bytes count.
    is_flat: bool,
    info: PathInfo,
}

impl AddedFiles {
    /// Reads files, and computes their paths in a store with this directory.
    ///
    /// Errors: those of the system; [`Error::NotAddable`] for a kind of file that the method does
    /// not take, and for a name that no store path may have;
    /// [`floe_store::StoreError::UnsupportedFile`]; [`Error::Cancelled`].
    pub fn read(
        files: &[FileToAdd],
        store_dir: StoreDir,
        cancel: &Cancel,
    ) -> Result<AddedFiles, Error> {
        let files = files.iter().map(|file| describe(file, &store_dir, cancel));
        let files = files.collect::<Result<_, Error>>()?;
        Ok(AddedFiles { store_dir, files })
    }

    /// Returns the paths of the files, in their order.
    pub fn paths(&self) -> impl Iterator<Item = &StorePath> {
        self.files.iter().map(|added| &added.info.path)
    }

    fn find(&self, hash_part: HashPart) -> Option<&AddedFile> {
        let mut files = self.files.iter();
        files.find(|added| added.info.path.hash_part() == hash_part)
    }
}

impl fmt::Display for AddedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut files = self.files.iter().map(|added| added.file.display());
        match (files.next(), files.next()) {
            (Some(file), None) => file.fmt(f),
            _ => f.write_str("files of this machine"),
        }
    }
}

impl StoreConfig for AddedFiles {
    fn open_source(&self, _: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        Ok(Arc::new(self.clone()))
    }

    fn open_target(&self, _: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Err(Error::Internal("files are the target of a copy"))
    }
}

impl Source for AddedFiles {
    fn name(&self) -> String {
        self.to_string()
    }

    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts {
            has_nar_files: false,
            ..SourceFacts::default()
        }
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        let narinfo = self.find(spec.hash_part()).map(|added| NarInfo {
            info: added.info.clone(),
            url: added.file.display().to_string(),
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        });
        reply(Ok(narinfo.into()));
    }

    fn open_nar(&self, narinfo: &NarInfo, _: NarRequest) -> Result<NarStream, Error> {
        let added = self.find(narinfo.info.path.hash_part());
        let added = added.ok_or(Error::Internal("a file is copied that was not read"))?;
        let added = added.clone();
        let dump: NarDump = Box::new(move |write| dump_unchanged(&added, write));
        Ok(NarStream::Dump(dump))
    }

    fn nar_url(&self, narinfo: &NarInfo) -> String {
        narinfo.url.clone()
    }
}
