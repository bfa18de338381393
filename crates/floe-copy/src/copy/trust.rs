//! The trust check: is a narinfo for the requested path, and is there a trusted signature or a
//! content address? It happens before the download; the contents are verified on arrival.

use floe_format::content_address::ContentAddressMethod;
use floe_format::{Compression, NarInfo, PathInfo, StoreDir};
use floe_transfer::{CopyOptions, Error, Event, PathSpec, PlannedPath, Source};

use super::ClosureCopy;

/// Checks a narinfo. Returns the planned path, and why a verification refuses it all the same.
pub(super) fn check_trust(
    copy: &ClosureCopy<'_>,
    source: usize,
    wanted: &PathSpec,
    narinfo: NarInfo,
) -> Result<(PlannedPath, Option<Error>), Error> {
    let facts = copy.target.facts();
    let rules = TrustRules {
        options: copy.options,
        store_dir: copy.target.store_dir(),
        requires_trust: facts.requires_trust || copy.options.replaced.is_some(),
        accepts_untrusted: facts.keeps_nothing,
    };
    let checked = rules.check(&*copy.sources.list[source], wanted, narinfo)?;
    if checked.dropped_signatures > 0 {
        copy.events.event(Event::DroppedSignatures {
            path: &checked.narinfo.info.path,
            count: checked.dropped_signatures,
        });
    }
    let planned = PlannedPath {
        narinfo: checked.narinfo,
        source,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address: checked.is_unsigned,
        keeps_signatures: checked.keeps_signatures,
    };
    Ok((planned, checked.distrust))
}

/// The rules by which a target accepts narinfos.
pub(crate) struct TrustRules<'a> {
    pub(crate) options: &'a CopyOptions,
    /// The store directory of the target.
    pub(crate) store_dir: &'a StoreDir,
    /// Whether the target needs signatures at all.
    pub(crate) requires_trust: bool,
    /// Whether a narinfo without them is accepted all the same ([`CheckedNarInfo::distrust`]).
    pub(crate) accepts_untrusted: bool,
}

/// A narinfo that the rules accept.
pub(crate) struct CheckedNarInfo {
    pub(crate) narinfo: NarInfo,
    /// Whether only its content address makes the path trusted.
    pub(crate) is_unsigned: bool,
    /// Whether only the narinfo of the target states these facts, so that the target adds no
    /// signature.
    pub(crate) keeps_signatures: bool,
    pub(crate) dropped_signatures: usize,
    /// Why the path is not trusted.
    pub(crate) distrust: Option<Error>,
}

impl TrustRules<'_> {
    /// Checks the narinfo that a source has for a path.
    ///
    /// Errors: the reason why the target refuses it.
    pub(crate) fn check(
        &self,
        source: &dyn Source,
        wanted: &PathSpec,
        mut narinfo: NarInfo,
    ) -> Result<CheckedNarInfo, Error> {
        let dir = self.store_dir;
        let info = &narinfo.info;
        // The store directory of a cache that opened late was not checked at the start.
        if !source.is_for(dir) {
            return Err(store_dir_mismatch(source, dir));
        }
        if !wanted.matches(&info.path) {
            return Err(Error::WrongPath {
                source_name: source.name(),
                url: format!("{}/{}.narinfo", source.name(), wanted.hash_part()),
                found: info.path.clone(),
                wanted: wanted.text(),
            });
        }
        if let Compression::Unsupported(name) = &narinfo.compression {
            return Err(Error::Unsupported {
                path: info.path.clone(),
                feature: format!("the compression {name}"),
            });
        }
        let locked = self.options.nar_hashes.get(&info.path);
        if let Some(locked) = locked.filter(|locked| **locked != info.nar_hash) {
            return Err(Error::Mismatch {
                path: info.path.clone(),
                url: source.name(),
                what: "NAR hash",
                expected: format!("{}, which the lock file has", locked.to_sri()),
                actual: info.nar_hash.to_sri(),
            });
        }
        let is_content_addressed = check_content_address(info, dir, source)?;
        let needs_no_trust = !self.options.check_signatures
            || !self.requires_trust
            || self.options.obey_trusted && source.facts().is_trusted;
        let keys = &self.options.trusted_keys;
        let needed = self.options.signatures_needed.max(1);
        let is_unsigned = !needs_no_trust && !info.is_signed_by_at_least(needed, dir, keys);
        let is_untrusted = is_unsigned && !is_content_addressed;
        if let Some(replaced) = self.options.replaced_info(info) {
            return Ok(replacement(narinfo, replaced, is_untrusted));
        }
        let distrust = match is_untrusted.then(|| self.distrust(source, info)) {
            Some(error) if !self.accepts_untrusted => return Err(error),
            distrust => distrust,
        };
        let dropped_signatures = narinfo.info.drop_junk_signatures(dir, keys);
        Ok(CheckedNarInfo {
            narinfo,
            is_unsigned: is_unsigned && is_content_addressed,
            keeps_signatures: false,
            dropped_signatures,
            distrust,
        })
    }

    /// Returns why too few trusted keys have signed a path.
    fn distrust(&self, source: &dyn Source, info: &PathInfo) -> Error {
        let (path, source_name) = (info.path.clone(), source.name());
        let keys = &self.options.trusted_keys;
        if info.is_signed_by(self.store_dir, keys) {
            return Error::TooFewSignatures {
                path,
                source_name,
                needed: self.options.signatures_needed,
            };
        }
        let signers = info.signatures.iter();
        Error::Untrusted {
            path,
            source_name,
            signed_by: signers.map(|s| s.key_name().to_owned()).collect(),
            trusted: keys.names().map(str::to_owned).collect(),
        }
    }
}

/// Returns the narinfo for a path that the copy replaces, and of which a source states the same.
fn replacement(mut narinfo: NarInfo, replaced: &PathInfo, is_untrusted: bool) -> CheckedNarInfo {
    let info = &mut narinfo.info;
    if is_untrusted {
        // The source is not trusted, so only the metadata of the target counts.
        *info = replaced.clone();
    } else {
        info.signatures.extend(replaced.signatures.iter().cloned());
    }
    CheckedNarInfo {
        narinfo,
        is_unsigned: false,
        keeps_signatures: is_untrusted,
        dropped_signatures: 0,
        distrust: None,
    }
}

/// Turns the error about a narinfo of another name into that of a requested path: the user has
/// misspelt the name. In a reference, the source is corrupt.
pub(crate) fn explain_wrong_name(error: Error) -> Error {
    match error {
        Error::WrongPath {
            source_name,
            wanted,
            found,
            ..
        } => Error::WrongName {
            wanted,
            found,
            source_name,
        },
        error => error,
    }
}

/// Returns the error about a source whose paths are for another store directory.
pub(crate) fn store_dir_mismatch(source: &dyn Source, wanted: &StoreDir) -> Error {
    Error::StoreDirMismatch {
        source_name: source.name(),
        found: source.store_dir().as_str().into(),
        wanted: wanted.as_str().into(),
    }
}

/// Returns whether the path has a content address that makes its signature unnecessary.
///
/// Errors: the address does not match the path.
fn check_content_address(
    info: &PathInfo,
    dir: &StoreDir,
    source: &dyn Source,
) -> Result<bool, Error> {
    match (&info.ca, info.matches_content_address(dir)) {
        (Some(ca), Some(false)) => Err(Error::ContentAddressMismatch {
            path: info.path.clone(),
            source_name: source.name(),
            ca: ca.to_string(),
        }),
        // floe cannot compare the contents with it, so the path needs a signature.
        (Some(ca), _) if ca.method == ContentAddressMethod::Git => Ok(false),
        (_, holds) => Ok(holds == Some(true)),
    }
}
