//! The files in the paths of a cache, by listings and parts of NARs, and the logs of builds.

use std::io::{self, Read};

use floe_format::nar::layout::{FileExtent, Node};
use floe_format::nar::listing::{LISTING_LEN_MAX, Listing};
use floe_format::{Compression, NarInfo, StorePath};
use floe_transfer::{Body, Error, Event, EventSink as _, NarRequest};

use super::Shared;

impl Shared {
    /// Returns the tree in the listing of a path. A listing that cannot be that of the NAR is an
    /// event, and counts as none.
    pub(super) fn query_tree(&self, narinfo: &NarInfo) -> Result<Option<Node>, Error> {
        let name = format!("{}.ls", narinfo.info.path.hash_part());
        let text = match self.read_object(&name, LISTING_LEN_MAX + 1) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(None),
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                self.report_listing(narinfo, &error.to_string());
                return Ok(None);
            }
        };
        let reason = match Listing::parse(&text) {
            Err(error) => error.to_string(),
            Ok(listing) if !listing.offsets_match() => {
                "its offsets are not those of its tree".to_owned()
            }
            Ok(listing) if listing.root.nar_size() != narinfo.info.nar_size => {
                "its tree has a NAR of another size than the path".to_owned()
            }
            Ok(listing) => return Ok(Some(listing.root)),
        };
        self.report_listing(narinfo, &reason);
        Ok(None)
    }

    /// Opens a file in an uncompressed NAR. If the bytes before it are not those before a file of
    /// its size, the listing was that of another NAR.
    pub(super) fn open_file(
        &self,
        narinfo: &NarInfo,
        file: &FileExtent<'_>,
    ) -> Result<Option<Body>, Error> {
        let header = [
            &8_u64.to_le_bytes()[..],
            b"contents",
            &file.size.to_le_bytes()[..],
        ]
        .concat();
        let header_len = header.len() as u64;
        let start = file.offset.checked_sub(header_len);
        let (Compression::None, Some(start)) = (narinfo.compression, start) else {
            return Ok(None);
        };
        let end = file.offset.saturating_add(file.size);
        let body = self.storage.open_part(&narinfo.url, start..end)?;
        match body.split_at(&narinfo.url, header.len()) {
            Ok((found, rest)) if found == header => return Ok(Some(rest)),
            Ok(_) => {}
            // The NAR is shorter than that.
            Err(Error::Fetch {
                status: Some(416), ..
            }) => {}
            Err(error) => return Err(error),
        }
        self.report_listing(narinfo, "the NAR has no such file where the listing says");
        Ok(None)
    }

    fn report_listing(&self, narinfo: &NarInfo, reason: &str) {
        let url = self.object_url(&format!("{}.ls", narinfo.info.path.hash_part()));
        self.events
            .event(Event::UnusableListing { url: &url, reason });
    }

    /// Opens the log of a build. The client decodes the encoding that a server names.
    pub(super) fn open_build_log(
        &self,
        derivation: &StorePath,
    ) -> Result<Option<Box<dyn Read>>, Error> {
        let name = format!("log/{derivation}");
        let body = self.storage.open(&name, NarRequest::streamed());
        match body.and_then(|body| body.into_reader(&self.object_url(&name), BUILD_LOG_LEN_MAX)) {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an object, but no more than `len_max` bytes. `None` if the cache does not have it.
    fn read_object(&self, name: &str, len_max: usize) -> Result<Option<Vec<u8>>, Error> {
        let body = self.storage.open(name, NarRequest::streamed());
        match body.and_then(|body| body.read_to_end(name, len_max)) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether an error says that there is no such object. A bucket whose objects the user may not list
/// answers 403.
fn is_absent(error: &Error) -> bool {
    match error {
        Error::Fetch { status, .. } => matches!(status, Some(403 | 404 | 410)),
        Error::UnreadableFile { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The longest log of a build, in bytes. An encoding may expand to any length.
const BUILD_LOG_LEN_MAX: u64 = 1024 * 1024 * 1024;
