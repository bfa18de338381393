//! Files of names, in TOML or JSON.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use floe_store::open_regular_file;
use serde_json::{Map, Value};

use crate::hydra::machine_system;
use crate::name_spec::OUTPUTS;
use crate::package::Candidate;

/// The names of a file: `NAME = "PATH"`, or `NAME = { OUTPUT = "PATH" }`. A table with the name of
/// a system has names for this system alone.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSource {
    names: Map<String, Value>,
}

impl FileSource {
    /// Reads a file.
    ///
    /// Errors: the text says why the file cannot be read, or where its format is wrong.
    pub(crate) fn read(path: &Path) -> Result<FileSource, String> {
        let file = open_regular_file(path).map_err(|error| error.to_string())?;
        let mut text = String::new();
        file.take(FILE_LEN_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        if text.len() as u64 > FILE_LEN_MAX {
            return Err(format!("it has more than {FILE_LEN_MAX} bytes"));
        }
        FileSource::parse(&text)
    }

    /// Parses the text of a file. A text that begins with `{` is JSON, another one is TOML.
    ///
    /// Errors: the text says where the format is wrong.
    pub fn parse(text: &str) -> Result<FileSource, String> {
        let names = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        } else {
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?
        };
        Ok(FileSource { names })
    }

    /// Returns the paths of a name: for this machine, else for all.
    ///
    /// Errors: the text says which value is wrong.
    pub fn find(&self, name: &str) -> Result<Option<Candidate>, String> {
        let system = machine_system();
        let of_system = self.names.get(&system).and_then(Value::as_object);
        let found = of_system.and_then(|names| find(names, name));
        let found = found.or_else(|| find(&self.names, name).filter(|_| name != system));
        let Some(value) = found else { return Ok(None) };
        let paths = match value {
            // A set of packages has no path of its own.
            Value::Object(table) if !has_outputs(table) => return Ok(None),
            value => outputs(value),
        };
        match paths {
            Some(outputs) => Ok(Some(Candidate {
                outputs,
                ..Candidate::default()
            })),
            None => Err(format!(
                "the value of {name} is neither a path nor a table of outputs and paths"
            )),
        }
    }
}

impl FileSource {
    /// Returns the names for this machine with the paths of their outputs. Leaves out values of
    /// another form.
    pub(crate) fn packages(&self) -> Vec<(String, BTreeMap<String, String>)> {
        let system = machine_system();
        let mut found = Vec::new();
        collect(&self.names, "", &mut found);
        let own = found.iter().filter_map(|(name, outputs)| {
            let name = name.strip_prefix(&system)?.strip_prefix('.')?;
            Some((name.to_owned(), outputs.clone()))
        });
        let mut packages: BTreeMap<String, BTreeMap<String, String>> =
            found.iter().cloned().collect();
        packages.extend(own);
        packages.retain(|name, _| !is_for_system(name));
        packages.into_iter().collect()
    }
}

/// Whether a name is in a table with the name of a system.
fn is_for_system(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(first, _)| first.ends_with("-linux") || first.ends_with("-darwin"))
}

/// Adds the packages of a table and of the tables in it.
fn collect(
    table: &Map<String, Value>,
    prefix: &str,
    found: &mut Vec<(String, BTreeMap<String, String>)>,
) {
    for (name, value) in table {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(table) if !has_outputs(table) => {
                collect(table, &format!("{name}."), found)
            }
            value => found.extend(outputs(value).map(|outputs| (name, outputs))),
        }
    }
}

/// Returns the paths of the outputs of a package.
fn outputs(value: &Value) -> Option<BTreeMap<String, String>> {
    match value {
        Value::String(path) => Some(BTreeMap::from([("out".into(), path.clone())])),
        Value::Object(outputs) => {
            let outputs = outputs.iter();
            outputs
                .map(|(output, path)| Some((output.clone(), path.as_str()?.to_owned())))
                .collect()
        }
        _ => None,
    }
}

/// Whether a table has the outputs of a package, and not further packages.
fn has_outputs(table: &Map<String, Value>) -> bool {
    let mut names = table.keys().map(String::as_str);
    let is_installed = ["out", "bin"].iter().any(|name| table.contains_key(*name));
    is_installed || !table.is_empty() && names.all(|name| OUTPUTS.contains(&name))
}

/// Returns the value of an attribute path. TOML reads a key with dots as a table.
fn find<'a>(names: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = names.get(name) {
        return Some(value);
    }
    let mut splits = name.match_indices('.');
    splits.find_map(|(at, _)| {
        let table = names.get(&name[..at])?.as_object()?;
        find(table, &name[at + 1..])
    })
}

/// The largest file in bytes: a million names.
const FILE_LEN_MAX: u64 = 128 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(text: &str, name: &str) -> Option<Vec<(String, String)>> {
        let found = FileSource::parse(text).unwrap().find(name).unwrap();
        found.map(|it| it.outputs.into_iter().collect())
    }

    #[test]
    fn names_are_found_in_toml_and_json() {
        let system = machine_system();
        let toml = format!(
            "jq = '/nix/store/a'\npython3Packages.requests = '/nix/store/b'\n\
             'x.y' = '/nix/store/c'\n\
             curl = {{ bin = '/nix/store/d', dev = '/nix/store/e' }}\n\
             [{system}]\njq = '/nix/store/own'\n[other-linux]\nonly = '/nix/store/f'\n"
        );
        let json = serde_json::to_string(&FileSource::parse(&toml).unwrap().names).unwrap();
        for text in [&toml, &json] {
            let only = |path: &str| Some(vec![("out".to_owned(), path.to_owned())]);
            assert_eq!(outputs(text, "jq"), only("/nix/store/own"));
            assert_eq!(
                outputs(text, "python3Packages.requests"),
                only("/nix/store/b")
            );
            assert_eq!(outputs(text, "x.y"), only("/nix/store/c"));
            assert_eq!(outputs(text, "curl").unwrap().len(), 2);
            assert_eq!(outputs(text, "only"), None);
            for other in ["absent", "python3Packages", &system, "other-linux", "x"] {
                assert_eq!(outputs(text, other), None, "{other}");
            }
        }
    }

    #[test]
    fn other_files_and_values_are_refused() {
        for text in ["{", "[]]", "jq = ", "{\"a\":1} x"] {
            assert!(FileSource::parse(text).is_err(), "{text}");
        }
        for text in ["jq = 1", "jq = []", "jq = { out = 1 }"] {
            assert!(
                FileSource::parse(text).unwrap().find("jq").is_err(),
                "{text}"
            );
        }
    }
}
