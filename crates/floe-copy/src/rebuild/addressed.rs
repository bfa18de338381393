//! Paths whose names follow from their contents.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::content_address::ContentAddressMethod;
use floe_format::{ContentAddress, Hash, PathInfo, StorePath};
use floe_transfer::Error;
use parking_lot::Mutex;

use super::contents::{Contents, Scanned, has_address, hash_modulo};
use super::findings::Findings;
use super::{Origin, Rebuild, USUAL_LEN};

impl Rebuild<'_> {
    /// Accepts paths whose names follow from their contents.
    pub(super) fn accept_addressed(
        &self,
        others: &mut BTreeMap<StorePath, Contents>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let mut with_self_reference = Vec::new();
        for (path, contents) in &*others {
            let Some(scanned) = &contents.scanned else {
                continue;
            };
            if let Some((ca, references)) = self.address(path, contents, scanned) {
                let info = PathInfo {
                    ca: Some(ca),
                    references: references.clone(),
                    ..contents.info(path)
                };
                findings
                    .accepted
                    .insert(path.clone(), (info, Origin::ContentAddress));
            } else if scanned.references.contains(path) {
                with_self_reference.push(path.clone());
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
    pub(super) fn correct_references(&self, path: &StorePath, contents: &mut Contents) {
        if path.is_derivation()
            && let Some(scanned) = &mut contents.scanned
            && let Ok(derivation) = self.store.derivation(path)
        {
            let inputs = derivation.input_derivations.into_keys();
            scanned.references = inputs.chain(derivation.input_sources).collect();
        }
    }

    /// Returns the content address from which the name of a path follows, with the references that
    /// it covers. Contents that were added from elsewhere may name paths without referring to them.
    fn address<'a>(
        &self,
        path: &StorePath,
        contents: &Contents,
        scanned: &'a Scanned,
    ) -> Option<(ContentAddress, &'a BTreeSet<StorePath>)> {
        static NONE: BTreeSet<StorePath> = BTreeSet::new();
        let dir = &self.store.layout().store_dir;
        let address = |method, hash| ContentAddress { method, hash };
        let tree = address(ContentAddressMethod::NixArchive, contents.nar_hash);
        let files = scanned.file_hashes.iter().flat_map(|hash| {
            [ContentAddressMethod::Text, ContentAddressMethod::Flat]
                .map(|method| address(method, *hash))
        });
        let addresses = [tree].into_iter().chain(files);
        let mut addresses = addresses.flat_map(|ca| [(ca, &scanned.references), (ca, &NONE)]);
        addresses.find(|(ca, references)| has_address(dir, path, ca, references))
    }

    /// Hashes trees that refer to themselves as their content addresses do.
    fn hash_modulo(&self, paths: &[StorePath]) -> Result<Vec<(StorePath, Hash)>, Error> {
        let hashes = Mutex::new(Vec::new());
        self.store.for_each_tree(
            paths.iter().collect(),
            self.options.copy.jobs,
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
}
