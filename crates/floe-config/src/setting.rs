//! A setting: its value, its default, and the origin of the value.

use serde_json::{Value as Json, json};

use crate::error::ConfigError;
use crate::origin::Origin;
use crate::value::Value;

/// A name, its value, and where both stand.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The name of a setting, perhaps with `extra-` before it.
    pub name: String,
    /// The value as written.
    pub value: Vec<u8>,
    /// Where the assignment stands.
    pub source: Origin,
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

/// A setting of any type.
pub trait AnySetting {
    /// Parses a value, and replaces the present one.
    ///
    /// Errors: [`ConfigError::Value`].
    fn set(&mut self, assignment: &Assignment) -> Result<(), ConfigError>;
    /// Parses a list, and appends it to the present one.
    ///
    /// Errors: [`ConfigError::Value`].
    fn append(&mut self, assignment: &Assignment) -> Result<(), ConfigError>;
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
    fn set(&mut self, assignment: &Assignment) -> Result<(), ConfigError> {
        self.replace(parse(assignment)?, assignment.source.clone());
        Ok(())
    }

    fn append(&mut self, assignment: &Assignment) -> Result<(), ConfigError> {
        self.value.append(parse(assignment)?);
        self.extra.push(assignment.source.clone());
        Ok(())
    }

    fn is_list(&self) -> bool {
        T::IS_LIST
    }

    fn text(&self) -> String {
        self.value.text()
    }

    fn origin(&self) -> String {
        let mut places = self.source.to_string();
        for extra in &self.extra {
            places += &format!(" and {extra}");
        }
        places
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

fn parse<T: Value>(assignment: &Assignment) -> Result<T, ConfigError> {
    T::parse(&assignment.value).ok_or_else(|| ConfigError::Value {
        at: assignment.source.clone(),
        name: assignment.name.clone(),
        value: T::shown(&assignment.value),
        allowed: T::ALLOWED,
    })
}
