//! A setting: its value, its default, and where the value comes from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::value::Value;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
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

impl Origin {
    pub(crate) fn variable(name: &'static str) -> Origin {
        Origin::Variable { name, line: None }
    }

    fn to_json(&self) -> Json {
        match self {
            Origin::Default => json!({ "kind": "default" }),
            Origin::File { path, line } => {
                json!({ "kind": "file", "file": path.to_string_lossy(), "line": line })
            }
            Origin::Variable { name, line: None } => {
                json!({ "kind": "environment", "variable": name })
            }
            Origin::Variable {
                name,
                line: Some(line),
            } => json!({ "kind": "environment", "variable": name, "line": line }),
            Origin::Flag(flag) => json!({ "kind": "flag", "flag": flag }),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Variable { name, line: None } => f.write_str(name),
            Origin::Variable {
                name,
                line: Some(line),
            } => write!(f, "{name}:{line}"),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value with its past.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    value: T,
    default: T,
    source: Origin,
    /// Who has added to the value since it was set.
    extra: Vec<Origin>,
}

impl<T: Value> Setting<T> {
    pub(crate) fn new(default: T) -> Setting<T> {
        Setting {
            value: default.clone(),
            default,
            source: Origin::Default,
            extra: Vec::new(),
        }
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    /// Who has set it.
    pub(crate) fn source(&self) -> &Origin {
        &self.source
    }

    /// Whether nobody has said anything.
    pub(crate) fn is_default(&self) -> bool {
        self.source == Origin::Default && self.extra.is_empty()
    }

    /// Takes a value, whatever was said before.
    pub(crate) fn replace(&mut self, value: T, source: Origin) {
        self.value = value;
        self.source = source;
        self.extra.clear();
    }
}

/// Why a text is no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidValue {
    /// As much of the text as may be shown.
    pub(crate) shown: String,
    /// What would be a value.
    pub(crate) allowed: String,
}

/// A setting of any type.
pub(crate) trait AnySetting {
    /// Takes a value, whatever was said before.
    fn set(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue>;
    /// Adds to what was said before; for lists.
    fn append(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue>;
    /// Whether something can be added.
    fn is_list(&self) -> bool;
    /// The value, as it would stand in nix.conf.
    fn text(&self) -> String;
    /// Where the value comes from: one place, and those that added to it.
    fn origin(&self) -> String;
    /// All of it, for scripts.
    fn to_json(&self) -> Json;
}

impl<T: Value> AnySetting for Setting<T> {
    fn set(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue> {
        let value = parse(text)?;
        self.replace(value, source.clone());
        Ok(())
    }

    fn append(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue> {
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
            .map(Origin::to_string)
            .collect::<Vec<_>>()
            .join(" and ")
    }

    fn to_json(&self) -> Json {
        json!({
            "value": self.value.json(),
            "defaultValue": self.default.json(),
            "source": self.source.to_json(),
            "extra": self.extra.iter().map(Origin::to_json).collect::<Vec<_>>(),
        })
    }
}

fn parse<T: Value>(text: &[u8]) -> Result<T, InvalidValue> {
    T::parse(text).ok_or_else(|| InvalidValue {
        shown: T::shown(text),
        allowed: T::allowed(),
    })
}
