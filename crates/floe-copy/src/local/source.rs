//! A local store as a source.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use floe_format::nar::layout::{FileExtent, Node};
use floe_format::{
    Compression, DrvOutput, HashPart, NarInfo, PathInfo, Realisation, StoreDir, StorePath,
};
use floe_store::tree::list_tree;
use floe_store::{StoreReader, open_beneath};
use floe_transfer::{
    Body, CachePolicy, Cancel, Error, Event, EventSink as _, Events, NarDump, NarInfoCallback,
    NarInfoResult, NarRequest, NarStream, PathSpec, Registry, Source, SourceFacts,
};

/// A local store that is open for reading.
#[derive(Debug)]
pub(crate) struct LocalSource {
    pub(super) reader: Arc<StoreReader>,
    /// The parameter `priority`.
    pub(super) priority: i32,
    /// The parameter `trusted`.
    pub(super) is_trusted: bool,
    pub(super) events: Events,
}

impl LocalSource {
    /// Returns a path's entry in the form of a narinfo: an uncompressed NAR that has no file.
    fn narinfo(&self, hash_part: HashPart) -> NarInfoResult {
        let Some(path) = self.reader.query_path_from_hash_part(hash_part)? else {
            return Ok(None.into());
        };
        let Some(info) = self.reader.path_info(&path)? else {
            return Ok(None.into());
        };
        let url = self.reader.real_path(&path).display().to_string();
        let info = PathInfo {
            registration_time: None,
            ultimate: false,
            ..info
        };
        let narinfo = NarInfo {
            info,
            url,
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        };
        Ok(Some(narinfo).into())
    }

    fn report_skipped_rows(&self) {
        let rows = &*self.reader.skipped_rows();
        if !rows.is_empty() {
            self.events.event(Event::SkippedRows { rows });
        }
    }
}

impl Source for LocalSource {
    fn name(&self) -> String {
        self.reader.layout().real_store_dir.display().to_string()
    }

    fn store_dir(&self) -> &StoreDir {
        &self.reader.layout().store_dir
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts {
            priority: self.priority,
            is_trusted: self.is_trusted,
            has_nar_files: false,
            ..SourceFacts::default()
        }
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        reply(self.narinfo(spec.hash_part()));
    }

    /// The worker itself reads the tree: a stream would need a thread of its own.
    fn open_nar(&self, narinfo: &NarInfo, _: NarRequest) -> Result<NarStream, Error> {
        let (reader, path) = (self.reader.clone(), narinfo.info.path.clone());
        let dump: NarDump = Box::new(move |write| reader.dump(&path, write));
        Ok(NarStream::Dump(dump))
    }

    fn query_tree(&self, narinfo: &NarInfo) -> Result<Option<Node>, Error> {
        let path = self.reader.real_path(&narinfo.info.path);
        Ok(Some(list_tree(&path)?))
    }

    fn open_file(&self, narinfo: &NarInfo, file: &FileExtent<'_>) -> Result<Option<Body>, Error> {
        let store_dir = &self.reader.layout().real_store_dir;
        let mut relative = PathBuf::from(narinfo.info.path.as_str());
        relative.extend(file.path.iter().map(|name| OsStr::from_bytes(name)));
        let path = store_dir.join(&relative);
        match open_beneath(store_dir, &relative) {
            Ok(file) => Ok(Some(Body::File {
                file: file.into(),
                path,
            })),
            Err(error) => Err(Error::UnreadableFile {
                action: "open",
                path,
                source: error.into(),
            }),
        }
    }

    fn nar_url(&self, narinfo: &NarInfo) -> String {
        narinfo.url.clone()
    }

    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        let paths = self.reader.readable_paths()?;
        self.report_skipped_rows();
        Ok(Some(paths))
    }

    fn closures(&self, paths: &[StorePath]) -> Result<Option<Vec<StorePath>>, Error> {
        let mut valid = Vec::with_capacity(paths.len());
        for path in paths {
            if self.reader.is_valid(path)? {
                valid.push(path.clone());
            }
        }
        // A query for a path whose row does not parse fails later, and only for this path.
        Ok(Some(self.reader.closure_paths(&valid)?))
    }

    fn query_realisation(&self, id: &DrvOutput, _: &Cancel) -> Result<Option<Realisation>, Error> {
        Ok(self.reader.realisation(id)?)
    }

    fn as_registry(&self) -> Option<&dyn Registry> {
        Some(self)
    }
}

impl Registry for LocalSource {
    fn query_registration(&self, path: &StorePath) -> Result<Option<PathInfo>, Error> {
        Ok(self.reader.path_info(path)?)
    }

    fn for_each_registration(
        &self,
        visit: &mut dyn FnMut(PathInfo) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let visited = self.reader.for_each_info(visit);
        self.report_skipped_rows();
        Ok(visited?)
    }
}
