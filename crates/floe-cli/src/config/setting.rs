//! A setting: its value, its default, and where the value comes from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::value::Value;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody has said anything.
    Default,
    /// A line of a file, counted from 1.
    File { path: Arc<Path>, line: usize },
    /// An environment variable, and for `NIX_CONFIG` the line in it.
    Variable {
        name: &'static str,
        line: Option<usize>,
    },
    /// A flag on the command line.
    Flag(&'static str),
}

impl Source {
    pub(crate) fn variable(name: &'static str) -> Source {
        Source::Variable { name, line: None }
    }

    fn to_json(&self) -> Json {
        match self {
            Source::Default => json!({ "kind": "default" }),
            Source::File { path, line } => {
                json!({ "kind": "file", "file": path.to_string_lossy(), "line": line })
            }
            Source::Variable { name, line: None } => {
                json!({ "kind": "environment", "variable": name })
            }
            Source::Variable {
                name,
                line: Some(line),
            } => json!({ "kind": "environment", "variable": name, "line": line }),
            Source::Flag(flag) => json!({ "kind": "flag", "flag": flag }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Variable { name, line: None } => f.write_str(name),
            Source::Variable {
                name,
                line: Some(line),
            } => write!(f, "{name}:{line}"),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value with its past.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    value: T,
    default: T,
    source: Source,
    /// Who has added to the value since it was set.
    extra: Vec<Source>,
}

impl<T: Value> Setting<T> {
    pub(crate) fn new(default: T) -> Setting<T> {
        Setting {
            value: default.clone(),
            default,
            source: Source::Default,
            extra: Vec::new(),
        }
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    /// Who has set it.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Whether nobody has said anything.
    pub(crate) fn is_default(&self) -> bool {
        self.source == Source::Default && self.extra.is_empty()
    }

    /// Takes a value, whatever was said before.
    pub(crate) fn replace(&mut self, value: T, source: Source) {
        self.value = value;
        self.source = source;
        self.extra.clear();
    }
}

/// Why a text is no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// As much of the text as may be shown.
    pub(crate) shown: String,
    /// What would be a value.
    pub(crate) allowed: String,
}

/// A setting of any type.
pub(crate) trait Slot {
    /// Takes a value, whatever was said before.
    fn set(&mut self, text: &[u8], source: &Source) -> Result<(), Rejected>;
    /// Adds to what was said before; for lists.
    fn append(&mut self, text: &[u8], source: &Source) -> Result<(), Rejected>;
    /// Whether something can be added.
    fn is_list(&self) -> bool;
    /// The value, as it would stand in nix.conf.
    fn text(&self) -> String;
    /// Where the value comes from: one place, and those that added to it.
    fn origin(&self) -> String;
    /// All of it, for scripts.
    fn to_json(&self) -> Json;
}

impl<T: Value> Slot for Setting<T> {
    fn set(&mut self, text: &[u8], source: &Source) -> Result<(), Rejected> {
        let value = parse(text)?;
        self.replace(value, source.clone());
        Ok(())
    }

    fn append(&mut self, text: &[u8], source: &Source) -> Result<(), Rejected> {
        self.value.append(parse(text)?);
        self.extra.push(source.clone());
        Ok(())
    }

    fn is_list(&self) -> bool {
        T::IS_LIST
    }

    fn text(&self) -> String {
        self.value.text()
    }

    fn origin(&self) -> String {
        let places = [&self.source].into_iter().chain(&self.extra);
        places
            .map(Source::to_string)
            .collect::<Vec<_>>()
            .join(" and ")
    }

    fn to_json(&self) -> Json {
        json!({
            "value": self.value.json(),
            "defaultValue": self.default.json(),
            "source": self.source.to_json(),
            "extra": self.extra.iter().map(Source::to_json).collect::<Vec<_>>(),
        })
    }
}

fn parse<T: Value>(text: &[u8]) -> Result<T, Rejected> {
    T::parse(text).ok_or_else(|| Rejected {
        shown: T::shown(text),
        allowed: T::allowed(),
    })
}
