//! The requests `path_info` and `closure`.

use floe_copy::{SourceOrder, Sources};
use floe_format::{Compression, NarInfo, StoreDir};
use floe_messages::{self as messages, ClosureReply, ClosureRequest, PathInfo, PathInfoRequest};
use floe_transfer::{ClosureLimit, PathSpec};

use super::{HandlerContext, resolve_store, usage};
use crate::completion::{JobError, JobOutcome, texts};

impl HandlerContext<'_> {
    pub(super) fn path_info(&self) -> JobOutcome {
        let request: PathInfoRequest<'_> = self.request()?;
        let request = ClosureRequest {
            store: request.store,
            store_dir: request.store_dir,
            paths: vec![request.path].into(),
            network: request.network,
        };
        let found = self.look_up(&request, false)?;
        let info = found.first().map(Texts::message);
        self.reply(&info.unwrap_or_default())
    }

    pub(super) fn closure(&self) -> JobOutcome {
        let found = self.look_up(&self.request()?, true)?;
        let infos = found.iter().map(Texts::message).collect();
        self.reply(&ClosureReply { infos })
    }

    /// Returns the paths of a request and, if it is recursive, their closure.
    fn look_up(
        &self,
        request: &ClosureRequest<'_>,
        recursive: bool,
    ) -> Result<Vec<Texts>, JobError> {
        let store = resolve_store(request.store, request.store_dir)?;
        let session = self.session(&request.network);
        let sources = Sources::open(&[store], SourceOrder::AsListed, &session)?;
        let Some(source) = sources.list.first() else {
            return Err(usage("the request names no store"));
        };
        let dir = source.store_dir();
        let paths = request.paths.iter();
        let roots: Result<Vec<PathSpec>, _> =
            paths.map(|text| PathSpec::parse(text, dir)).collect();
        let found =
            source.query_closure(&roots?, recursive, (ClosureLimit::default(), self.cancel()))?;
        let found = found.complete()?;
        let of = |narinfo| Texts::of(narinfo, dir, source.facts().has_nar_files);
        Ok(found.values().map(of).collect())
    }
}

/// The texts that a message borrows.
struct Texts {
    path: String,
    nar_hash: String,
    nar_size: u64,
    references: Vec<String>,
    deriver: Option<String>,
    signatures: Vec<String>,
    content_address: Option<String>,
    // Only a cache has the other fields.
    url: Option<String>,
    compression: Option<messages::Compression>,
    file_hash: Option<String>,
    file_size: Option<u64>,
}

impl Texts {
    fn of(narinfo: &NarInfo, dir: &StoreDir, is_cached: bool) -> Texts {
        let info = &narinfo.info;
        let file = is_cached.then_some(narinfo);
        let references = info.references.iter();
        Texts {
            path: dir.full_path(&info.path),
            nar_hash: info.nar_hash.to_nix32(),
            nar_size: info.nar_size,
            references: references.map(|path| dir.full_path(path)).collect(),
            deriver: info.deriver.as_ref().map(|path| dir.full_path(path)),
            signatures: info.signatures.iter().map(ToString::to_string).collect(),
            content_address: info.ca.as_ref().map(ToString::to_string),
            url: file.map(|file| file.url.clone()),
            compression: file.and_then(|file| translate(file.compression)),
            file_hash: file.and_then(|file| Some(file.file_hash.as_ref()?.to_nix32())),
            file_size: file.and_then(|file| file.file_size),
        }
    }

    fn message(&self) -> PathInfo<'_> {
        PathInfo {
            path: &self.path,
            nar_hash: &self.nar_hash,
            nar_size: self.nar_size,
            references: texts(&self.references),
            deriver: self.deriver.as_deref(),
            signatures: texts(&self.signatures),
            content_address: self.content_address.as_deref(),
            url: self.url.as_deref(),
            compression: self.compression,
            file_hash: self.file_hash.as_deref(),
            file_size: self.file_size,
        }
    }
}

/// Returns `None` for a compression that the schema does not have.
fn translate(compression: Compression) -> Option<messages::Compression> {
    match compression {
        // Nix calls it `br`.
        Compression::Brotli => Some(messages::Compression::Brotli),
        _ => messages::Compression::from_text(compression.name()),
    }
}
