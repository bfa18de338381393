//! The requests `path_info` and `closure`.

use floe_copy::{SourceOrder, Sources};
use floe_format::{Compression, NarInfo, StoreDir};
use floe_messages::{
    self as messages, ClosureReply, ClosureRequest, List, PathInfo, PathInfoRequest,
};
use floe_transfer::PathSpec;

use super::network::network_options;
use super::{HandlerContext, HandlerResult, WorkError, resolve_store, store_dir, usage};

impl HandlerContext<'_> {
    pub(super) fn path_info(&self) -> HandlerResult {
        let request: PathInfoRequest<'_> = self.request()?;
        let sources = self.source(request.store, request.store_dir, &request.network)?;
        let found = self.look_up(&sources, [request.path].into_iter(), false)?;
        let info = found.infos.first().map(Texts::message);
        self.reply(&info.unwrap_or_default())
    }

    pub(super) fn closure(&self) -> HandlerResult {
        let request: ClosureRequest<'_> = self.request()?;
        let sources = self.source(request.store, request.store_dir, &request.network)?;
        let found = self.look_up(&sources, request.paths.iter(), true)?;
        let infos: Vec<PathInfo<'_>> = found.infos.iter().map(Texts::message).collect();
        self.reply(&ClosureReply {
            infos: infos.into(),
        })
    }

    fn source(
        &self,
        store: &str,
        dir: Option<&str>,
        network: &messages::NetworkOptions<'_>,
    ) -> Result<Sources, WorkError> {
        let store = resolve_store(store, store_dir(dir)?.as_ref())?;
        let (order, network) = (SourceOrder::AsListed, network_options(network));
        Ok(Sources::open(&[store], order, &network, self.cancel())?)
    }

    fn look_up<'t>(
        &self,
        sources: &Sources,
        paths: impl Iterator<Item = &'t str>,
        recursive: bool,
    ) -> Result<Found, WorkError> {
        let Some(source) = sources.list.first() else {
            return Err(usage("the request names no store".into()));
        };
        let dir = source.store_dir();
        let roots: Result<Vec<PathSpec>, _> =
            paths.map(|text| PathSpec::parse(text, dir)).collect();
        let found = source.query_closure(&roots?, recursive, self.cancel())?;
        let of = |narinfo| Texts::of(narinfo, dir, source.has_nar_files());
        Ok(Found {
            infos: found.values().map(of).collect(),
        })
    }
}

struct Found {
    infos: Vec<Texts>,
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
    file: Option<File>,
}

/// The fields that only a cache has.
struct File {
    url: String,
    compression: Option<messages::Compression>,
    hash: Option<String>,
    size: Option<u64>,
}

impl Texts {
    fn of(narinfo: &NarInfo, dir: &StoreDir, is_cached: bool) -> Texts {
        let info = &narinfo.info;
        let file = is_cached.then(|| File {
            url: narinfo.url.clone(),
            compression: translate(&narinfo.compression),
            hash: narinfo.file_hash.as_ref().map(|hash| hash.to_nix32()),
            size: narinfo.file_size,
        });
        Texts {
            path: dir.full_path(&info.path),
            nar_hash: info.nar_hash.to_nix32(),
            nar_size: info.nar_size,
            references: info
                .references
                .iter()
                .map(|path| dir.full_path(path))
                .collect(),
            deriver: info.deriver.as_ref().map(|path| dir.full_path(path)),
            signatures: info.signatures.iter().map(ToString::to_string).collect(),
            content_address: info.ca.as_ref().map(ToString::to_string),
            file,
        }
    }

    fn message(&self) -> PathInfo<'_> {
        let file = self.file.as_ref();
        PathInfo {
            path: &self.path,
            nar_hash: &self.nar_hash,
            nar_size: self.nar_size,
            references: list(&self.references),
            deriver: self.deriver.as_deref(),
            signatures: list(&self.signatures),
            content_address: self.content_address.as_deref(),
            url: file.map(|file| file.url.as_str()),
            compression: file.and_then(|file| file.compression),
            file_hash: file.and_then(|file| file.hash.as_deref()),
            file_size: file.and_then(|file| file.size),
        }
    }
}

fn list(texts: &[String]) -> List<'_, &str> {
    texts.iter().map(String::as_str).collect::<Vec<_>>().into()
}

/// Returns `None` for a compression that the schema does not have.
fn translate(compression: &Compression) -> Option<messages::Compression> {
    Some(match compression {
        Compression::None => messages::Compression::None,
        Compression::Xz => messages::Compression::Xz,
        Compression::Bzip2 => messages::Compression::Bzip2,
        Compression::Gzip => messages::Compression::Gzip,
        Compression::Zstd => messages::Compression::Zstd,
        Compression::Brotli => messages::Compression::Brotli,
        Compression::Lz4 => messages::Compression::Lz4,
        _ => return None,
    })
}
