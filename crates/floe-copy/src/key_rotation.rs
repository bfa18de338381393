//! The rotation of the key of a binary cache: a new key signs each object that the old key
//! has signed.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::pin::{PIN_GENERATIONS_FOLDER, PINS_FOLDER, Pin};
use floe_format::{
    DrvOutput, PathInfo, PublicKey, Realisation, SecretKey, Signature, StoreDir, StorePath,
};
use floe_transfer::{CacheInventory, Cancel, Error, Expected, SignatureChange, Written};
use serde_json::Value;

/// A rotation of the key of a cache. An object without a valid signature by the old key stays as
/// it is, because its contents may be wrong.
pub struct KeyRotation<'a> {
    /// The cache.
    pub cache: &'a dyn CacheInventory,
    /// The store directory of its paths.
    pub store_dir: &'a StoreDir,
    /// The old key.
    pub old: &'a PublicKey,
    /// The new key, of another name.
    pub new: &'a SecretKey,
    /// Whether the signatures by the old key are removed.
    pub remove_old: bool,
    /// Only finds out what would be changed.
    pub dry_run: bool,
    /// Ends the rotation.
    pub cancel: &'a Cancel,
}

/// The result of a rotation, or the one that it would have.
#[derive(Debug, Default)]
pub struct RotatedKey {
    /// The paths whose signatures have changed.
    pub paths: BTreeSet<StorePath>,
    /// The objects of pins and their generations.
    pub pins: BTreeSet<String>,
    /// The objects of realisations.
    pub realisations: BTreeSet<String>,
    /// Whether any path has, or had, a signature with the name of the old key.
    pub has_old: bool,
    /// The objects that could not be changed, with the reasons.
    pub failures: BTreeMap<String, String>,
}

impl KeyRotation<'_> {
    /// Signs everything. Looks again for what a push has signed with the old key meanwhile.
    ///
    /// Errors: those of the storage; [`Error::Cancelled`].
    pub fn run(&self) -> Result<RotatedKey, Error> {
        let mut rotated = RotatedKey::default();
        for _ in 0..PASSES_MAX {
            rotated.failures.clear();
            let is_done = !self.sign_paths(&mut rotated)?;
            if is_done || self.dry_run {
                break;
            }
        }
        self.sign_realisations(&mut rotated)?;
        for folder in [PINS_FOLDER, PIN_GENERATIONS_FOLDER] {
            self.sign_pins(folder, &mut rotated)?;
        }
        Ok(rotated)
    }

    /// Returns whether the signatures of any path have changed.
    fn sign_paths(&self, rotated: &mut RotatedKey) -> Result<bool, Error> {
        let contents = self.cache.list(self.cancel)?;
        let mut paths = Vec::new();
        for (name, reason) in contents.unusable.iter().chain(&contents.unreadable) {
            rotated.failures.insert(name.clone(), reason.clone());
        }
        for (path, found) in &contents.narinfos {
            let info = &found.narinfo.info;
            let mut keys = info.signatures.iter().map(Signature::key_name);
            rotated.has_old |= keys.any(|name| name == self.old.name());
            match self.change_of(info) {
                Ok(change) if change.is_empty() => {}
                Ok(_) => paths.push(path.clone()),
                Err(reason) => _ = rotated.failures.insert(path.to_string(), reason.into()),
            }
        }
        if self.dry_run {
            rotated.paths.extend(paths);
            return Ok(false);
        }
        let mut has_changed = false;
        for part in paths.chunks(PATHS_AT_ONCE) {
            // The narinfo may have changed since the list.
            let change = |info: &PathInfo| self.change_of(info);
            let outcome = self.cache.change_signatures(part, &change)?;
            has_changed |= !outcome.signed.is_empty();
            rotated.paths.extend(outcome.signed);
            let different = outcome.different.into_iter();
            let different = different.map(|(path, reason)| (path, reason.to_owned()));
            let failed = different.chain(outcome.unusable);
            let failed = failed.map(|(path, reason)| (path.to_string(), reason));
            rotated.failures.extend(failed);
        }
        Ok(has_changed)
    }

    fn change_of(&self, info: &PathInfo) -> Result<SignatureChange, &'static str> {
        self.change(&info.fingerprint(self.store_dir), &info.signatures)
    }

    fn sign_realisations(&self, rotated: &mut RotatedKey) -> Result<(), Error> {
        let names: BTreeSet<String> = self
            .cache
            .names(self.cancel)?
            .realisations
            .into_keys()
            .collect();
        for name in names {
            // Another program's object.
            let Some(id) = DrvOutput::from_object_name(&name) else {
                continue;
            };
            let change = |text: &[u8]| {
                let mut found = Realisation::parse(&id, text).map_err(|it| it.to_string())?;
                let change = self.change(&found.fingerprint(), &found.signatures)?;
                let is_changed = change.apply_to(&mut found.signatures);
                Ok(is_changed.then(|| change_json(text, &found)).flatten())
            };
            self.rewrite(
                &name,
                &change,
                (&mut rotated.realisations, &mut rotated.failures),
            )?;
        }
        Ok(())
    }

    fn sign_pins(&self, folder: &str, rotated: &mut RotatedKey) -> Result<(), Error> {
        let names = self.cache.objects().list(folder, self.cancel)?;
        let names = names.unwrap_or_default().into_iter();
        // The others are files that are being written, or those of other programs.
        for name in names.filter(|name| !name.starts_with('.')) {
            let change = |text: &[u8]| {
                let pin = Pin::parse(text).map_err(|error| error.to_string())?;
                let change = self.change(&pin.fingerprint(), &pin.signatures)?;
                let is_changed = change.apply_to(&mut pin.signatures.clone());
                Ok(is_changed.then(|| change_lines(text, &change)))
            };
            let name = format!("{folder}{name}");
            self.rewrite(&name, &change, (&mut rotated.pins, &mut rotated.failures))?;
        }
        Ok(())
    }

    /// Returns the change of the signatures over a text.
    ///
    /// Errors: the signature by the old key is not valid.
    fn change(
        &self,
        text: &str,
        signatures: &BTreeSet<Signature>,
    ) -> Result<SignatureChange, &'static str> {
        let name = self.old.name();
        let old = signatures.iter().filter(|it| it.key_name() == name);
        let old: Vec<Signature> = old.cloned().collect();
        if old.is_empty() {
            return Ok(SignatureChange::default());
        }
        let new = self.new.sign(text.as_bytes());
        let has_new = signatures.contains(&new);
        if !has_new && !old.iter().any(|it| self.old.verify(text.as_bytes(), it)) {
            return Err(WRONG);
        }
        Ok(SignatureChange {
            added: if has_new { Vec::new() } else { vec![new] },
            removed: if self.remove_old { old } else { Vec::new() },
        })
    }

    /// Changes a small object, unless another process changes it all the time.
    fn rewrite(
        &self,
        name: &str,
        change: &ChangeText<'_>,
        (changed, failures): (&mut BTreeSet<String>, &mut BTreeMap<String, String>),
    ) -> Result<(), Error> {
        let objects = self.cache.objects();
        for _ in 0..ATTEMPTS {
            let found = match objects.get_large(name, OBJECT_LEN_MAX, self.cancel) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(()),
                // Such as a directory. The other objects can be read.
                Err(error @ Error::UnreadableFile { .. }) => {
                    failures.insert(name.to_owned(), error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let text = match change(&found.contents) {
                Ok(Some(text)) => text,
                Ok(None) => return Ok(()),
                Err(reason) => {
                    failures.insert(name.to_owned(), reason);
                    return Ok(());
                }
            };
            let expected = found.version.map_or(Expected::Any, Expected::Version);
            if self.dry_run || objects.put(name, text.as_bytes(), &expected)? == Written::Yes {
                changed.insert(name.to_owned());
                return Ok(());
            }
        }
        failures.insert(name.to_owned(), "others write it at the same time".into());
        Ok(())
    }
}

/// Changes the signatures in the text of a pin. Other lines stay, also those that floe does not
/// know.
fn change_lines(text: &[u8], change: &SignatureChange) -> String {
    let text = String::from_utf8_lossy(text);
    let removed: Vec<String> = change.removed.iter().map(ToString::to_string).collect();
    let is_removed = |line: &&str| {
        let value = line.strip_prefix("Sig: ");
        value.is_some_and(|value| removed.iter().any(|it| it == value))
    };
    let kept = text.lines().filter(|line| !is_removed(line));
    let mut lines: Vec<String> = kept.map(str::to_owned).collect();
    lines.extend(change.added.iter().map(|it| format!("Sig: {it}")));
    lines.push(String::new());
    lines.join("\n")
}

/// Sets the signatures of a realisation in its JSON. Other fields stay.
fn change_json(text: &[u8], realisation: &Realisation) -> Option<String> {
    let mut json: Value = serde_json::from_slice(text).ok()?;
    let signatures = realisation.to_json().get("signatures")?.clone();
    json.as_object_mut()?
        .insert("signatures".into(), signatures);
    Some(json.to_string())
}

/// Returns the new text of an object; `None` if it stays.
type ChangeText<'c> = dyn Fn(&[u8]) -> Result<Option<String>, String> + 'c;

const WRONG: &str = "its signature by the old key is wrong";

/// How often the paths are listed. A push with the old key may go on for ever.
const PASSES_MAX: usize = 3;

/// How often an object is written that others write too.
const ATTEMPTS: usize = 5;

/// The narinfos in memory.
const PATHS_AT_ONCE: usize = 1000;

/// The longest object, in bytes: that of a realisation.
const OBJECT_LEN_MAX: usize = floe_format::realisation::REALISATION_LEN_MAX;
