//! The names that were resolved before, for use without a network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache_file::{now, replace};
use crate::package::{Candidate, SourceReply};
use crate::pins::SeenPins;

/// The remembered names of a user, in a file.
///
/// The file is only a cache: without it, or if it is damaged, names are resolved again. Two
/// processes that write at once lose at most the new names of one of them.
#[derive(Clone, Debug, Default)]
pub struct NameMemory {
    /// `None` if the user has no place for it.
    file: Option<PathBuf>,
    names: BTreeMap<String, Remembered>,
    /// The systems of the paths whose programs were read.
    pub(crate) systems: Systems,
    /// The pins that this machine has seen.
    pub pins: SeenPins,
    has_changed: bool,
}

/// The systems of paths by their base names; `None` for a path without programs.
pub(crate) type Systems = BTreeMap<String, Option<String>>;

/// A remembered package of a source.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Remembered {
    /// When the source was asked, in seconds since 1970.
    pub resolved_at: u64,
    /// The reply.
    pub candidate: Candidate,
}

impl Remembered {
    /// Whether the source was asked at most this time ago. A clock that was ahead does not keep a
    /// reply for longer.
    pub fn is_newer_than(&self, age: Duration) -> bool {
        let own = now().checked_sub(self.resolved_at);
        own.is_some_and(|own| Duration::from_secs(own) < age)
    }
}

/// The contents of the file.
#[derive(Default, Deserialize, Serialize)]
struct Contents {
    version: u32,
    names: BTreeMap<String, Remembered>,
    #[serde(default)]
    systems: Systems,
}

impl NameMemory {
    /// Reads the file. `None` means that nothing is remembered.
    pub fn open(file: Option<PathBuf>) -> NameMemory {
        let contents = file.as_deref().and_then(read).unwrap_or_default();
        NameMemory {
            file,
            names: contents.names,
            systems: contents.systems,
            pins: SeenPins::default(),
            has_changed: false,
        }
    }

    /// Returns the directory of the file, for other files that save work.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.file.as_deref()?.parent()
    }

    /// Returns a name of a source.
    pub fn find(&self, source: &str, name: &str) -> Option<&Remembered> {
        self.names.get(&key(source, name))
    }

    /// Remembers a name of a source.
    pub(crate) fn insert(&mut self, source: &str, name: &str, reply: &SourceReply) {
        let remembered = Remembered {
            resolved_at: reply.resolved_at,
            candidate: reply.candidate.clone(),
        };
        self.names.insert(key(source, name), remembered);
        self.has_changed = true;
    }

    /// Writes the file if a name is new. A user without a place for it remembers nothing.
    pub fn save(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.has_changed) else {
            return;
        };
        let Contents {
            mut names,
            mut systems,
            ..
        } = read(file).unwrap_or_default();
        names.append(&mut self.names.clone());
        systems.append(&mut self.systems.clone());
        while systems.len() > SYSTEMS_MAX {
            systems.pop_first();
        }
        while names.len() > NAMES_MAX {
            let oldest = names.iter().min_by_key(|(_, it)| it.resolved_at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| names.remove(&key));
        }
        let contents = Contents {
            version: VERSION,
            names,
            systems,
        };
        let text = serde_json::to_vec(&contents).ok();
        // Without it, the next process resolves the names again.
        let _: Option<()> = text.and_then(|text| replace(file, &[&text]));
        self.has_changed = false;
    }
}

fn key(source: &str, name: &str) -> String {
    format!("{source} {name}")
}

fn read(file: &Path) -> Option<Contents> {
    let is_small = fs::metadata(file).ok()?.len() <= FILE_LEN_MAX;
    let text = is_small.then(|| fs::read(file).ok()).flatten()?;
    let contents: Contents = serde_json::from_slice(&text).ok()?;
    (contents.version == VERSION).then_some(contents)
}

/// The version of the format of the file.
const VERSION: u32 = 1;

/// How many names are remembered.
const NAMES_MAX: usize = 1000;

/// How many paths with their systems are remembered.
const SYSTEMS_MAX: usize = 5000;

/// The largest file in bytes; a name has about 300.
const FILE_LEN_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(path: &str) -> Candidate {
        Candidate {
            outputs: BTreeMap::from([("out".into(), path.into())]),
            ..Candidate::default()
        }
    }

    #[test]
    fn names_are_remembered_until_too_many() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("cache/names.json");
        let mut first = NameMemory::open(Some(file.clone()));
        let mut second = NameMemory::open(Some(file.clone()));
        first.insert("s", "a", &candidate("/a").into());
        first.save();
        second.insert("s", "b", &candidate("/b").into());
        second.save();
        let mut both = NameMemory::open(Some(file.clone()));
        let found = both.find("s", "a").unwrap();
        assert_eq!(found.candidate, candidate("/a"));
        assert!(found.is_newer_than(Duration::from_secs(60)));
        let future = Remembered {
            resolved_at: now() + 1000,
            ..found.clone()
        };
        assert!(!future.is_newer_than(Duration::from_secs(60)));
        assert!(both.find("s", "b").is_some() && both.find("other", "b").is_none());
        for number in 0..NAMES_MAX + 10 {
            both.insert("s", &number.to_string(), &candidate("/c").into());
        }
        both.save();
        assert_eq!(NameMemory::open(Some(file)).names.len(), NAMES_MAX);
    }

    #[test]
    fn damaged_file_counts_as_empty_and_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("names.json");
        for text in ["", "{", "[]", r#"{"version":99,"names":{}}"#] {
            fs::write(&file, text).unwrap();
            let mut memory = NameMemory::open(Some(file.clone()));
            assert!(memory.names.is_empty(), "{text}");
            memory.insert("s", "a", &candidate("/a").into());
            memory.save();
            assert_eq!(NameMemory::open(Some(file.clone())).names.len(), 1);
        }
        let mut nowhere = NameMemory::open(Some("/dev/null/names.json".into()));
        nowhere.insert("s", "a", &candidate("/a").into());
        nowhere.save();
        assert!(nowhere.find("s", "a").is_some());
    }
}
