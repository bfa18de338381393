//! Reads trees of a store, and describes their contents.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use floe_format::content_address::ModuloHasher;
use floe_format::nar::read::{NarEvent, NarReader};
use floe_format::reference_scan::ReferenceScanner;
use floe_format::{
    Compression, ContentAddress, Hash, HashAlgorithm, HashPart, NarInfo, PathInfo, StoreDir,
    StorePath,
};
use floe_hash::Hasher;
use floe_hash::hash_pool::Worker;
use floe_store::{StoreError, tree};
use floe_transfer::{NarVerifier, PlannedPath};

use super::expected::Expected;

/// The contents of a tree.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) nar_hash: Hash,
    pub(super) nar_size: u64,
    /// `None` if the tree was only hashed.
    pub(super) scanned: Option<Scanned>,
    /// Whether a content address covers all contents, if the caller asked for that.
    has_content_address: bool,
}

/// The metadata that follow from the contents of a tree.
#[derive(Debug)]
pub(super) struct Scanned {
    /// The paths of the store whose hash parts occur in the contents.
    pub(super) references: BTreeSet<StorePath>,
    /// The hashes of the bytes of a single file that is not executable, by all algorithms.
    pub(super) file_hashes: Vec<Hash>,
}

impl Contents {
    /// Whether they are the expected ones.
    pub(super) fn are(&self, expected: &Expected) -> bool {
        let info = &expected.info;
        let is_addressed = !expected.relies_on_content_address || self.has_content_address;
        // Rows of very old Nix versions have no size.
        let has_size = info.nar_size == self.nar_size || info.nar_size == 0;
        self.nar_hash == info.nar_hash && has_size && is_addressed
    }

    /// Returns what can be registered about a path without trusted metadata.
    pub(super) fn info(&self, path: &StorePath) -> PathInfo {
        let references = self
            .scanned
            .as_ref()
            .map(|scanned| scanned.references.clone());
        PathInfo {
            path: path.clone(),
            nar_hash: self.nar_hash,
            nar_size: self.nar_size,
            references: references.unwrap_or_default(),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        }
    }
}

/// The paths that a tree may refer to, by their hash parts.
pub(super) struct ReferenceCandidates<'a>(HashMap<HashPart, &'a StorePath>);

impl<'a> ReferenceCandidates<'a> {
    /// Of several paths with the same hash part, the one that is expected may be referred to.
    pub(super) fn new(
        paths: &'a [StorePath],
        is_expected: &dyn Fn(&StorePath) -> bool,
    ) -> ReferenceCandidates<'a> {
        let mut candidates = HashMap::new();
        for path in paths {
            let candidate = candidates.entry(path.hash_part()).or_insert(path);
            if is_expected(path) {
                *candidate = path;
            }
        }
        ReferenceCandidates(candidates)
    }
}

/// Reads a tree. Searches it for references if there are candidates. Checks the content address of
/// `addressed`.
///
/// Errors: those of the system, and those of [`tree::dump_path`].
pub(super) fn read_tree(
    place: &Path,
    worker: &Worker,
    len: u64,
    candidates: Option<&ReferenceCandidates<'_>>,
    addressed: Option<&Expected>,
) -> Result<Contents, StoreError> {
    let (mut hasher, mut nar_size) = (worker.stream(len), 0);
    let mut search = candidates.map(Search::new);
    let planned = addressed.map(planned_path);
    // The first difference ends the check and not the reading.
    let mut verifier = planned.as_ref().map(|it| NarVerifier::new(it, "", worker));
    tree::dump_path(place, &mut |chunk| {
        hasher.update(chunk);
        nar_size += chunk.len() as u64;
        if let Some(search) = &mut search {
            search.update(chunk);
        }
        if let Some(running) = &mut verifier
            && running.update(chunk).is_err()
        {
            verifier = None;
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(Contents {
        nar_hash: Hash::sha256(hasher.finish()),
        nar_size,
        scanned: search.map(Search::finish),
        has_content_address: verifier.is_some_and(|it| it.finish().is_ok()),
    })
}

/// Returns the hash of a tree in which zeros replace its own hash part.
///
/// Errors: those of the system.
pub(super) fn hash_modulo(path: &StorePath, place: &Path) -> Result<Hash, StoreError> {
    let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, path.hash_part().as_str());
    tree::dump_path(place, &mut |chunk| {
        hasher.update(chunk);
        Ok::<_, StoreError>(())
    })?;
    Ok(hasher.finish())
}

/// Whether the name of a path follows from a content address and references.
pub(super) fn has_address(
    dir: &StoreDir,
    path: &StorePath,
    ca: &ContentAddress,
    references: &BTreeSet<StorePath>,
) -> bool {
    ca.store_path(dir, path.name(), references, false).as_ref() == Ok(path)
}

/// The verifier takes the path of a copy. The check of the address is all that is wanted of it.
fn planned_path(expected: &Expected) -> PlannedPath {
    PlannedPath {
        narinfo: NarInfo {
            info: expected.info.clone(),
            url: String::new(),
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        },
        source: 0,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address: true,
        keeps_signatures: false,
    }
}

/// The search of a NAR for references, and for the bytes of a single file.
struct Search<'a> {
    candidates: &'a ReferenceCandidates<'a>,
    scanner: ReferenceScanner,
    references: BTreeSet<StorePath>,
    reader: NarReader,
    file: FileHashes,
}

/// The hashes of a single file.
enum FileHashes {
    /// The first event of the NAR has not been read.
    Unknown,
    Hashers(Vec<(HashAlgorithm, Hasher)>),
    /// The tree is a directory, a link or a program, or a NAR that does not parse.
    None,
}

impl<'a> Search<'a> {
    fn new(candidates: &'a ReferenceCandidates<'a>) -> Search<'a> {
        Search {
            candidates,
            scanner: ReferenceScanner::new(),
            references: BTreeSet::new(),
            reader: NarReader::new(),
            file: FileHashes::Unknown,
        }
    }

    fn update(&mut self, chunk: &[u8]) {
        let (candidates, references) = (&self.candidates.0, &mut self.references);
        self.scanner.scan(chunk, &mut |hash_part, _| {
            if let Some(path) = candidates.get(&hash_part)
                && !references.contains(*path)
            {
                references.insert((*path).clone());
            }
        });
        self.hash_file(chunk);
    }

    fn hash_file(&mut self, mut rest: &[u8]) {
        while !matches!(self.file, FileHashes::None) {
            let event = match self.reader.next(&mut rest) {
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(_) => return self.file = FileHashes::None,
            };
            match (&mut self.file, event) {
                (
                    FileHashes::Unknown,
                    NarEvent::File {
                        executable: false, ..
                    },
                ) => {
                    let hashers = HashAlgorithm::ALL.map(|it| (it, Hasher::new(it)));
                    self.file = FileHashes::Hashers(hashers.into());
                }
                (FileHashes::Unknown, _) => self.file = FileHashes::None,
                (FileHashes::Hashers(hashers), NarEvent::Data(bytes)) => {
                    hashers
                        .iter_mut()
                        .for_each(|(_, hasher)| hasher.update(bytes));
                }
                _ => {}
            }
        }
    }

    fn finish(self) -> Scanned {
        let hashers = match self.file {
            FileHashes::Hashers(hashers) => hashers,
            FileHashes::Unknown | FileHashes::None => Vec::new(),
        };
        let hashes = hashers.into_iter();
        let hash = |(algorithm, hasher): (_, Hasher)| Hash::new(algorithm, &hasher.finish()).ok();
        Scanned {
            references: self.references,
            file_hashes: hashes.filter_map(hash).collect(),
        }
    }
}
