//! Compares a NAR with its path info: size, NAR hash and content address.

use floe_format::content_address::{ContentAddress, ContentAddressMethod, ModuloHasher};
use floe_format::nar::read::{NarEvent, NarReader};
use floe_format::{Hash, HashAlgorithm, NarInfo, PathInfo};
use floe_hash::hash_pool::{Stream, Worker};

use crate::error::Error;
use crate::planned_path::PlannedPath;

/// Hashes a NAR chunk by chunk, and compares it at the end.
pub struct NarVerifier<'a> {
    info: &'a PathInfo,
    relies_on_content_address: bool,
    url: &'a str,
    hasher: Stream,
    size: u64,
    contents: Option<ContentsHasher>,
}

/// Hashes the contents that a content address covers, if they differ from the NAR.
enum ContentsHasher {
    /// The NAR with the path's own hash part replaced by zeros.
    Nar(ModuloHasher),
    /// The contents of the file. The NAR must consist of one file; `is_file` is set by its first
    /// event.
    File {
        reader: NarReader,
        hasher: ModuloHasher,
        is_file: Option<bool>,
    },
}

impl<'a> NarVerifier<'a> {
    /// Makes a verifier for `path`. Errors name `url`.
    pub fn new(path: &'a PlannedPath, url: &'a str, worker: &Worker) -> NarVerifier<'a> {
        let info = &path.narinfo.info;
        let contents = info.ca.and_then(|ca| {
            let modulo = || ModuloHasher::new(ca.hash.algorithm(), info.path.hash_part().as_str());
            match ca.method {
                ContentAddressMethod::NixArchive => {
                    let same =
                        ca.hash.algorithm() == HashAlgorithm::Sha256 && !info.has_self_reference();
                    (!same).then(|| ContentsHasher::Nar(modulo()))
                }
                ContentAddressMethod::Text | ContentAddressMethod::Flat => {
                    Some(ContentsHasher::File {
                        reader: NarReader::new(),
                        hasher: modulo(),
                        is_file: None,
                    })
                }
                ContentAddressMethod::Git => None,
            }
        });
        NarVerifier {
            info,
            relies_on_content_address: path.relies_on_content_address,
            url,
            hasher: worker.stream(info.nar_size),
            size: 0,
            contents,
        }
    }

    /// Hashes the next bytes. Fails as soon as the NAR exceeds its size, so that a small body
    /// cannot grow without end.
    pub fn update(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.size += chunk.len() as u64;
        if self.size > self.info.nar_size {
            let (expected, actual) = (self.info.nar_size, format!("more than {}", self.size - 1));
            return Err(self.mismatch("NAR size", expected.to_string(), actual));
        }
        self.hasher.update(chunk);
        match &mut self.contents {
            None => Ok(()),
            Some(ContentsHasher::Nar(hasher)) => {
                hasher.update(chunk);
                Ok(())
            }
            Some(ContentsHasher::File {
                reader,
                hasher,
                is_file,
            }) => {
                let mut rest = chunk;
                loop {
                    match reader.next(&mut rest) {
                        Ok(None) => return Ok(()),
                        Ok(Some(event)) => {
                            let root_is_file = matches!(event, NarEvent::File { .. });
                            let is_file = *is_file.get_or_insert(root_is_file);
                            if let (true, NarEvent::Data(bytes)) = (is_file, event) {
                                hasher.update(bytes);
                            }
                        }
                        Err(source) => {
                            let path = self.info.path.clone();
                            return Err(floe_store::StoreError::Nar { path, source }.into());
                        }
                    }
                }
            }
        }
    }

    /// Compares everything. Returns the NAR hash.
    pub fn finish(mut self) -> Result<Hash, Error> {
        let actual = Hash::sha256(std::mem::take(&mut self.hasher).finish());
        let info = self.info;
        if self.size != info.nar_size {
            let (expected, actual) = (info.nar_size.to_string(), self.size.to_string());
            return Err(self.mismatch("NAR size", expected, actual));
        }
        if actual != info.nar_hash {
            return Err(self.mismatch("NAR hash", info.nar_hash.to_nix32(), actual.to_nix32()));
        }
        // The trust check does not rely on the hash of a Git tree.
        let is_checked = |ca: &ContentAddress| ca.method != ContentAddressMethod::Git;
        let Some(ca) = info.ca.filter(is_checked) else {
            return Ok(actual);
        };
        let (contents, without_offsets) = match self.contents.take() {
            None => (actual, None),
            Some(
                ContentsHasher::Nar(hasher)
                | ContentsHasher::File {
                    is_file: Some(true),
                    hasher,
                    ..
                },
            ) => {
                let both = hasher.finish_both();
                (both.hash, Some(both.without_offsets))
            }
            Some(ContentsHasher::File { .. }) => {
                let actual = "not a single file".to_owned();
                return Err(self.mismatch("content address", ca.to_string(), actual));
            }
        };
        if contents == ca.hash {
            return Ok(actual);
        }
        if without_offsets != Some(ca.hash) {
            return Err(self.mismatch("content hash", ca.hash.to_nix32(), contents.to_nix32()));
        }
        // Nix from 2.17 to 2.34 did not hash the positions of self-references. Contents with zeros
        // in place of some of them have the same hash, so it identifies no contents by itself.
        if self.relies_on_content_address {
            return Err(Error::WeakContentAddress {
                path: info.path.clone(),
                url: self.url.to_owned(),
            });
        }
        Ok(actual)
    }

    fn mismatch(&self, what: &'static str, expected: String, actual: String) -> Error {
        mismatch(self.info, self.url, what, (expected, actual))
    }
}

/// Compares a body with the FileSize and FileHash of its narinfo.
pub(crate) fn check_file(
    narinfo: &NarInfo,
    url: &str,
    size: u64,
    hash: Option<Hash>,
) -> Result<(), Error> {
    if let Some(expected) = narinfo.file_size
        && expected != size
    {
        let values = (expected.to_string(), size.to_string());
        return Err(mismatch(&narinfo.info, url, "file size", values));
    }
    if let (Some(expected), Some(actual)) = (narinfo.file_hash, hash)
        && expected != actual
    {
        let values = (expected.to_nix32(), actual.to_nix32());
        return Err(mismatch(&narinfo.info, url, "file hash", values));
    }
    Ok(())
}

fn mismatch(
    info: &PathInfo,
    url: &str,
    what: &'static str,
    (expected, actual): (String, String),
) -> Error {
    Error::Mismatch {
        path: info.path.clone(),
        url: url.to_owned(),
        what,
        expected,
        actual,
    }
}
