//! The inputs of the workloads: numbers, texts, trees and path infos that follow from a seed.

use std::collections::BTreeSet;

use anyhow::Result;
use floe_format::nar::write;
use floe_format::{Hash, PathInfo, Signature, StorePath, nix32};

/// A generator of numbers (SplitMix64): the same seed gives the same numbers on every machine.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number = self.next() % (end as u64);
        // It is below a `usize`.
        usize::try_from(number).unwrap_or_default()
    }

    /// Returns bytes that compress like program texts: words of a short list.
    pub(crate) fn text(&mut self, len: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(len + 16);
        while text.len() < len {
            text.extend_from_slice(WORDS[self.below(WORDS.len())].as_bytes());
            text.extend_from_slice(self.below(1000).to_string().as_bytes());
            text.push(b' ');
        }
        text.truncate(len);
        text
    }
}

const WORDS: [&str; 16] = [
    "closure",
    "narinfo",
    "store",
    "path",
    "output",
    "derivation",
    "signature",
    "hash",
    "let",
    "return",
    "const",
    "value",
    "static",
    "module",
    "import",
    "public",
];

/// Returns the store path of a number.
pub(crate) fn path(number: usize) -> Result<StorePath> {
    let digest = floe_hash::sha256(&(number as u64).to_le_bytes());
    let hash_part = nix32::encode(&digest[..20]);
    let name = WORDS[number % WORDS.len()];
    Ok(StorePath::parse(&format!("{hash_part}-{name}-{number}"))?)
}

/// The most references of a generated path.
const REFERENCES_MAX: usize = 9;

/// Returns what is registered about the path of a number. It refers to paths of smaller numbers.
pub(crate) fn path_info(number: usize) -> Result<PathInfo> {
    let mut numbers = Numbers::new(number as u64);
    let count = numbers.below(REFERENCES_MAX).min(number);
    let references: Result<BTreeSet<StorePath>> =
        (0..count).map(|_| path(numbers.below(number))).collect();
    let signature = "cache.example.org-1:".to_owned()
        + "TVDNL9CWDIqsMLrDNcYPJOsRmOTa5rYtVIJxHPNMRBo\
           DgwGvdkVIZWTbyFfN0mGXUA2oyaLpMLkwr6c9Ll6iCw==";
    Ok(PathInfo {
        path: path(number)?,
        nar_hash: Hash::sha256(floe_hash::sha256(&number.to_be_bytes())),
        nar_size: 1 + numbers.below(1 << 20) as u64,
        references: references?,
        deriver: Some(StorePath::parse(&format!("{}.drv", path(number)?))?),
        signatures: BTreeSet::from([Signature::parse(&signature)?]),
        ca: None,
        registration_time: Some(1_700_000_000),
        ultimate: false,
    })
}

/// The shape of a generated tree.
pub(crate) struct TreeShape {
    pub(crate) directories: usize,
    pub(crate) files_per_directory: usize,
    /// The length of the longest file, in bytes.
    pub(crate) file_len_max: usize,
}

/// Returns the NAR of a generated tree. Each directory has files and one symbolic link.
pub(crate) fn nar(shape: &TreeShape) -> Vec<u8> {
    let mut numbers = Numbers::new(1);
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::begin_directory(&mut nar);
    for directory in 0..shape.directories {
        write::begin_entry(&mut nar, format!("directory-{directory:04}").as_bytes());
        write::begin_directory(&mut nar);
        for file in 0..shape.files_per_directory {
            let contents = {
                let len = numbers.below(shape.file_len_max);
                numbers.text(len)
            };
            let size = contents.len() as u64;
            write::begin_entry(&mut nar, format!("file-{file:04}").as_bytes());
            write::begin_file(&mut nar, file % 8 == 0, size);
            nar.extend_from_slice(&contents);
            write::end_file(&mut nar, size);
            write::end_entry(&mut nar);
        }
        write::begin_entry(&mut nar, b"link");
        write::symlink(&mut nar, b"file-0000");
        write::end_entry(&mut nar);
        write::end_directory(&mut nar);
        write::end_entry(&mut nar);
    }
    write::end_directory(&mut nar);
    nar
}
