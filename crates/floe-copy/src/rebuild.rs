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

mod addressed;
mod contents;
mod expected;
mod findings;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use floe_format::{PathInfo, Signature, StorePath, sum_of_sizes};
use floe_store::{Progress, StoreError, StoreRebuild};
use floe_transfer::{CopyOptions, Error};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::sources::Sources;
use contents::{Contents, ReferenceCandidates, read_tree};
use expected::{Expected, Lookup};
use findings::Findings;
pub use report::{LeftOut, LeftOutPath, Origin, RebuildReport};

/// The options of a rebuild.
#[derive(Clone, Debug, Default)]
pub struct RebuildOptions {
    /// The trust in narinfos, and the number of paths that are hashed at once.
    pub copy: CopyOptions,
    /// Whether paths without trusted metadata are registered.
    pub accept_unsigned: bool,
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
        let nar_bytes = sum_of_sizes(expected.values().map(|expected| expected.info.nar_size));
        self.progress.started(trees.len() as u64, nar_bytes);
        let contents = self.read_trees(trees, &expected, self.progress)?;
        let mut others = self.accept_expected(&expected, contents, &mut findings)?;
        self.accept_from_further_caches(&mut lookup, &mut others, &mut findings)?;
        self.accept_addressed(&mut others, &mut findings)?;
        self.decide_rest(others, &expected, &lookup, &mut findings);
        self.leave_out_invalid_derivations(&mut findings)?;
        findings.leave_out_incomplete();
        if !self.store.is_dry_run() {
            self.canonicalise(&mut findings)?;
            findings.leave_out_incomplete();
        }
        let failures = lookup.failures.into_values().collect();
        self.finish(findings, failures)
    }

    /// Returns what the old database states about a path, unless the row contradicts itself.
    fn registered(&self, path: &StorePath) -> Option<(StorePath, Expected)> {
        let info = self.store.row(path)?.info.clone();
        if !self.is_consistent(&info) {
            return None;
        }
        let origin = Origin::Database;
        let expected = Expected {
            info,
            origin,
            relies_on_content_address: false,
        };
        Some((path.clone(), expected))
    }

    /// Whether the references of a row are those of its content address, and those that a trusted
    /// key has signed.
    fn is_consistent(&self, info: &PathInfo) -> bool {
        let dir = &self.store.layout().store_dir;
        let keys = &self.options.copy.trusted_keys;
        let is_of_trusted =
            |signature: &Signature| keys.names().any(|name| name == signature.key_name());
        let is_signed = info.signatures.iter().any(is_of_trusted) && info.nar_size > 0;
        info.matches_content_address(dir) != Some(false)
            && (!is_signed || info.is_signed_by(dir, keys))
    }

    /// Returns the row of a path with these contents, if the row contradicts itself. The contents
    /// tell the references then.
    fn inconsistent_row(&self, path: &StorePath, contents: &Contents) -> Option<PathInfo> {
        let info = &self.store.row(path)?.info;
        if info.nar_hash != contents.nar_hash || self.is_consistent(info) {
            return None;
        }
        let is_addressed = info.matches_content_address(&self.store.layout().store_dir);
        let mut info = self.complete(contents, info.clone());
        info.signatures.clear();
        info.ca = info.ca.filter(|_| is_addressed == Some(true));
        Some(info)
    }

    /// Hashes trees. Searches those for references of which nothing is expected, and those whose
    /// registered references may be incomplete.
    fn read_trees(
        &self,
        paths: Vec<&StorePath>,
        expected: &BTreeMap<StorePath, Expected>,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<StorePath, Result<Contents, StoreError>>, Error> {
        let is_expected = |path: &StorePath| expected.contains_key(path);
        let candidates = ReferenceCandidates::new(self.store.trees(), &is_expected);
        let read = Mutex::new(BTreeMap::new());
        let len = |path: &StorePath| {
            expected
                .get(path)
                .map_or(USUAL_LEN, |expected| expected.info.nar_size)
        };
        self.store.for_each_tree(
            paths,
            self.options.copy.jobs,
            progress,
            &len,
            &|path, place, worker| {
                let expected = expected.get(path);
                let is_complete = |expected: &Expected| {
                    expected.origin != Origin::Database
                        || self
                            .store
                            .row(path)
                            .is_some_and(|row| !row.may_lack_references)
                };
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
                    self.check_unreadable(&path, &error)?;
                    findings.left_out.insert(path, LeftOut::Refused(error));
                    continue;
                }
            };
            self.correct_references(&path, &mut contents);
            match expected.get(&path) {
                Some(expected) if contents.are(expected) => {
                    let info = self.complete(&contents, expected.info.clone());
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
                Err(error) => {
                    self.check_unreadable(&path, &error)?;
                    findings.left_out.insert(path, LeftOut::Refused(error));
                }
            }
        }
        Ok(others)
    }

    /// Checks that a tree can be left out because it cannot be read.
    ///
    /// Errors: the error, if it concerns this process and not the tree, or if an intact database
    /// would lose the path.
    fn check_unreadable(&self, path: &StorePath, error: &StoreError) -> Result<(), Error> {
        let StoreError::Io {
            action,
            path: file,
            source,
        } = error
        else {
            return Ok(());
        };
        let row = self.store.row(path).filter(|row| row.is_valid);
        let is_registered = row.is_some_and(|row| !row.may_lack_references);
        if !is_registered && !is_of_process(source) {
            return Ok(());
        }
        let source = match source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(source.kind(), source.to_string()),
        };
        let (action, path) = (*action, file.clone());
        Err(StoreError::Io {
            action,
            path,
            source,
        }
        .into())
    }

    /// Completes the row of a damaged database, which may lack references.
    fn complete(&self, contents: &Contents, mut info: PathInfo) -> PathInfo {
        info.nar_size = contents.nar_size;
        let dir = &self.store.layout().store_dir;
        let is_complete = info.matches_content_address(dir) == Some(true)
            || info.is_signed_by(dir, &self.options.copy.trusted_keys);
        let Some(scanned) = contents.scanned.as_ref().filter(|_| !is_complete) else {
            return info;
        };
        let before = info.references.len();
        info.references.extend(scanned.references.iter().cloned());
        if info.references.len() > before {
            // They cover the references too.
            info.signatures.clear();
        }
        info
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

    /// Accepts the paths without trusted metadata, if the user wants that.
    fn decide_rest(
        &self,
        others: BTreeMap<StorePath, Contents>,
        expected: &BTreeMap<StorePath, Expected>,
        lookup: &Lookup<'_>,
        findings: &mut Findings,
    ) {
        for (path, contents) in others {
            if let Some(info) = self.inconsistent_row(&path, &contents) {
                findings.accepted.insert(path, (info, Origin::Database));
                continue;
            }
            // The name of a path proves its content address, also in an unsigned narinfo.
            let stated = expected.get(&path).or_else(|| lookup.stated.get(&path));
            let reason = match stated {
                Some(expected) => LeftOut::OtherContents {
                    expected: expected.info.nar_hash,
                    actual: contents.nar_hash,
                    origin: expected.origin.clone(),
                },
                None if self.is_ambiguous(&path) => LeftOut::SameHashPart,
                None if lookup.unanswered.contains(&path) => LeftOut::Unanswered,
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

    /// Whether another tree has the same hash part. References cannot tell which of them they mean.
    fn is_ambiguous(&self, path: &StorePath) -> bool {
        let trees = self.store.trees();
        let is_same = |other: &StorePath| other.hash_part() == path.hash_part();
        let first = trees.partition_point(|other| other.hash_part() < path.hash_part());
        trees[first..]
            .iter()
            .take_while(|other| is_same(other))
            .count()
            > 1
    }

    /// Leaves out derivations whose outputs do not follow from their contents.
    ///
    /// Errors: those of the system that concern more than one file.
    fn leave_out_invalid_derivations(&self, findings: &mut Findings) -> Result<(), Error> {
        let new = findings.accepted.iter();
        let new = new.filter(|(_, (_, origin))| *origin != Origin::Database);
        for (path, (info, _)) in new {
            match self.store.check_derivation(info) {
                Ok(()) => {}
                Err(error @ StoreError::Derivation { .. }) => {
                    let reason = LeftOut::Refused(error);
                    findings.left_out.insert(path.clone(), reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        findings.drop_left_out();
        Ok(())
    }

    /// Gives new paths the modes and times of store paths.
    fn canonicalise(&self, findings: &mut Findings) -> Result<(), Error> {
        let failed = Mutex::new(Vec::new());
        let is_valid = |path: &StorePath| self.store.row(path).is_some_and(|row| row.is_valid);
        let new = findings
            .accepted
            .iter()
            .filter(|(path, (_, origin))| *origin != Origin::Database || !is_valid(path));
        self.store.for_each_tree(
            new.map(|(path, _)| path).collect(),
            self.options.copy.jobs,
            &self.cancellation(),
            &|_| USUAL_LEN,
            &|path, _, _| {
                if let Err(error) = self.store.canonicalise(path) {
                    failed.lock().push((path.clone(), error));
                }
            },
        )?;
        for (path, error) in failed.into_inner() {
            self.check_unreadable(&path, &error)?;
            findings.left_out.insert(path, LeftOut::Refused(error));
        }
        findings.drop_left_out();
        Ok(())
    }

    fn cancellation(&self) -> Cancellation<'_> {
        Cancellation(self.progress)
    }

    fn finish(self, findings: Findings, failures: Vec<Error>) -> Result<RebuildReport, Error> {
        let trees: BTreeSet<&StorePath> = self.store.trees().iter().collect();
        let rows = self.store.valid_paths();
        let vanished: Vec<StorePath> = rows.filter(|path| !trees.contains(path)).cloned().collect();
        let infos: Vec<&PathInfo> = findings.accepted.values().map(|(info, _)| info).collect();
        let nar_bytes = sum_of_sizes(infos.iter().map(|info| info.nar_size));
        let mut origins: BTreeMap<Origin, Vec<StorePath>> = BTreeMap::new();
        for (path, (_, origin)) in &findings.accepted {
            origins
                .entry(origin.clone())
                .or_default()
                .push(path.clone());
        }
        let saved = self.store.finish(&infos)?;
        Ok(RebuildReport {
            nar_bytes,
            origins,
            left_out: findings
                .left_out
                .into_iter()
                .map(|(path, reason)| LeftOutPath { path, reason })
                .collect(),
            vanished,
            saved,
            failures,
        })
    }
}

/// Whether an error concerns this process, so that other trees would fail too.
fn is_of_process(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno))
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
