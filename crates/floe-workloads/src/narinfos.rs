//! The workload with narinfos: parse and print many, and verify some.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use floe_format::{Compression, NarInfo, SecretKey, StoreDir, TrustedKeys};

use crate::Work;
use crate::inputs::path_info;

/// Parses and prints narinfos, and verifies the signatures of some.
pub(crate) fn parse_print_verify(_: &Path) -> Result<Work> {
    let dir = StoreDir::default();
    let key = SecretKey::from_seed("workload-1", [7; 32])?;
    let keys: TrustedKeys = [key.public()].into_iter().collect();
    let texts: Result<Vec<String>> = (0..COUNT)
        .map(|number| {
            let mut info = path_info(number)?;
            if number < VERIFIED {
                info.sign(&dir, &key);
            }
            Ok(narinfo(info).to_text(&dir))
        })
        .collect();
    let texts = texts?;
    Ok(Box::new(move || {
        for (number, text) in texts.iter().enumerate() {
            let narinfo = NarInfo::parse(text.as_bytes(), &dir)?;
            ensure!(narinfo.to_text(&dir) == *text, "{text} changes");
            if number < VERIFIED {
                let is_signed = narinfo.info.is_signed_by(&dir, &keys);
                is_signed
                    .then_some(())
                    .context("a signature is not valid")?;
            }
        }
        Ok(())
    }))
}

fn narinfo(info: floe_format::PathInfo) -> NarInfo {
    NarInfo {
        url: format!("nar/{}.nar.zst", info.nar_hash.digest_nix32()),
        compression: Compression::Zstd,
        file_hash: Some(info.nar_hash),
        file_size: Some(info.nar_size),
        info,
    }
}

/// The number of narinfos.
const COUNT: usize = 1000;

/// How many of them are verified. A signature takes as many instructions as twenty texts, and more
/// of them would hide a change of the parser.
const VERIFIED: usize = 50;
