//! Lock files: names with their paths and NAR hashes, as `floe lock` prints them. docs/formats.md
//! describes the format.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;

use floe_format::{Hash, HashAlgorithm};
use floe_store::open_regular_file;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::hydra::machine_system;
use crate::name_spec::NameSpec;

/// The names of a lock file.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LockFile {
    version: u32,
    /// The system of the paths, such as `x86_64-linux`.
    pub system: String,
    /// The names, as the user wrote them.
    #[serde(deserialize_with = "unique_names")]
    pub names: BTreeMap<String, LockedName>,
}

/// The path of a locked name.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LockedName {
    /// The path with its store directory.
    pub path: String,
    /// The SHA-256 of its NAR, such as `sha256-…`.
    pub nar_hash: String,
    /// The source that had the name, for people.
    #[serde(default)]
    pub source: String,
    /// When the source was asked, in seconds since 1970.
    #[serde(default)]
    pub resolved_at: u64,
}

impl LockFile {
    /// Makes a lock file with paths of a system, such as `x86_64-linux`.
    pub fn new(system: String, names: BTreeMap<String, LockedName>) -> LockFile {
        LockFile {
            version: VERSION,
            system,
            names,
        }
    }

    /// Reads a file.
    ///
    /// Errors: the text says why the file cannot be read, or where its format is wrong.
    pub fn read(path: &Path) -> Result<LockFile, String> {
        let file = open_regular_file(path).map_err(|error| error.to_string())?;
        let mut text = String::new();
        file.take(FILE_LEN_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        if text.len() as u64 > FILE_LEN_MAX {
            return Err(format!("it has more than {FILE_LEN_MAX} bytes"));
        }
        let lock = LockFile::parse(&text)?;
        let system = machine_system();
        if lock.system != system {
            return Err(format!(
                "it is for {}, and this machine is {system}",
                lock.system
            ));
        }
        Ok(lock)
    }

    /// Returns the path of a name. `nixpkgs.jq` may be `nixpkgs#jq`: whether there is a source
    /// `nixpkgs` was known when the file was made.
    pub fn find(&self, name: &NameSpec) -> Option<&LockedName> {
        let with_source = || {
            let (source, rest) = name.name.split_once('.')?;
            let with_source = NameSpec {
                source: Some(source.to_owned()),
                name: rest.to_owned(),
                ..name.clone()
            };
            self.names.get(&with_source.to_string())
        };
        let found = self.names.get(&name.to_string());
        found.or_else(|| name.source.is_none().then(with_source)?)
    }

    /// Parses the text of a file.
    ///
    /// Errors: the text says where the format is wrong.
    pub fn parse(text: &str) -> Result<LockFile, String> {
        let lock: LockFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if lock.version != VERSION {
            return Err(format!(
                "it has version {}, and floe reads {VERSION}",
                lock.version
            ));
        }
        for (name, locked) in &lock.names {
            let spec = NameSpec::parse(name).map_err(|error| error.to_string())?;
            if spec.to_string() != *name {
                return Err(format!("the name {name:?} is written {spec}"));
            }
            locked.hash().ok_or_else(|| {
                format!("the narHash of {name} is not a SHA-256, such as sha256-…")
            })?;
        }
        Ok(lock)
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        // The fields are texts and numbers.
        text.unwrap_or_default() + "\n"
    }
}

impl LockedName {
    /// Returns the NAR hash.
    pub(crate) fn hash(&self) -> Option<Hash> {
        let hash = Hash::parse_any(&self.nar_hash, None).ok()?;
        (hash.algorithm() == HashAlgorithm::Sha256).then_some(hash)
    }
}

/// Reads names, of which each stands once: of two, which merged files may have, neither counts.
fn unique_names<'de, D>(deserializer: D) -> Result<BTreeMap<String, LockedName>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = BTreeMap<String, LockedName>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut names = BTreeMap::new();
            while let Some((name, locked)) = map.next_entry::<String, LockedName>()? {
                if names.contains_key(&name) {
                    return Err(Error::custom(format!("the name {name:?} stands twice")));
                }
                names.insert(name, locked);
            }
            Ok(names)
        }
    }
    deserializer.deserialize_map(Names)
}

/// The version of the format.
const VERSION: u32 = 1;

/// The largest file in bytes: many thousand names.
const FILE_LEN_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lock(names: &[&str]) -> LockFile {
        let locked = |seed: usize| LockedName {
            path: format!("/nix/store/{seed}-x"),
            nar_hash: Hash::sha256([0; 32]).to_sri(),
            source: "nixpkgs".into(),
            resolved_at: 7,
        };
        let names = names.iter().enumerate();
        let names = names.map(|(seed, name)| ((*name).to_owned(), locked(seed)));
        LockFile::new(machine_system(), names.collect())
    }

    #[test]
    fn wrong_files_are_refused() {
        let good = lock(&["jq", "jq^dev@1.7"]).to_text();
        assert!(LockFile::parse(&good).is_ok());
        for (from, to, reason) in [
            ("\"version\": 1", "\"version\": 2", "it has version 2"),
            ("sha256-", "sha1-", "the narHash of"),
            ("narHash", "hash", "unknown field"),
            ("jq^dev@1.7", "jq.dev@1.7", "is written jq^dev@1.7"),
            ("jq^dev@1.7", "../jq", "cannot use"),
            ("\"path\"", "\"paths\"", "unknown field"),
            ("{", "", "expected"),
        ] {
            let error = LockFile::parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn name_that_stands_twice_is_refused() {
        let good = lock(&["jq", "qj"]).to_text();
        let error = LockFile::parse(&good.replace("qj", "jq")).unwrap_err();
        assert!(error.contains("the name \"jq\" stands twice"), "{error}");
    }

    #[test]
    fn names_in_the_spelling_of_nix_env_are_found() {
        let lock = lock(&["nixpkgs#jq", "set.x"]);
        let find = |text: &str| lock.find(&NameSpec::parse(text).unwrap()).is_some();
        assert!(find("nixpkgs.jq") && find("nixpkgs#jq") && find("set.x"));
        assert!(!find("jq") && !find("set#x") && !find("other.jq"));
    }

    proptest! {
        #[test]
        fn printed_files_are_parsed_again(
            names in proptest::collection::vec("[a-z][a-z0-9]{0,5}", 0..5),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let lock = lock(&names);
            prop_assert_eq!(LockFile::parse(&lock.to_text()).unwrap(), lock);
        }
    }
}
