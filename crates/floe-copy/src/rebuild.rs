//! Makes the database of a local store new from the trees on disk, and decides which of them are
//! trusted.
//!
//! 1. A path is expected to have the contents that the old database states, or else those that a
//!    cache states with a trusted signature or with a content address.
//! 2. All trees are hashed on all cores. Those without an expectation are also searched for
//!    references.
//! 3. Paths with other contents than expected are looked up in the caches that were not asked.
//! 4. The name of a path may follow from its contents: that of a source, of a derivation, of a
//!    file. It needs no signature then.
//! 5. The rest is registered only on request, and never if trusted metadata states other contents.
//! 6. A path is left out if one of its references is.

mod contents;
mod expected;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;

use floe_format::content_address::ContentAddressMethod;
use floe_format::{ContentAddress, Hash, PathInfo, StorePath, TrustedKeys};
use floe_store::{Progress, StoreError, StoreRebuild};
use floe_transfer::{Cancel, Error};
use parking_lot::Mutex;

use crate::sources::Sources;
use contents::{Contents, ReferenceCandidates, Scanned, has_address, hash_modulo, read_tree};
use expected::{Expected, Lookup};
pub use report::{LeftOut, LeftOutPath, Origin, RebuildReport};

/// The options of a rebuild.
#[derive(Clone, Debug)]
pub struct RebuildOptions {
    /// The public keys whose signatures are trusted.
    pub trusted_keys: TrustedKeys,
    /// Whether the narinfos of caches need a signature or a content address.
    pub check_signatures: bool,
    /// Whether paths without trusted metadata are registered.
    pub accept_unsigned: bool,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// The number of paths that are hashed at once. `None`: chosen for the machine.
    pub jobs: Option<NonZeroUsize>,
    /// Raised to stop.
    pub cancel: Cancel,
}

/// A rebuild of a database.
pub struct Rebuild<'a> {
    /// The store with its old database.
    pub store: StoreRebuild,
    /// The caches that may know paths of the store.
    pub sources: &'a Sources,
    /// The options.
    pub options: &'a RebuildOptions,
    /// Receives the progress of the hashing.
    pub progress: &'a dyn Progress,
}

/// The decisions about the paths of the store.
#[derive(Default)]
struct Findings {
    accepted: BTreeMap<StorePath, (PathInfo, Origin)>,
    left_out: BTreeMap<StorePath, LeftOut>,
}

impl Rebuild<'_> {
    /// Rebuilds the database.
    ///
    /// Errors: [`Error::Cancelled`], and those of the store. The old database stays then.
    pub fn run(self) -> Result<RebuildReport, Error> {
        let mut lookup = Lookup::new(&self);
        let mut findings = Findings::default();
        let trees: Vec<&StorePath> = self.store.trees().iter().collect();
        let mut expected: BTreeMap<StorePath, Expected> = trees
            .iter()
            .filter_map(|path| self.registered(path))
            .collect();
        let unknown = trees.iter().filter(|path| !expected.contains_key(**path));
        let unknown: Vec<StorePath> = unknown.map(|path| (*path).clone()).collect();
        expected.extend(lookup.find(&unknown, &|_| true)?);
        let nar_bytes = expected
            .values()
            .map(|expected| expected.info.nar_size)
            .sum();
        self.progress.started(trees.len() as u64, nar_bytes);
        let contents = self.read_trees(trees, &expected, self.progress)?;
        let mut others = self.accept_expected(&expected, contents, &mut findings)?;
        self.accept_from_further_caches(&mut lookup, &mut others, &mut findings)?;
        self.accept_addressed(&mut others, &mut findings)?;
        self.decide_rest(others, &expected, &lookup, &mut findings);
        self.leave_out_invalid_derivations(&mut findings);
        leave_out_incomplete(&mut findings);
        if !self.options.dry_run {
            self.canonicalise(&mut findings)?;
            leave_out_incomplete(&mut findings);
        }
        let failures = lookup.failures;
        self.finish(findings, failures)
    }

    /// Returns what the old database states about a path.
    fn registered(&self, path: &StorePath) -> Option<(StorePath, Expected)> {
        let info = self.store.row(path)?.clone();
        let origin = Origin::Database;
        let expected = Expected {
            info,
            origin,
            relies_on_content_address: false,
        };
        Some((path.clone(), expected))
    }

    /// Hashes trees. Searches those for references of which nothing is expected, and those whose
    /// registered references may be incomplete.
    fn read_trees(
        &self,
        paths: Vec<&StorePath>,
        expected: &BTreeMap<StorePath, Expected>,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<StorePath, Result<Contents, StoreError>>, Error> {
        let candidates = ReferenceCandidates::new(self.store.trees());
        let is_damaged = self.store.damage().is_some();
        let read = Mutex::new(BTreeMap::new());
        let len = |path: &StorePath| {
            expected
                .get(path)
                .map_or(USUAL_LEN, |expected| expected.info.nar_size)
        };
        self.store.for_each_tree(
            paths,
            self.options.jobs,
            progress,
            &len,
            &|path, place, worker| {
                let expected = expected.get(path);
                let is_complete =
                    |expected: &Expected| expected.origin != Origin::Database || !is_damaged;
                let candidates = (!expected.is_some_and(is_complete)).then_some(&candidates);
                let addressed = expected.filter(|expected| expected.relies_on_content_address);
                let contents = read_tree(place, worker, len(path), candidates, addressed);
                progress.path_done(contents.as_ref().map_or(0, |contents| contents.nar_size));
                read.lock().insert(path.clone(), contents);
            },
        )?;
        Ok(read.into_inner())
    }

    /// Accepts the paths with the expected contents. Returns the others, searched for references.
    fn accept_expected(
        &self,
        expected: &BTreeMap<StorePath, Expected>,
        contents: BTreeMap<StorePath, Result<Contents, StoreError>>,
        findings: &mut Findings,
    ) -> Result<BTreeMap<StorePath, Contents>, Error> {
        let (mut others, mut unsearched) = (BTreeMap::new(), Vec::new());
        for (path, contents) in contents {
            let mut contents = match contents {
                Ok(contents) => contents,
                Err(error) => {
                    findings.left_out.insert(path, LeftOut::Refused(error));
                    continue;
                }
            };
            self.correct_references(&path, &mut contents);
            match expected.get(&path) {
                Some(expected) if contents.are(expected) => {
                    let info = contents.complete(expected.info.clone());
                    findings
                        .accepted
                        .insert(path, (info, expected.origin.clone()));
                }
                _ if contents.scanned.is_none() => unsearched.push(path),
                _ => _ = others.insert(path, contents),
            }
        }
        let (unsearched, nothing) = (unsearched.iter().collect(), BTreeMap::new());
        for (path, contents) in self.read_trees(unsearched, &nothing, &self.cancellation())? {
            match contents {
                Ok(mut contents) => {
                    self.correct_references(&path, &mut contents);
                    others.insert(path, contents);
                }
                Err(error) => _ = findings.left_out.insert(path, LeftOut::Refused(error)),
            }
        }
        Ok(others)
    }

    /// Accepts paths whose contents a cache states that was not asked for them before.
    fn accept_from_further_caches(
        &self,
        lookup: &mut Lookup<'_>,
        others: &mut BTreeMap<StorePath, Contents>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let paths: Vec<StorePath> = others.keys().cloned().collect();
        let has_contents = |expected: &Expected| {
            let contents = others.get(&expected.info.path);
            !expected.relies_on_content_address && contents.is_some_and(|it| it.are(expected))
        };
        for (path, expected) in lookup.find(&paths, &has_contents)? {
            others.remove(&path);
            findings
                .accepted
                .insert(path, (expected.info, expected.origin));
        }
        Ok(())
    }

    /// Accepts paths whose names follow from their contents.
    fn accept_addressed(
        &self,
        others: &mut BTreeMap<StorePath, Contents>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let mut with_self_reference = Vec::new();
        for (path, contents) in &*others {
            let Some(scanned) = &contents.scanned else {
                continue;
            };
            if scanned.references.contains(path) {
                with_self_reference.push(path.clone());
            } else if let Some(ca) = self.address(path, contents, scanned) {
                let info = PathInfo {
                    ca: Some(ca),
                    ..contents.info(path)
                };
                findings
                    .accepted
                    .insert(path.clone(), (info, Origin::ContentAddress));
            }
        }
        for (path, hash) in self.hash_modulo(&with_self_reference)? {
            let ca = ContentAddress {
                method: ContentAddressMethod::NixArchive,
                hash,
            };
            let Some(contents) = others.get(&path) else {
                continue;
            };
            let info = PathInfo {
                ca: Some(ca),
                ..contents.info(&path)
            };
            if info.matches_content_address(&self.store.layout().store_dir) == Some(true) {
                findings
                    .accepted
                    .insert(path, (info, Origin::ContentAddress));
            }
        }
        others.retain(|path, _| !findings.accepted.contains_key(path));
        Ok(())
    }

    /// The references of a derivation are its inputs. It also names its outputs, which are none.
    fn correct_references(&self, path: &StorePath, contents: &mut Contents) {
        if path.is_derivation()
            && let Some(scanned) = &mut contents.scanned
            && let Ok(derivation) = self.store.derivation(path)
        {
            let inputs = derivation.input_derivations.into_keys();
            scanned.references = inputs.chain(derivation.input_sources).collect();
        }
    }

    /// Returns the content address from which the name of a path follows. It has no references to
    /// itself.
    fn address(
        &self,
        path: &StorePath,
        contents: &Contents,
        scanned: &Scanned,
    ) -> Option<ContentAddress> {
        let dir = &self.store.layout().store_dir;
        let address = |method, hash| ContentAddress { method, hash };
        let tree = address(ContentAddressMethod::NixArchive, contents.nar_hash);
        let files = scanned.file_hashes.iter().flat_map(|hash| {
            [ContentAddressMethod::Text, ContentAddressMethod::Flat]
                .map(|method| address(method, *hash))
        });
        let mut addresses = [tree].into_iter().chain(files);
        addresses.find(|ca| has_address(dir, path, ca, &scanned.references))
    }

    /// Hashes trees that refer to themselves as their content addresses do.
    fn hash_modulo(&self, paths: &[StorePath]) -> Result<Vec<(StorePath, Hash)>, Error> {
        let hashes = Mutex::new(Vec::new());
        self.store.for_each_tree(
            paths.iter().collect(),
            self.options.jobs,
            &self.cancellation(),
            &|_| USUAL_LEN,
            &|path, place, _| {
                // A tree that cannot be read any more has no address.
                if let Ok(hash) = hash_modulo(path, place) {
                    hashes.lock().push((path.clone(), hash));
                }
            },
        )?;
        Ok(hashes.into_inner())
    }

    /// Accepts the paths without trusted metadata, if the user wants that.
    fn decide_rest(
        &self,
        others: BTreeMap<StorePath, Contents>,
        expected: &BTreeMap<StorePath, Expected>,
        lookup: &Lookup<'_>,
        findings: &mut Findings,
    ) {
        for (path, contents) in others {
            let stated = expected.get(&path).or_else(|| lookup.stated.get(&path));
            // The hash in an unsigned narinfo is not trusted.
            let stated = stated.filter(|expected| !expected.relies_on_content_address);
            let reason = match stated {
                Some(expected) => LeftOut::OtherContents {
                    expected: expected.info.nar_hash,
                    actual: contents.nar_hash,
                    origin: expected.origin.clone(),
                },
                None if self.options.accept_unsigned => {
                    let info = contents.info(&path);
                    findings.accepted.insert(path, (info, Origin::Unsigned));
                    continue;
                }
                None => LeftOut::Unsigned {
                    signed_by: lookup.signers.get(&path).cloned().unwrap_or_default(),
                },
            };
            findings.left_out.insert(path, reason);
        }
    }

    /// Leaves out derivations whose outputs do not follow from their contents.
    fn leave_out_invalid_derivations(&self, findings: &mut Findings) {
        for (path, (info, _)) in &findings.accepted {
            if let Err(error) = self.store.check_derivation(info) {
                findings
                    .left_out
                    .insert(path.clone(), LeftOut::Refused(error));
            }
        }
        findings.drop_left_out();
    }

    /// Gives new paths the modes and times of store paths.
    fn canonicalise(&self, findings: &mut Findings) -> Result<(), Error> {
        let failed = Mutex::new(Vec::new());
        let new = findings.accepted.iter();
        let new = new.filter(|(_, (_, origin))| *origin != Origin::Database);
        self.store.for_each_tree(
            new.map(|(path, _)| path).collect(),
            self.options.jobs,
            &self.cancellation(),
            &|_| USUAL_LEN,
            &|path, _, _| {
                if let Err(error) = self.store.canonicalise(path) {
                    failed.lock().push((path.clone(), LeftOut::Refused(error)));
                }
            },
        )?;
        findings.left_out.extend(failed.into_inner());
        findings.drop_left_out();
        Ok(())
    }

    fn cancellation(&self) -> Cancellation<'_> {
        Cancellation(self.progress)
    }

    fn finish(self, findings: Findings, failures: Vec<Error>) -> Result<RebuildReport, Error> {
        let trees: BTreeSet<&StorePath> = self.store.trees().iter().collect();
        let rows = self.store.rows().map(|info| &info.path);
        let vanished: Vec<StorePath> = rows.filter(|path| !trees.contains(path)).cloned().collect();
        let damage = self.store.damage().map(ToString::to_string);
        let infos: Vec<&PathInfo> = findings.accepted.values().map(|(info, _)| info).collect();
        let nar_bytes = infos.iter().map(|info| info.nar_size).sum();
        let mut origins: BTreeMap<Origin, Vec<StorePath>> = BTreeMap::new();
        for (path, (_, origin)) in &findings.accepted {
            origins
                .entry(origin.clone())
                .or_default()
                .push(path.clone());
        }
        let store = self.store;
        let finish = || store.finish(&infos);
        let rebuilt = (!self.options.dry_run).then(finish).transpose()?;
        Ok(RebuildReport {
            nar_bytes,
            origins,
            left_out: findings
                .left_out
                .into_iter()
                .map(|(path, reason)| LeftOutPath { path, reason })
                .collect(),
            vanished,
            damage,
            saved: rebuilt.and_then(|rebuilt| rebuilt.saved),
            failures,
        })
    }
}

impl Findings {
    fn drop_left_out(&mut self) {
        self.accepted
            .retain(|path, _| !self.left_out.contains_key(path));
    }
}

/// Leaves out each path of which a reference is not accepted, and so on.
fn leave_out_incomplete(findings: &mut Findings) {
    let mut referrers: HashMap<&StorePath, Vec<&StorePath>> = HashMap::new();
    let mut missing: BTreeMap<StorePath, BTreeSet<StorePath>> = BTreeMap::new();
    let mut left = Vec::new();
    for (path, (info, _)) in &findings.accepted {
        for reference in &info.references {
            referrers.entry(reference).or_default().push(path);
            if !findings.accepted.contains_key(reference) {
                missing
                    .entry(path.clone())
                    .or_default()
                    .insert(reference.clone());
            }
        }
        if missing.contains_key(path) {
            left.push(path);
        }
    }
    while let Some(gone) = left.pop() {
        for referrer in referrers
            .get(gone)
            .into_iter()
            .flatten()
            .filter(|it| **it != gone)
        {
            if !missing.contains_key(*referrer) {
                left.push(referrer);
            }
            missing
                .entry((*referrer).clone())
                .or_default()
                .insert(gone.clone());
        }
    }
    let reasons = missing.into_iter();
    let reasons = reasons.map(|(path, missing)| (path, LeftOut::MissingReferences(missing)));
    findings.left_out.extend(reasons);
    findings.drop_left_out();
}

/// Only ends the work at an interrupt.
struct Cancellation<'a>(&'a dyn Progress);

impl Progress for Cancellation<'_> {
    fn should_continue(&self) -> bool {
        self.0.should_continue()
    }
}

/// The expected size of a tree of which nothing is known, in bytes.
const USUAL_LEN: u64 = 1024 * 1024;
