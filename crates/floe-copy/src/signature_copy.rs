//! Copies the signatures that caches have of paths, without their contents.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{PathInfo, StoreDir, StorePath, TrustedKeys};
use floe_transfer::{
    CachePolicy, Cancel, Error, ErrorKind, NarInfoResult, SignatureTarget, Source,
};

use crate::copy::trust::store_dir_mismatch;
use crate::queries::query_all;
use crate::sources::Sources;

/// A copy of signatures from sources to paths that a target has.
pub struct SignatureCopy<'a> {
    /// The sources.
    pub sources: &'a Sources,
    /// The target.
    pub target: &'a dyn SignatureTarget,
    /// The store directory of the target.
    pub store_dir: &'a StoreDir,
    /// The keys whose signatures are copied however many others there are
    /// ([`PathInfo::drop_junk_signatures`]).
    pub trusted_keys: &'a TrustedKeys,
    /// The flag that cancels the copy.
    pub cancel: &'a Cancel,
}

/// The result of a copy of signatures.
#[derive(Debug, Default)]
pub struct CopiedSignatures {
    /// The paths that have got a signature.
    pub signed: BTreeSet<StorePath>,
    /// The paths that a source has.
    pub offered: BTreeSet<StorePath>,
    /// The paths of which a source has other facts, with its name and what differs.
    pub different: Vec<(StorePath, String, &'static str)>,
    /// The paths that the target does not have.
    pub absent: BTreeSet<StorePath>,
    /// The paths whose metadata in the target cannot be used, with the reason.
    pub unusable: BTreeMap<StorePath, String>,
    /// The failures of sources: one for each path whose narinfo cannot be used, and one for a
    /// source that cannot be used at all.
    pub failures: Vec<Error>,
}

impl SignatureCopy<'_> {
    /// Adds the signatures of all sources to some paths.
    ///
    /// Errors: those of the target; [`Error::Cancelled`].
    pub fn run(&self, paths: &[StorePath]) -> Result<CopiedSignatures, Error> {
        let mut copied = CopiedSignatures::default();
        for source in &self.sources.list {
            if !source.is_for(self.store_dir) {
                let error = store_dir_mismatch(&**source, self.store_dir);
                copied.failures.push(error);
                continue;
            }
            for part in paths.chunks(PATHS_AT_ONCE) {
                let is_usable = self.copy_from(&**source, part, &mut copied)?;
                if !is_usable {
                    break;
                }
            }
        }
        Ok(copied)
    }

    /// Copies from one source. Returns whether it can be used for more paths.
    fn copy_from(
        &self,
        source: &dyn Source,
        paths: &[StorePath],
        copied: &mut CopiedSignatures,
    ) -> Result<bool, Error> {
        let mut infos = Vec::new();
        let mut is_usable = true;
        let mut receive = |path: StorePath, reply: NarInfoResult| {
            let error = match reply.map(|reply| reply.narinfo) {
                Ok(None) => return,
                // A signature covers the name.
                Ok(Some(narinfo)) if narinfo.info.path != path => {
                    copied.different.push((path, source.name(), "name"));
                    return;
                }
                Ok(Some(narinfo)) => {
                    copied.offered.insert(path);
                    infos.push(self.without_junk(narinfo.info));
                    return;
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Untrusted {
                copied.failures.push(error);
            } else if std::mem::replace(&mut is_usable, false) {
                // Each further path would fail in the same way.
                copied.failures.push(error);
            }
        };
        // A path may have been signed since its narinfo was remembered.
        let policy = CachePolicy::Bypass;
        query_all(source, paths, (policy, self.cancel), &mut receive)?;
        infos.retain(|info| !info.signatures.is_empty());
        let outcome = self.target.merge_signatures(&infos)?;
        copied.signed.extend(outcome.signed);
        copied.absent.extend(outcome.absent);
        copied.unusable.extend(outcome.unusable);
        let different = outcome.different.into_iter();
        let name = source.name();
        let different = different.map(|(path, what)| (path, name.clone(), what));
        copied.different.extend(different);
        Ok(is_usable)
    }

    fn without_junk(&self, mut info: PathInfo) -> PathInfo {
        info.drop_junk_signatures(self.store_dir, self.trusted_keys);
        info
    }
}

/// The narinfos in memory, and the paths of one transaction.
const PATHS_AT_ONCE: usize = 1000;
