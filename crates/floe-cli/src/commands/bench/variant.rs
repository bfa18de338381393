//! Variants: the programs to time.

use std::path::Path;
use std::process::Command;

use floe_bench::{Template, machine};

use crate::exit::UsageError;

/// A program, and its command for a copy.
#[derive(Debug)]
pub(crate) struct VariantSpec {
    pub(crate) name: String,
    pub(crate) template: Template,
}

/// Parses `--variant` options: the name of a built-in variant, NAME=PROGRAM for a built-in variant
/// with another program, or NAME=COMMAND.
///
/// Errors: missing and duplicate names, invalid commands, and variants of which only some check
/// signatures, because their times could not be compared.
pub(crate) fn parse(texts: &[String], keys: Option<&str>) -> Result<Vec<VariantSpec>, UsageError> {
    let mut variants: Vec<VariantSpec> = Vec::new();
    for text in texts {
        let variant = parse_one(text, keys)?;
        if variants.iter().any(|known| known.name == variant.name) {
            return Err(invalid(text, "another variant has this name"));
        }
        variants.push(variant);
    }
    let checking = variants.iter().find(|variant| variant.checks_signatures());
    let trusting = variants.iter().find(|variant| !variant.checks_signatures());
    if let (Some(checking), Some(trusting)) = (checking, trusting) {
        return Err(UsageError(format!(
            "cannot compare the variants: `{}` checks signatures and `{}` does not; give both the \
             same setting (--no-check-sigs, or trusted keys for all)",
            checking.name, trusting.name
        )));
    }
    Ok(variants)
}

fn invalid(text: &str, reason: &str) -> UsageError {
    UsageError(format!("cannot use --variant {text}: {reason}"))
}

fn parse_one(text: &str, keys: Option<&str>) -> Result<VariantSpec, UsageError> {
    let fault = |reason: &str| invalid(text, reason);
    let Some((name, command)) = text.split_once('=') else {
        let template = builtin(text, text, keys);
        let template = template.ok_or_else(|| fault("write NAME='COMMAND …', `nix` or `floe`"))?;
        let name = text.to_owned();
        return Ok(VariantSpec { name, template });
    };
    if name.is_empty() {
        return Err(fault("it has no name"));
    }
    let is_program = !command.contains(char::is_whitespace);
    let file_name = Path::new(command).file_name().filter(|_| is_program);
    let kind = file_name.and_then(|name| name.to_str());
    let template = match kind.and_then(|kind| builtin(kind, command, keys)) {
        Some(template) => template,
        None => Template::parse(command).map_err(|error| fault(&error.to_string()))?,
    };
    let name = name.to_owned();
    Ok(VariantSpec { name, template })
}

/// Returns the command of a program that floe knows.
fn builtin(kind: &str, program: &str, keys: Option<&str>) -> Option<Template> {
    let mut words = vec![program];
    match kind {
        "nix" => words.extend(["--extra-experimental-features", "nix-command"]),
        "floe" => {}
        _ => return None,
    }
    words.push("copy");
    match (kind, keys) {
        (_, None) => words.push("--no-check-sigs"),
        ("nix", Some(keys)) => words.extend(["--option", "trusted-public-keys", keys]),
        (_, Some(keys)) => words.extend(["--trusted-public-keys", keys]),
    }
    words.extend(["--from", "{from}", "--to", "{dest}", "{path}"]);
    let arguments = words.into_iter().map(str::to_owned).collect();
    Some(Template { arguments })
}

impl VariantSpec {
    /// Whether the command checks signatures. Nix and floe do so by default.
    pub(crate) fn checks_signatures(&self) -> bool {
        let words = &self.template.arguments;
        let has = |word: &str| words.iter().any(|known| known == word);
        let mut pairs = words.windows(2);
        let is_off = pairs.any(|pair| pair == ["require-sigs", "false"]);
        !has("--no-check-sigs") && !has("--no-require-sigs") && !is_off
    }

    /// Returns the version that the program reports.
    pub(crate) fn version(&self) -> Option<String> {
        machine::first_line(Command::new(self.template.program()).arg("--version"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str], keys: Option<&str>) -> Result<Vec<VariantSpec>, UsageError> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        parse(&texts, keys)
    }

    fn fault(texts: &[&str]) -> String {
        parsed(texts, None).unwrap_err().to_string()
    }

    #[test]
    fn built_in_variants_have_the_same_settings() {
        for keys in [None, Some("a:b c:d")] {
            let variants = parsed(&["nix", "floe", "old=/opt/old/bin/nix"], keys).unwrap();
            assert_eq!(variants[2].template.program(), "/opt/old/bin/nix");
            for variant in variants {
                assert_eq!(variant.checks_signatures(), keys.is_some(), "{variant:?}");
                let text = variant.template.text();
                assert!(
                    text.contains("'{from}'") || text.contains("{from}"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn variants_with_different_checks_are_refused() {
        let mixed = fault(&["nix", "mine=floe copy --from {from} --to {dest} {path}"]);
        assert!(
            mixed.contains("`mine` checks signatures and `nix` does not"),
            "{mixed}"
        );
        let off = "mine=nix copy --option require-sigs false --to {dest} {path}";
        assert!(parsed(&["nix", off], None).is_ok());
    }

    #[test]
    fn invalid_variant_is_refused_with_its_text() {
        for (text, reason) in [
            ("cp", "NAME="),
            ("=cp {from} {dest} {path}", "no name"),
            ("a=cp -r {from} {path}", "lacks {dest}"),
        ] {
            let fault = fault(&[text]);
            assert!(fault.contains(reason) && fault.contains(text), "{fault}");
        }
        assert!(fault(&["floe", "floe"]).contains("another variant has this name"));
    }
}
