//! The environment of the services that hold caches, such as object stores: where they find
//! credentials and settings. This crate reads no environment, so the caller passes it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variables of services, and the home directory, as plain values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServiceEnvironment {
    /// The variables whose names begin with the prefix of a known service. Empty ones are left
    /// out.
    pub variables: BTreeMap<String, String>,
    /// The home directory, which may have files with credentials.
    pub home: Option<PathBuf>,
}

impl ServiceEnvironment {
    /// Chooses the variables of services among all.
    pub fn new<'a>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        home: Option<&Path>,
    ) -> ServiceEnvironment {
        let is_used = |(name, value): &(&str, &str)| {
            !value.is_empty() && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        let variables = variables.into_iter().filter(is_used);
        ServiceEnvironment {
            variables: variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            home: home.map(Path::to_owned),
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

impl fmt::Debug for ServiceEnvironment {
    /// Prints names only: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// The beginnings of the names of variables, for each kind of service.
const PREFIXES: [&str; 1] = ["AWS_"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_has_no_secret() {
        let variables = [("AWS_SECRET_ACCESS_KEY", "hidden"), ("AWS_PROFILE", "")];
        let environment = ServiceEnvironment::new(variables.into_iter().chain([("X", "y")]), None);
        assert_eq!(format!("{environment:?}"), "{\"AWS_SECRET_ACCESS_KEY\"}");
    }
}
