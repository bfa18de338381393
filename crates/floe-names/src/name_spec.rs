//! The grammar of names.

use std::fmt;

use crate::error::NameError;

/// A name as the user writes it: `[SOURCE#]NAME[.OUTPUT][^OUTPUT][@VERSION]`.
///
/// `NAME` is the attribute path of a package, such as `jq` or `python3Packages.requests`. A last
/// part that is a usual name of an output, as in `jq.dev`, selects this output. `^` selects any
/// output, as in Nix's installables.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameSpec {
    /// The alias of the only source that is asked.
    pub source: Option<String>,
    /// The attribute path.
    pub name: String,
    /// The output that the user wants.
    pub output: Option<String>,
    /// The version that the package must have.
    pub version: Option<String>,
}

impl NameSpec {
    /// Parses a name.
    ///
    /// Errors: [`NameError::Grammar`], which says which part is wrong.
    pub fn parse(text: &str) -> Result<NameSpec, NameError> {
        let refused = |reason: &str| NameError::Grammar {
            text: shortened(text),
            reason: reason.to_owned(),
        };
        if text.len() > NAME_LEN_MAX {
            return Err(refused("a name has at most 256 characters"));
        }
        let (source, rest) = match text.split_once('#') {
            Some((source, _)) if !is_alias(source) => {
                return Err(refused(
                    "the text before # is not the name of a source, which has letters, digits, - \
                     and _",
                ));
            }
            Some((source, rest)) => (Some(source), rest),
            None => (None, text),
        };
        let (rest, version) = match rest.split_once('@') {
            Some((rest, version)) => (rest, Some(version)),
            None => (rest, None),
        };
        let (name, output) = match rest.split_once('^') {
            Some((name, output)) => (name, Some(output)),
            None => split_output(rest),
        };
        if !is_attribute_path(name) {
            return Err(refused(
                "a name has parts of letters, digits, -, _, + and ', with dots between them",
            ));
        }
        if output.is_some_and(|output| !is_part(output)) {
            return Err(refused("the text after ^ is not the name of an output"));
        }
        if version.is_some_and(|version| !is_version(version)) {
            return Err(refused(
                "a version has letters, digits, -, _, +, ?, = and dots",
            ));
        }
        Ok(NameSpec {
            source: source.map(str::to_owned),
            name: name.to_owned(),
            output: output.map(str::to_owned),
            version: version.map(str::to_owned),
        })
    }
}

impl fmt::Display for NameSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}#")?;
        }
        f.write_str(&self.name)?;
        if let Some(output) = &self.output {
            write!(f, "^{output}")?;
        }
        match &self.version {
            Some(version) => write!(f, "@{version}"),
            None => Ok(()),
        }
    }
}

/// Whether a text can be the alias of a source.
pub(crate) fn is_alias(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Splits off a last part that is a usual name of an output.
fn split_output(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('.') {
        Some((name, output)) if OUTPUTS.contains(&output) => (name, Some(output)),
        _ => (text, None),
    }
}

fn is_attribute_path(text: &str) -> bool {
    text.split('.').all(is_part) && !text.starts_with(['-', '+', '\''])
}

fn is_part(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+'".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

fn is_version(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.?=~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Returns the beginning of a long text, for messages.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LEN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The outputs that packages of nixpkgs usually have (`multiple-outputs.sh`).
pub(crate) const OUTPUTS: [&str; 10] = [
    "out", "bin", "dev", "lib", "man", "doc", "info", "devdoc", "devman", "debug",
];

/// The longest name in bytes. Those of nixpkgs have at most about 100.
const NAME_LEN_MAX: usize = 256;

/// How much of a refused name a message shows.
const SHOWN_LEN: usize = 60;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(parts: [Option<&str>; 4]) -> NameSpec {
        let [source, name, output, version] = parts.map(|part| part.map(str::to_owned));
        NameSpec {
            source,
            name: name.unwrap(),
            output,
            version,
        }
    }

    #[test]
    fn names_have_sources_outputs_and_versions() {
        for (text, expected) in [
            ("jq", [None, Some("jq"), None, None]),
            ("jq.dev", [None, Some("jq"), Some("dev"), None]),
            ("jq^lib32", [None, Some("jq"), Some("lib32"), None]),
            ("jq@1.7.1", [None, Some("jq"), None, Some("1.7.1")]),
            (
                "team#jq.man@1",
                [Some("team"), Some("jq"), Some("man"), Some("1")],
            ),
            (
                "python3Packages.requests",
                [None, Some("python3Packages.requests"), None, None],
            ),
            ("gtk+3", [None, Some("gtk+3"), None, None]),
            ("out", [None, Some("out"), None, None]),
        ] {
            assert_eq!(NameSpec::parse(text).unwrap(), spec(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = "x".repeat(4096);
        for text in [
            "",
            "#jq",
            "a b",
            "jq#",
            "a/b",
            "..",
            "jq.",
            ".jq",
            "jq..dev",
            "jq^",
            "jq@",
            "gruß",
            "./x",
            "-jq",
            "github:a/b#c",
            "a#b#c",
            "jq@1@2",
            "jq^a^b",
            "%2e",
            "jq\n",
            &long,
        ] {
            let error = NameSpec::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot use "), "{error}");
            assert!(error.len() < 300, "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_names_are_parsed_again(
            source in proptest::option::of("[a-z][a-z0-9_-]{0,8}"),
            name in "[a-zA-Z_][a-zA-Z0-9_'-]{0,8}(\\.[a-z]{1,4}[0-9]){0,2}",
            output in proptest::option::of("[a-z][a-z0-9-]{0,6}"),
            version in proptest::option::of("[0-9][0-9a-z.+-]{0,8}"),
        ) {
            let spec = NameSpec { source, name, output, version };
            prop_assert_eq!(NameSpec::parse(&spec.to_string()).unwrap(), spec);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,300}") {
            if let Ok(spec) = NameSpec::parse(&text) {
                prop_assert_eq!(NameSpec::parse(&spec.to_string()).unwrap(), spec);
            }
        }
    }
}
