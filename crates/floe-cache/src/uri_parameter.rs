//! The parameters of the URI of a binary cache. Each group of options visits a parameter and names
//! those that it knows, so that each name stands at one place.

use floe_transfer::store_uri::{parse_bool, parse_number};
use floe_transfer::{IgnoredParameter, StoreUri, UriParameters};

/// A parameter that visits the groups of options.
#[derive(Debug)]
pub(crate) struct UriParameter<'a> {
    name: &'a str,
    value: &'a str,
    /// Whether a group knows the name.
    is_known: bool,
    /// The names that the groups know.
    known: Vec<&'static str>,
}

/// Passes each parameter of a URI to the options that may know it. Returns the parameters without
/// effect, for a warning.
///
/// Errors: the text says what is wrong with a value.
pub(crate) fn visit_parameters(
    uri: &StoreUri,
    mut visit: impl FnMut(&mut UriParameter<'_>) -> Result<(), String>,
) -> Result<Vec<IgnoredParameter>, String> {
    let mut ignored = Vec::new();
    for (name, value) in &uri.parameters {
        let mut parameter = UriParameter::new(name, value);
        visit(&mut parameter)?;
        if !parameter.is_known {
            ignored.extend(PARAMETERS.ignored_beside(uri, name, &parameter.known));
        }
    }
    Ok(ignored)
}

impl<'a> UriParameter<'a> {
    fn new(name: &'a str, value: &'a str) -> UriParameter<'a> {
        UriParameter {
            name,
            value,
            is_known: false,
            known: Vec::new(),
        }
    }

    /// Uses the value if the parameter has a name.
    pub(crate) fn on(
        &mut self,
        name: &'static str,
        set: impl FnOnce(&'a str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.known.push(name);
        if self.name == name {
            self.is_known = true;
            set(self.value)
        } else {
            Ok(())
        }
    }

    /// Sets a boolean if the parameter has its name.
    pub(crate) fn bool(&mut self, name: &'static str, option: &mut bool) -> Result<(), String> {
        self.parsed(name, option, parse_bool)
    }

    /// Sets a number if the parameter has its name.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        option: &mut Option<i32>,
    ) -> Result<(), String> {
        self.parsed(name, option, |name, value| {
            parse_number(name, value).map(Some)
        })
    }

    /// Sets a text, which is not empty, if the parameter has its name.
    pub(crate) fn text(
        &mut self,
        name: &'static str,
        option: &mut Option<String>,
    ) -> Result<(), String> {
        self.parsed(name, option, |_, value| {
            Ok((!value.is_empty()).then(|| value.to_owned()))
        })
    }

    /// Sets an option if the parameter has its name.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &'static str,
        option: &mut T,
        parse: impl FnOnce(&str, &str) -> Result<T, String>,
    ) -> Result<(), String> {
        self.on(name, |value| {
            *option = parse(name, value)?;
            Ok(())
        })
    }
}

/// The parameters of all binary caches that floe does not obey.
const PARAMETERS: UriParameters = UriParameters {
    used: &[],
    irrelevant: &["path-info-cache-size", "system-features"],
    unsupported: &["local-nar-cache", "store"],
};

/// Sets an option of a group. Returns `false` if the group does not know the name.
#[cfg(test)]
pub(crate) fn set(
    name: &str,
    value: &str,
    visit: impl FnOnce(&mut UriParameter<'_>) -> Result<(), String>,
) -> Result<bool, String> {
    let mut parameter = UriParameter::new(name, value);
    visit(&mut parameter)?;
    Ok(parameter.is_known)
}
