//! The parser of derivations, whose text is a term in a subset of the ATerm format.

use std::collections::BTreeSet;

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::derivation::{DERIVATION_LEN_MAX, Derivation, DerivationError, DerivationOutput};
use crate::hash::{Hash, HashAlgorithm};
use crate::store_path::{StoreDir, StorePath};

/// Implements [`Derivation::parse`].
pub(super) fn parse(
    text: &[u8],
    dir: &StoreDir,
    name: &str,
) -> Result<Derivation, DerivationError> {
    if text.len() > DERIVATION_LEN_MAX {
        return Err(DerivationError::TooLong(text.len()));
    }
    if text.starts_with(b"DrvWithVersion(") {
        return Err(DerivationError::DrvWithVersion);
    }
    let mut parser = Parser { text, offset: 0 };
    let mut derivation = Derivation {
        outputs: Default::default(),
        input_derivations: Default::default(),
        input_sources: Default::default(),
        platform: Default::default(),
        builder: Default::default(),
        args: Default::default(),
        env: Default::default(),
    };
    parser.expect("Derive(")?;
    parser.list(|parser| {
        let (output, value) = parser.output(dir, name)?;
        // Nix keeps the first of several outputs with the same name.
        derivation.outputs.entry(output).or_insert(value);
        Ok(())
    })?;
    parser.expect(",")?;
    parser.list(|parser| {
        let (path, outputs) = parser.input_derivation(dir)?;
        derivation.input_derivations.insert(path, outputs);
        Ok(())
    })?;
    parser.expect(",")?;
    parser.list(|parser| {
        derivation
            .input_sources
            .insert(dir.parse(parser.unescaped_string()?)?);
        Ok(())
    })?;
    parser.expect(",")?;
    derivation.platform = parser.unescaped_string()?.into();
    parser.expect(",")?;
    derivation.builder = parser.string()?;
    parser.expect(",")?;
    parser.list(|parser| {
        derivation.args.push(parser.string()?);
        Ok(())
    })?;
    parser.expect(",")?;
    parser.list(|parser| {
        let (name, value) = parser.variable()?;
        derivation.env.insert(name, value);
        Ok(())
    })?;
    parser.expect(")")?;
    parser.expect_end()?;
    Ok(derivation)
}

struct Parser<'text> {
    text: &'text [u8],
    offset: usize,
}

impl<'text> Parser<'text> {
    fn rest(&self) -> &'text [u8] {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn consume(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word.as_bytes());
        if found {
            self.offset += word.len();
        }
        found
    }

    fn expect(&mut self, expected: &'static str) -> Result<(), DerivationError> {
        if self.consume(expected) {
            Ok(())
        } else {
            Err(DerivationError::Expected {
                offset: self.offset,
                expected,
            })
        }
    }

    fn expect_end(&self) -> Result<(), DerivationError> {
        if self.rest().is_empty() {
            Ok(())
        } else {
            Err(DerivationError::Expected {
                offset: self.offset,
                expected: "the end",
            })
        }
    }

    /// Parses a list. As in Nix, the comma before an item is optional.
    fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), DerivationError>,
    ) -> Result<(), DerivationError> {
        self.expect("[")?;
        while self.consume(",") || !self.consume("]") {
            item(self)?;
        }
        Ok(())
    }

    /// Parses a string in double quotes and decodes its escapes.
    fn string(&mut self) -> Result<Vec<u8>, DerivationError> {
        let offset = self.offset;
        self.expect("\"")?;
        let mut string = Vec::new();
        loop {
            let rest = self.rest();
            let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let unterminated = DerivationError::Unterminated { offset };
            let Some((plain, rest)) = special.and_then(|at| rest.split_at_checked(at)) else {
                return Err(unterminated);
            };
            string.extend_from_slice(plain);
            self.offset += plain.len();
            match rest {
                [b'"', ..] => {
                    self.offset += 1;
                    return Ok(string);
                }
                [b'\\', escaped, ..] => {
                    string.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => *other,
                    });
                    self.offset += 2;
                }
                _ => return Err(unterminated),
            }
        }
    }

    /// Parses a string in double quotes that has no escapes.
    fn unescaped_string(&mut self) -> Result<&'text str, DerivationError> {
        let offset = self.offset;
        self.expect("\"")?;
        let rest = self.rest();
        let end = rest
            .iter()
            .position(|&byte| byte == b'"')
            .ok_or(DerivationError::Unterminated { offset })?;
        let not_unescaped = DerivationError::NotUnescaped { offset };
        let Some(Ok(string)) = rest.get(..end).map(std::str::from_utf8) else {
            return Err(not_unescaped);
        };
        if string.contains(['\\', '\n', '\r', '\t']) {
            return Err(not_unescaped);
        }
        self.offset += end + 1;
        Ok(string)
    }

    fn output(
        &mut self,
        dir: &StoreDir,
        drv_name: &str,
    ) -> Result<(String, DerivationOutput), DerivationError> {
        self.expect("(")?;
        let name = self.unescaped_string()?;
        self.expect(",")?;
        let path = self.unescaped_string()?;
        self.expect(",")?;
        let method = self.unescaped_string()?;
        self.expect(",")?;
        let hash = self.unescaped_string()?;
        self.expect(")")?;
        Ok((
            name.into(),
            output(dir, drv_name, name, path, method, hash)?,
        ))
    }

    fn input_derivation(
        &mut self,
        dir: &StoreDir,
    ) -> Result<(StorePath, BTreeSet<String>), DerivationError> {
        self.expect("(")?;
        let path = dir.parse(self.unescaped_string()?)?;
        self.expect(",")?;
        let mut outputs = BTreeSet::new();
        self.list(|parser| {
            outputs.insert(parser.unescaped_string()?.into());
            Ok(())
        })?;
        self.expect(")")?;
        if outputs.is_empty() {
            return Err(DerivationError::NoOutputsUsed(path));
        }
        Ok((path, outputs))
    }

    fn variable(&mut self) -> Result<(Vec<u8>, Vec<u8>), DerivationError> {
        self.expect("(")?;
        let name = self.string()?;
        self.expect(",")?;
        let value = self.string()?;
        self.expect(")")?;
        Ok((name, value))
    }
}

/// Makes an output of its three fields, each of which may be empty.
///
/// `method` is a content-address method with its algorithm, such as `r:sha256`.
fn output(
    dir: &StoreDir,
    drv_name: &str,
    name: &str,
    path: &str,
    method: &str,
    hash: &str,
) -> Result<DerivationOutput, DerivationError> {
    if method.is_empty() {
        return Ok(match path {
            "" => DerivationOutput::Deferred,
            _ => DerivationOutput::InputAddressed(dir.parse(path)?),
        });
    }
    let (method, algorithm) = split_method(method);
    let algorithm =
        HashAlgorithm::from_name(algorithm).ok_or_else(|| DerivationError::UnknownAlgorithm {
            output: name.into(),
            name: algorithm.into(),
        })?;
    match hash {
        "" | "impure" if !path.is_empty() => Err(DerivationError::UnexpectedPath {
            output: name.into(),
        }),
        "" => Ok(DerivationOutput::Floating { method, algorithm }),
        "impure" => Ok(DerivationOutput::Impure { method, algorithm }),
        _ => fixed_output(dir, drv_name, name, path, method, algorithm, hash),
    }
}

fn fixed_output(
    dir: &StoreDir,
    drv_name: &str,
    name: &str,
    path: &str,
    method: ContentAddressMethod,
    algorithm: HashAlgorithm,
    hash: &str,
) -> Result<DerivationOutput, DerivationError> {
    let stated = dir.parse(path)?;
    let hash = Hash::parse_unprefixed(hash, algorithm).map_err(|source| DerivationError::Hash {
        output: name.into(),
        source,
    })?;
    let output = DerivationOutput::Fixed(ContentAddress { method, hash });
    let computed =
        output
            .path(dir, drv_name, name)
            .map_err(|source| DerivationError::OutputPath {
                output: name.into(),
                source,
            })?;
    match computed {
        Some(computed) if computed != stated => Err(DerivationError::OutputPathMismatch {
            derivation: drv_name.into(),
            output: name.into(),
            stated,
            computed,
        }),
        _ => Ok(output),
    }
}

/// Splits a field such as `r:sha256` into the method and the name of the algorithm.
fn split_method(text: &str) -> (ContentAddressMethod, &str) {
    [
        ContentAddressMethod::NixArchive,
        ContentAddressMethod::Git,
        ContentAddressMethod::Text,
    ]
    .into_iter()
    .find_map(|method| Some((method, text.strip_prefix(method.prefix())?)))
    .unwrap_or((ContentAddressMethod::Flat, text))
}
