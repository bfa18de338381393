//! Outputs of a derivation as the user names them: `DERIVATION^OUTPUTS`.

use std::collections::BTreeSet;
use std::fmt;

use floe_format::realisation::is_output_name;
use floe_format::{StoreDir, StorePath};

use crate::error::Error;
use crate::path_spec::invalid_path;

/// Outputs of a derivation: Nix's `DerivedPath::Built`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedPath {
    /// The derivation.
    pub derivation: StorePath,
    /// The outputs.
    pub outputs: OutputNames,
}

/// The names of some outputs of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputNames {
    /// All of them: `*`.
    All,
    /// These.
    Some(BTreeSet<String>),
}

impl DerivedPath {
    /// Whether a text can only name outputs of a derivation.
    pub fn is_one(text: &str) -> bool {
        split(text).is_some_and(|(path, _)| path.ends_with(EXTENSION))
    }

    /// Parses `DERIVATION^*`, `DERIVATION^OUTPUT,…`, or either with `!` in place of `^`.
    ///
    /// Errors: [`Error::InvalidStorePath`].
    pub fn parse(text: &str, dir: &StoreDir) -> Result<DerivedPath, Error> {
        let invalid = |reason: &str| invalid_path(text, reason.into(), dir);
        let (path, names) =
            split(text).ok_or_else(|| invalid("it has neither '^' nor '!' before outputs"))?;
        let parsed = if path.starts_with('/') {
            dir.parse(path)
        } else {
            StorePath::parse(path)
        };
        let derivation = parsed.map_err(|error| invalid(&error.reason()))?;
        if !derivation.is_derivation() {
            return Err(invalid("only a derivation (.drv) has outputs"));
        }
        let outputs = match names {
            "*" => OutputNames::All,
            names => OutputNames::Some(names.split(',').map(str::to_owned).collect()),
        };
        if let OutputNames::Some(names) = &outputs
            && names.iter().any(|name| !is_output_name(name))
        {
            return Err(invalid(
                "after the derivation, it needs '*' or names of outputs with commas between them",
            ));
        }
        Ok(DerivedPath {
            derivation,
            outputs,
        })
    }
}

impl fmt::Display for DerivedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}^", self.derivation)?;
        match &self.outputs {
            OutputNames::All => f.write_str("*"),
            OutputNames::Some(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

/// Splits a text before its outputs.
fn split(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once('^').or_else(|| text.rsplit_once('!'))
}

/// The end of the name of a derivation.
const EXTENSION: &str = ".drv";

#[cfg(test)]
mod tests {
    use super::*;

    const DRV: &str = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello.drv";

    fn parse(text: &str) -> Result<DerivedPath, Error> {
        DerivedPath::parse(text, &StoreDir::default())
    }

    #[test]
    fn outputs_of_derivations_are_parsed() {
        for (suffix, printed) in [
            ("^*", "^*"),
            ("!*", "^*"),
            ("^out", "^out"),
            ("!out", "^out"),
            ("^out,dev", "^dev,out"),
        ] {
            for drv in [DRV, DRV.trim_start_matches("/nix/store/")] {
                let text = format!("{drv}{suffix}");
                assert!(DerivedPath::is_one(&text), "{text}");
                let shown = parse(&text).unwrap().to_string();
                assert_eq!(
                    shown.strip_prefix("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello.drv"),
                    Some(printed)
                );
            }
        }
    }

    #[test]
    fn other_texts_are_no_outputs() {
        let path = DRV.trim_end_matches(".drv");
        for text in [DRV, path, "jq^out", "jq", &format!("{path}^out")] {
            assert!(!DerivedPath::is_one(text), "{text}");
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["^", "^out,", "^*,out", "^a/b", "^a b", "!"] {
            assert!(parse(&format!("{DRV}{text}")).is_err(), "{text}");
        }
        assert!(parse("/elsewhere/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello.drv^out").is_err());
    }
}
