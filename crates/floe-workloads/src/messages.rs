//! The workload with the messages of libfloe: encode and decode a large reply in both encodings.

use std::path::Path;

use anyhow::{Result, ensure};
use floe_format::StoreDir;
use floe_messages::{ClosureReply, Codec, Compression, List, PathInfo};

use crate::Work;
use crate::inputs::path_info;

/// Encodes the metadata of a closure, decodes it, and reads each text.
pub(crate) fn encode_decode(_: &Path) -> Result<Work> {
    let texts: Vec<Texts> = (0..COUNT).map(Texts::new).collect::<Result<_>>()?;
    Ok(Box::new(move || {
        let references: Vec<Vec<&str>> = texts.iter().map(Texts::references).collect();
        let infos: Vec<PathInfo<'_>> = texts
            .iter()
            .zip(&references)
            .map(|(texts, references)| texts.info(references))
            .collect();
        let reply = ClosureReply {
            infos: List::Borrowed(&infos),
        };
        for codec in [Codec::Cbor, Codec::Flat].repeat(ROUNDS) {
            let mut bytes = Vec::new();
            codec.encode(&reply, &mut bytes);
            let decoded: ClosureReply<'_> = codec.decode(&bytes)?;
            ensure!(decoded == reply, "{codec:?} changes the reply");
        }
        Ok(())
    }))
}

/// The texts of a path info, which messages borrow.
struct Texts {
    path: String,
    nar_hash: String,
    references: Vec<String>,
    deriver: Option<String>,
    signatures: Vec<String>,
    size: u64,
}

impl Texts {
    fn new(number: usize) -> Result<Texts> {
        let (info, dir) = (path_info(number)?, StoreDir::default());
        Ok(Texts {
            path: dir.full_path(&info.path),
            nar_hash: info.nar_hash.to_nix32(),
            references: info.references.iter().map(|it| dir.full_path(it)).collect(),
            deriver: info.deriver.as_ref().map(|it| dir.full_path(it)),
            signatures: info.signatures.iter().map(ToString::to_string).collect(),
            size: info.nar_size,
        })
    }

    fn references(&self) -> Vec<&str> {
        self.references.iter().map(String::as_str).collect()
    }

    fn info<'a>(&'a self, references: &'a [&'a str]) -> PathInfo<'a> {
        PathInfo {
            path: &self.path,
            nar_hash: &self.nar_hash,
            nar_size: self.size,
            references: List::Borrowed(references),
            deriver: self.deriver.as_deref(),
            signatures: List::Owned(self.signatures.iter().map(String::as_str).collect()),
            content_address: None,
            url: Some(&self.nar_hash),
            compression: Some(Compression::Zstd),
            file_hash: Some(&self.nar_hash),
            file_size: Some(self.size),
        }
    }
}

/// The number of path infos in the reply.
const COUNT: usize = 2000;

/// How often each encoding is used.
const ROUNDS: usize = 4;
