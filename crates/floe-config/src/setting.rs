//! A setting: its value, its default, and the origin of the value.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::value::Value;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No file, variable or flag sets the value.
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable {
        /// The name of the variable.
        name: &'static str,
        /// The line in `NIX_CONFIG`, counted from 1.
        line: Option<usize>,
    },
    /// A flag on the command line.
    Flag(&'static str),
}

impl Origin {
    /// An environment variable that holds one value.
    pub fn variable(name: &'static str) -> Origin {
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

/// The value of a setting, with its origin.
#[derive(Clone, Debug)]
pub struct Setting<T> {
    value: T,
    default: T,
    source: Origin,
    /// The origins of what was appended to the value.
    extra: Vec<Origin>,
}

impl<T: Value> Setting<T> {
    /// Makes a setting that has its default value.
    pub fn new(default: T) -> Setting<T> {
        Setting {
            value: default.clone(),
            default,
            source: Origin::Default,
            extra: Vec::new(),
        }
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// Returns the origin of the value, without those of appended parts.
    pub fn source(&self) -> &Origin {
        &self.source
    }

    /// Whether nothing has set the value or appended to it.
    pub fn is_default(&self) -> bool {
        self.source == Origin::Default && self.extra.is_empty()
    }

    /// Replaces the value and everything that was appended to it.
    pub fn replace(&mut self, value: T, source: Origin) {
        self.value = value;
        self.source = source;
        self.extra.clear();
    }
}

/// A text that is not a value of the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// The text, without secrets.
    pub shown: String,
    /// The values that the setting takes, in words.
    pub allowed: String,
}

/// A setting of any type.
pub trait AnySetting {
    /// Parses a value, and replaces the present one.
    ///
    /// Errors: the text is not a value of the setting.
    fn set(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue>;
    /// Parses a list, and appends it to the present one.
    ///
    /// Errors: the text is not a value of the setting.
    fn append(&mut self, text: &[u8], source: &Origin) -> Result<(), InvalidValue>;
    /// Whether the setting is a list, which can be extended.
    fn is_list(&self) -> bool;
    /// Returns the value as nix.conf would hold it.
    fn text(&self) -> String;
    /// Returns the origins of the value and of what was appended to it.
    fn origin(&self) -> String;
    /// Returns the value, the default and the origins as a JSON object.
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
