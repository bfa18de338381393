//! A setting: its value, its default, and the origins of the value.
//!
//! The settings of nix.conf always have a value. Those of `floe serve` are a `Setting<Option<T>>`:
//! they have no value and no origin until a file, a flag or a default sets them.

use std::mem;

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::error::ConfigError;
use crate::origin::Origin;
use crate::value::{Form, Value};

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

/// The value of a setting, with its origins.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting<T> {
    value: T,
    default: T,
    /// The origin of the value, and those of what was appended to it.
    origins: Vec<Origin>,
    /// The number of words before each part that was appended.
    appended_at: Vec<usize>,
}

impl<T: Clone> Setting<T> {
    /// Makes a setting that has its default value.
    pub fn new(default: T) -> Setting<T> {
        Setting {
            value: default.clone(),
            default,
            origins: vec![Origin::Default],
            appended_at: Vec::new(),
        }
    }
}

impl<T> Setting<T> {
    /// Returns the value.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// Returns the origin of the value, without those of appended parts.
    pub fn source(&self) -> &Origin {
        self.origins.first().unwrap_or(&Origin::Default)
    }

    /// Returns the origin of the value and those of appended parts.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Whether nothing has set the value or appended to it.
    pub fn is_default(&self) -> bool {
        matches!(self.origins[..], [] | [Origin::Default])
    }

    /// Replaces the value and everything that was appended to it.
    pub fn replace(&mut self, value: T, origin: Origin) {
        self.value = value;
        self.origins = vec![origin];
        self.appended_at.clear();
    }

    /// Returns the origin of a word of a list.
    pub fn origin_of_word(&self, index: usize) -> &Origin {
        let later = self.appended_at.iter().filter(|start| **start <= index);
        self.origins.get(later.count()).unwrap_or(&Origin::Default)
    }
}

impl<T> Default for Setting<Option<T>> {
    fn default() -> Setting<Option<T>> {
        Setting {
            value: None,
            default: None,
            origins: Vec::new(),
            appended_at: Vec::new(),
        }
    }
}

/// A setting that may have no value.
impl<T> Setting<Option<T>> {
    /// Returns the value, if there is one.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the value, or a default if it is not set.
    pub fn value_or(&self, default: T) -> T
    where
        T: Clone,
    {
        self.value.clone().unwrap_or(default)
    }

    /// Sets the value of a flag, if it is given.
    pub fn set_flag(&mut self, flag: &'static str, value: Option<T>) {
        if value.is_some() {
            self.replace(value, Origin::Flag(flag));
        }
    }

    /// Replaces the value by the nearest one that the system allows. The origin stays the same.
    pub fn limit(&mut self, value: T) {
        self.value = Some(value);
    }

    /// Whether there is a value.
    pub fn is_set(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn set_default(&mut self, default: T) {
        if self.value.is_none() {
            self.replace(Some(default), Origin::Default);
        }
    }

    pub(crate) fn is_by_flag(&self) -> bool {
        matches!(self.origins[..], [Origin::Flag(_)])
    }

    /// Unsets the value and returns it with its origins.
    pub(crate) fn take(&mut self) -> (Option<T>, Vec<Origin>) {
        (self.value.take(), mem::take(&mut self.origins))
    }

    /// Moves the value of another setting, if it is set, into this one.
    pub(crate) fn move_from<U>(
        &mut self,
        other: &mut Setting<Option<U>>,
        convert: impl FnOnce(U) -> T,
    ) {
        if let (Some(value), origins) = other.take() {
            self.value = Some(convert(value));
            self.origins = origins;
        }
    }

    /// Unsets a value that no flag has set.
    pub(crate) fn keep_flag_only(&mut self) {
        if !self.is_by_flag() {
            self.take();
        }
    }
}

impl<T: PartialEq> Setting<Option<Vec<T>>> {
    /// Adds a value to the list, unless the list has it.
    pub(crate) fn push(&mut self, value: T, origins: impl IntoIterator<Item = Origin>) {
        let values = self.value.get_or_insert_default();
        if values.contains(&value) {
            return;
        }
        values.push(value);
        for origin in origins {
            if !self.origins.contains(&origin) {
                self.origins.push(origin);
            }
        }
    }
}

/// A setting of any type.
pub trait AnySetting {
    /// Parses a value of nix.conf, and replaces the present one.
    ///
    /// Errors: [`ConfigError::Value`].
    fn set(&mut self, assignment: &Assignment) -> Result<(), ConfigError>;
    /// Parses a list of nix.conf, and appends it to the present one.
    ///
    /// Errors: [`ConfigError::Value`].
    fn append(&mut self, assignment: &Assignment) -> Result<(), ConfigError>;
    /// Sets the value of a flag. Only a list may have several words.
    ///
    /// Errors: the text describes the right values.
    fn set_words(&mut self, words: &[&[u8]], flag: &'static str) -> Result<(), String>;
    /// Reads the value of a key in TOML, and replaces the present one.
    ///
    /// Errors: the type or the range is wrong. The text describes the right values.
    fn set_toml(&mut self, value: &DeValue<'_>, origin: Origin) -> Result<(), String>;
    /// Whether the setting is a list, which can be extended.
    fn is_list(&self) -> bool;
    /// Returns the form of the value on a command line.
    fn form(&self) -> Form;
    /// Returns the value as nix.conf would hold it.
    fn text(&self) -> String;
    /// Returns the value in TOML if it is set. The inner `None` stands for a path that is not
    /// UTF-8.
    fn to_toml(&self) -> Option<Option<Toml>>;
    /// Returns the value, the default and the origins as a JSON object.
    fn to_json(&self) -> Json;
    /// Returns the origins of the value and of what was appended to it.
    fn all_origins(&self) -> &[Origin];
    /// Returns these origins as one text.
    fn origin(&self) -> String {
        let origins = self.all_origins().iter().map(Origin::to_string);
        origins.collect::<Vec<_>>().join(" and ")
    }
}

impl<T: Value> AnySetting for Setting<T> {
    fn set(&mut self, assignment: &Assignment) -> Result<(), ConfigError> {
        self.replace(parse(assignment)?, assignment.source.clone());
        Ok(())
    }

    fn append(&mut self, assignment: &Assignment) -> Result<(), ConfigError> {
        let more = parse(assignment)?;
        self.appended_at.push(self.value.word_count());
        self.value.append(more);
        self.origins.push(assignment.source.clone());
        Ok(())
    }

    fn set_words(&mut self, words: &[&[u8]], flag: &'static str) -> Result<(), String> {
        let parse =
            |word: &&[u8]| T::parse(word).ok_or_else(|| T::refusal(&String::from_utf8_lossy(word)));
        let mut values = words.iter().map(parse);
        let Some(mut value) = values.next().transpose()? else {
            return Ok(());
        };
        for further in values {
            value.append(further?);
        }
        self.replace(value, Origin::Flag(flag));
        Ok(())
    }

    fn set_toml(&mut self, value: &DeValue<'_>, origin: Origin) -> Result<(), String> {
        self.replace(T::from_toml(value)?, origin);
        Ok(())
    }

    fn is_list(&self) -> bool {
        T::IS_LIST
    }

    fn form(&self) -> Form {
        T::form()
    }

    fn text(&self) -> String {
        self.value.text()
    }

    fn to_toml(&self) -> Option<Option<Toml>> {
        let is_set = !self.value.json().is_null();
        is_set.then(|| self.value.to_toml())
    }

    fn to_json(&self) -> Json {
        let extra = self.origins.iter().skip(1);
        json!({
            "value": self.value.json(),
            "defaultValue": self.default.json(),
            "source": self.source().to_json(),
            "extra": extra.map(Origin::to_json).collect::<Vec<_>>(),
        })
    }

    fn all_origins(&self) -> &[Origin] {
        &self.origins
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
