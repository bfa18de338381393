//! The names of parameters of store URIs, and what to tell the user about those without effect.

use std::fmt;

use crate::store_uri::StoreUri;
use crate::url::redact_credentials;

/// The parameters of one kind of store, by their names.
#[derive(Clone, Copy, Debug)]
pub struct UriParameters {
    /// The parameters that floe obeys.
    pub used: &'static [&'static str],
    /// Parameters of Nix that change nothing that floe does.
    pub irrelevant: &'static [&'static str],
    /// Parameters of Nix that floe does not support.
    pub unsupported: &'static [&'static str],
}

/// A parameter of a store URI that has no effect. Nix also ignores parameters that it does not
/// know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredParameter {
    /// The store URI without parameters and credentials.
    pub uri: String,
    /// The name of the parameter.
    pub name: String,
    /// The reason, and perhaps a fix.
    pub reason: String,
}

impl UriParameters {
    /// Returns what to tell the user about a parameter that floe does not obey; `None` if it is
    /// irrelevant.
    pub fn ignored(&self, uri: &StoreUri, name: &str) -> Option<IgnoredParameter> {
        self.ignored_beside(uri, name, &[])
    }

    /// Does the same as [`UriParameters::ignored`], with further parameters that floe obeys.
    pub fn ignored_beside(
        &self,
        uri: &StoreUri,
        name: &str,
        used: &[&'static str],
    ) -> Option<IgnoredParameter> {
        if self.irrelevant.contains(&name) {
            return None;
        }
        let reason = if self.unsupported.contains(&name) {
            "floe does not support it".to_owned()
        } else {
            match nearest_name(name, used.iter().copied().chain(self.known())) {
                Some(nearest) => format!("unknown parameter; use {nearest}"),
                None => "unknown parameter".to_owned(),
            }
        };
        Some(IgnoredParameter {
            uri: redact_credentials(&uri.to_string()),
            name: name.to_owned(),
            reason,
        })
    }

    fn known(&self) -> impl Iterator<Item = &'static str> {
        let lists = [self.used, self.irrelevant, self.unsupported];
        lists.into_iter().flatten().copied()
    }
}

/// Returns the known name that is most similar to a name, if any is similar enough to be meant.
pub fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |it: &str| strsim::normalized_damerau_levenshtein(it, name);
    let rated = known.into_iter().map(|it| (similarity(it), it));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|best| best.0 >= SIMILARITY_MIN).map(|it| it.1)
}

impl IgnoredParameter {
    /// Whether the user probably meant a key, without which a target signs nothing.
    pub fn names_a_key(&self) -> bool {
        let letters = self.name.chars().filter(char::is_ascii_alphabetic);
        let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
        letters.contains("key") && !letters.contains("ssh")
    }
}

impl fmt::Display for IgnoredParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IgnoredParameter { uri, name, reason } = self;
        write!(f, "ignoring the parameter {name} of {uri}: {reason}")
    }
}

/// The least similarity of a name to the name that is meant: one wrong letter in a name of three,
/// or two in a name of six.
const SIMILARITY_MIN: f64 = 0.65;

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: UriParameters = UriParameters {
        used: &["root", "compression", "compression-level"],
        irrelevant: &["log"],
        unsupported: &["local-nar-cache"],
    };

    #[test]
    fn ignored_parameter_names_similar_known_one() {
        let uri = StoreUri::parse("https://user:secret@c/x?rot=/y").unwrap();
        let warning = |name: &str| PARAMETERS.ignored(&uri, name).map(|it| it.to_string());
        for (name, reason) in [
            ("rot", "unknown parameter; use root"),
            ("compresion", "unknown parameter; use compression"),
            (
                "compressionlevel",
                "unknown parameter; use compression-level",
            ),
            ("colour", "unknown parameter"),
            ("", "unknown parameter"),
            ("local-nar-cache", "floe does not support it"),
        ] {
            let warning = warning(name).unwrap();
            let start = format!("ignoring the parameter {name} of https://");
            assert!(warning.starts_with(&start), "{warning}");
            assert!(warning.ends_with(&format!("c/x: {reason}")), "{warning}");
            assert!(!warning.contains("secret"), "{warning}");
        }
        assert_eq!(warning("log"), None);
    }
}
