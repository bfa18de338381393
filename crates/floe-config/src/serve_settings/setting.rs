//! A setting of `floe serve`: its value and the origins of the value.

use std::mem;

use toml::Value as Toml;
use toml::de::DeValue;

use super::toml_value::TomlValue;
use crate::origin::Origin;

/// The value of a setting, if it is set, with its origins. A list may have more than one.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSetting<T> {
    value: Option<T>,
    origins: Vec<Origin>,
}

impl<T> Default for ServeSetting<T> {
    fn default() -> ServeSetting<T> {
        ServeSetting {
            value: None,
            origins: Vec::new(),
        }
    }
}

impl<T> ServeSetting<T> {
    /// Returns the value.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the value, or a default if it is not set.
    pub fn value_or(&self, default: T) -> T
    where
        T: Clone,
    {
        self.value.clone().unwrap_or(default)
    }

    /// Returns the origins of the value.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Sets the value of a flag, if it is given.
    pub fn set_flag(&mut self, flag: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.replace(value, Origin::Flag(flag));
        }
    }

    /// Replaces the value by the nearest one that the system allows. The origin stays the same.
    pub fn limit(&mut self, value: T) {
        self.value = Some(value);
    }

    pub(super) fn replace(&mut self, value: T, origin: Origin) {
        self.value = Some(value);
        self.origins = vec![origin];
    }

    pub(super) fn set_default(&mut self, default: T) {
        if self.value.is_none() {
            self.replace(default, Origin::Default);
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    pub(super) fn is_by_flag(&self) -> bool {
        matches!(self.origins[..], [Origin::Flag(_)])
    }

    /// Unsets the value and returns it with its origins.
    pub(super) fn take(&mut self) -> (Option<T>, Vec<Origin>) {
        (self.value.take(), mem::take(&mut self.origins))
    }

    /// Moves the value of another setting, if it is set, into this one.
    pub(super) fn move_from<U>(
        &mut self,
        other: &mut ServeSetting<U>,
        convert: impl FnOnce(U) -> T,
    ) {
        if let (Some(value), origins) = other.take() {
            self.value = Some(convert(value));
            self.origins = origins;
        }
    }

    /// Unsets a value that no flag has set.
    pub(super) fn keep_flag_only(&mut self) {
        if !self.is_by_flag() {
            self.take();
        }
    }
}

impl<T: PartialEq> ServeSetting<Vec<T>> {
    /// Appends a value to the list, unless the list has it.
    pub(super) fn append(&mut self, value: T, origins: impl IntoIterator<Item = Origin>) {
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
pub(super) trait AnyServeSetting {
    /// Reads the value of a key in a file.
    ///
    /// Errors: the type or the range is wrong.
    fn read(&mut self, value: &DeValue<'_>, origin: Origin) -> Result<(), String>;
    /// Returns the value in TOML if it is set. The inner `None` stands for a path that is not
    /// UTF-8.
    fn to_toml(&self) -> Option<Option<Toml>>;
    fn origins(&self) -> &[Origin];
}

impl<T: TomlValue> AnyServeSetting for ServeSetting<T> {
    fn read(&mut self, value: &DeValue<'_>, origin: Origin) -> Result<(), String> {
        self.replace(T::from_toml(value)?, origin);
        Ok(())
    }

    fn to_toml(&self) -> Option<Option<Toml>> {
        self.value.as_ref().map(T::to_toml)
    }

    fn origins(&self) -> &[Origin] {
        &self.origins
    }
}
