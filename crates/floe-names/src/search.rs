//! Searches sources that can list their packages.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use floe_format::drv_name::compare_versions;
use floe_format::pin::Pin;

use crate::access::Access;
use crate::error::NameError;
use crate::file_source::FileSource;
use crate::list::{load, parse_list};
use crate::memory::NameMemory;
use crate::package::{Origin, SourceError};
use crate::pins::PinsUri;
use crate::resolver::unreadable;
use crate::source_uri::{NameSource, NameSourceUri};

/// A package that a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPackage {
    /// The name by which `floe install` finds the package.
    pub name: String,
    /// The version. It is empty if the path has none.
    pub version: String,
    /// The paths of each output. A list has those of all systems.
    pub outputs: BTreeMap<String, Vec<String>>,
    /// The source without credentials.
    pub source: String,
    /// The alias of the source.
    pub alias: Option<String>,
}

/// The packages of a search, and what the user should know of the sources.
#[derive(Clone, Debug, Default)]
pub struct FoundPackages {
    /// The packages: those whose name begins with the first word come first.
    pub packages: Vec<FoundPackage>,
    /// The sources that were searched.
    pub searched: Vec<String>,
    /// The sources that do not reply now, with the time of their reply, in seconds since 1970, and
    /// the cause.
    pub offline: Vec<(String, u64, String)>,
}

/// Searches all sources that can list their packages for names with all words, in any case. Lists
/// are fetched again after `ttl`.
///
/// Errors: [`NameError::Reply`] and [`NameError::SourceAway`] of the first source that fails.
pub fn search(
    sources: &[NameSource],
    words: &[String],
    (memory, ttl): (&NameMemory, Duration),
    access: &dyn Access,
) -> Result<FoundPackages, NameError> {
    let words: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let mut found = FoundPackages::default();
    for source in sources {
        let packages = match &source.uri {
            NameSourceUri::Hydra(_) | NameSourceUri::Lock(_) => continue,
            NameSourceUri::Pins(uri) => search_pins(source, uri, &words, access),
            NameSourceUri::File(path) => search_file(source, path, &words),
            NameSourceUri::List(uri) => {
                let list = load(uri, (memory.directory(), ttl), access);
                list.map(|list| {
                    if let Origin::Offline(why) = list.origin {
                        let source = source.uri.to_string();
                        found.offline.push((source, list.fetched_at, why));
                    }
                    search_list(source, &list.text, &words)
                })
            }
        };
        let packages = packages.map_err(|error| unreadable(source, error))?;
        found.packages.extend(packages);
        found.searched.push(source.uri.to_string());
    }
    let first = words.first().map_or("", String::as_str);
    let rank = |package: &FoundPackage| {
        let name = package.name.to_ascii_lowercase();
        Reverse((name == first, name.starts_with(first)))
    };
    found.packages.sort_by(|a, b| {
        let by_name = (rank(a), &a.name).cmp(&(rank(b), &b.name));
        by_name.then_with(|| compare_versions(&b.version, &a.version))
    });
    Ok(found)
}

fn search_list(source: &NameSource, text: &str, words: &[String]) -> Vec<FoundPackage> {
    let mut packages: BTreeMap<(&str, &str), BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let found = parse_list(text).filter(|entry| has_all(entry.package, words));
    for entry in found.filter(|entry| entry.store_path().is_some()) {
        let outputs = packages.entry((entry.package, entry.version)).or_default();
        let paths = outputs.entry(entry.output.to_owned()).or_default();
        paths.push(entry.path.to_owned());
    }
    let packages = packages.into_iter();
    let packages = packages.map(|((name, version), outputs)| FoundPackage {
        name: name.to_owned(),
        version: version.to_owned(),
        outputs,
        source: source.uri.to_string(),
        alias: source.alias.clone(),
    });
    packages.collect()
}

/// Returns the pins of a cache, which are not verified before their use.
fn search_pins(
    source: &NameSource,
    uri: &PinsUri,
    words: &[String],
    access: &dyn Access,
) -> Result<Vec<FoundPackage>, SourceError> {
    let names = access.pin_names(&uri.cache);
    let names = names.map_err(|error| SourceError::Fetch(error.into()))?;
    let names = names.unwrap_or_default();
    let found: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| has_all(name, words))
        .collect();
    let mut pins = Vec::new();
    // The texts of all pins could fill the memory.
    for names in found.chunks(PINS_AT_ONCE) {
        for (name, pin) in names.iter().zip(access.pins(&uri.cache, names)) {
            let pin = pin.map_err(|error| SourceError::Fetch(error.into()))?;
            let pin = pin.and_then(|text| Pin::parse(&text).ok());
            pins.extend(pin.map(|pin| (*name, pin)));
        }
    }
    let mut packages = Vec::new();
    for (name, pin) in pins {
        let path = pin.full_path();
        let version = parse_list(&path).next().map_or("", |entry| entry.version);
        packages.push(FoundPackage {
            name: name.to_owned(),
            version: version.to_owned(),
            outputs: BTreeMap::from([("out".into(), vec![path.clone()])]),
            source: source.uri.to_string(),
            alias: source.alias.clone(),
        });
    }
    Ok(packages)
}

/// How many pins are asked for at once.
const PINS_AT_ONCE: usize = 512;

fn search_file(
    source: &NameSource,
    path: &Path,
    words: &[String],
) -> Result<Vec<FoundPackage>, SourceError> {
    let file = FileSource::read(path).map_err(|reason| SourceError::Reply {
        place: path.display().to_string(),
        reason,
    })?;
    let mut packages = Vec::new();
    for (name, outputs) in file.packages() {
        let version = outputs.values().find_map(|path| parse_list(path).next());
        let version = version.map_or("", |entry| entry.version).to_owned();
        if has_all(&name, words) {
            packages.push(FoundPackage {
                name,
                version,
                outputs: outputs
                    .into_iter()
                    .map(|(output, path)| (output, vec![path]))
                    .collect(),
                source: source.uri.to_string(),
                alias: source.alias.clone(),
            });
        }
    }
    Ok(packages)
}

fn has_all(name: &str, words: &[String]) -> bool {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let name = name.to_ascii_lowercase();
        return words.iter().all(|word| name.contains(&**word));
    }
    words.iter().all(|word| name.contains(&**word))
}

#[cfg(test)]
mod tests {
    use floe_cache::{DocumentRequest, Fetched};

    use super::*;

    #[test]
    fn names_with_all_words_are_found_in_their_order() {
        let place = tempfile::tempdir().unwrap();
        let hash = "0".repeat(32);
        let paths = [
            "jq-1.9",
            "jq-1.10",
            "jq-1.10-man",
            "gojq-0.12",
            "jquery-3",
            "hello-2",
            "libJQ-1",
        ];
        let list: String = paths
            .iter()
            .map(|name| format!("/nix/store/{hash}-{name}\n"))
            .collect();
        std::fs::write(place.path().join("list"), list).unwrap();
        let names = format!("jq = '/nix/store/{hash}-jq-5'\n[set]\nother = '/nix/store/{hash}-x'");
        std::fs::write(place.path().join("names.toml"), names).unwrap();
        let sources = [
            "hydra+https://h.example/p/j".to_owned(),
            format!("channel=list:{}/list", place.path().display()),
            format!("team=file:{}/names.toml", place.path().display()),
        ];
        let sources = sources.map(|text| NameSource::parse(&text).unwrap());
        let fetch = |_: Vec<DocumentRequest>| -> Fetched { Ok(Vec::new()) };
        let search = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let memory = NameMemory::default();
            search(&sources, &words, (&memory, Duration::ZERO), &fetch).unwrap()
        };
        let found = search(&["jq"]);
        let names = found.packages.iter().map(|it| (&*it.name, &*it.version));
        let expected = [
            ("jq", "5"),
            ("jq", "1.10"),
            ("jq", "1.9"),
            ("jquery", "3"),
            ("gojq", "0.12"),
            ("libJQ", "1"),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let outputs: Vec<&str> = found.packages[1]
            .outputs
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(outputs, ["man", "out"]);
        assert_eq!(found.searched.len(), 2);
        let found = search(&["JQ", "go"]);
        assert_eq!(found.packages.len(), 1);
        assert_eq!(search(&["set.other"]).packages.len(), 1);
        assert!(search(&["absent"]).packages.is_empty());
    }
}
