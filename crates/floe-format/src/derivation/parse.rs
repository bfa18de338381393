//! The parser of derivations, whose text is a term in a subset of the ATerm format.

use std::collections::BTreeSet;

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::derivation::output::check_output_path;
use crate::derivation::{DERIVATION_LEN_MAX, Derivation, DerivationError, DerivationOutput};
use crate::hash::{Hash, HashAlgorithm};
use crate::store_path::{StoreDir, StorePath};

impl Derivation {
    /// Parses the text of a `.drv` file.
    ///
    /// `name` is the name without `.drv`, as [`Derivation::name_from_path`] returns it. The parser
    /// checks the paths of fixed outputs with it.
    ///
    /// The parser accepts what the newest Nix accepts, such as lists without commas and outputs
    /// of experimental features. It does not support dynamic derivations. Stricter than Nix, it
    /// rejects bytes after the end, and names, paths and hashes that would need escapes.
    pub fn parse(text: &[u8], dir: &StoreDir, name: &str) -> Result<Derivation, DerivationError> {
        if text.len() > DERIVATION_LEN_MAX {
            return Err(DerivationError::TooLong(text.len()));
        }
        if text.starts_with(b"DrvWithVersion(") {
            return Err(DerivationError::DrvWithVersion);
        }
        let mut parser = Parser {
            text,
            offset: 0,
            dir,
            drv_name: name,
        };
        let outputs: Vec<_> = parser.after("Derive(", |parser| parser.list(Parser::output))?;
        let input_derivations =
            parser.after(",", |parser| parser.list(Parser::input_derivation))?;
        let input_sources = parser.after(",", |parser| parser.list(Parser::store_path))?;
        let platform = parser.after(",", Parser::unescaped_string)?.into();
        let builder = parser.after(",", Parser::string)?;
        let args = parser.after(",", |parser| parser.list(Parser::string))?;
        let env = parser.after(",", |parser| parser.list(Parser::variable))?;
        parser.expect(")")?;
        if !parser.rest().is_empty() {
            return Err(parser.expected("the end"));
        }
        Ok(Derivation {
            // Nix keeps the first of several outputs with the same name.
            outputs: outputs.into_iter().rev().collect(),
            input_derivations,
            input_sources,
            platform,
            builder,
            args,
            env,
        })
    }
}

struct Parser<'a> {
    text: &'a [u8],
    offset: usize,
    dir: &'a StoreDir,
    drv_name: &'a str,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a [u8] {
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
        let found = self.consume(expected);
        found.then_some(()).ok_or_else(|| self.expected(expected))
    }

    fn expected(&self, expected: &'static str) -> DerivationError {
        let offset = self.offset;
        DerivationError::Expected { offset, expected }
    }

    /// Parses an item that follows a separator.
    fn after<T>(
        &mut self,
        separator: &'static str,
        item: impl FnOnce(&mut Self) -> Result<T, DerivationError>,
    ) -> Result<T, DerivationError> {
        self.expect(separator)?;
        item(self)
    }

    /// Parses a list. As in Nix, the comma before an item is optional.
    fn list<T, C: Default + Extend<T>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DerivationError>,
    ) -> Result<C, DerivationError> {
        let mut items = C::default();
        self.expect("[")?;
        while self.consume(",") || !self.consume("]") {
            items.extend([item(self)?]);
        }
        Ok(items)
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
    fn unescaped_string(&mut self) -> Result<&'a str, DerivationError> {
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

    /// Parses strings without escapes in parentheses.
    fn unescaped_strings<const N: usize>(&mut self) -> Result<[&'a str; N], DerivationError> {
        let mut strings = [""; N];
        for (index, string) in strings.iter_mut().enumerate() {
            self.expect(if index == 0 { "(" } else { "," })?;
            *string = self.unescaped_string()?;
        }
        self.expect(")")?;
        Ok(strings)
    }

    fn store_path(&mut self) -> Result<StorePath, DerivationError> {
        Ok(self.dir.parse(self.unescaped_string()?)?)
    }

    /// Parses an output and its name. The fields for path, method and hash may be empty.
    fn output(&mut self) -> Result<(String, DerivationOutput), DerivationError> {
        let [name, path, method, hash] = self.unescaped_strings()?;
        let output = match (path, method) {
            ("", "") => DerivationOutput::Deferred,
            (_, "") => DerivationOutput::InputAddressed(self.dir.parse(path)?),
            _ => self.content_addressed_output(name, path, method, hash)?,
        };
        Ok((name.into(), output))
    }

    /// Makes an output of its fields. `method` includes the algorithm, as in `r:sha256`.
    fn content_addressed_output(
        &self,
        name: &str,
        path: &str,
        method: &str,
        hash: &str,
    ) -> Result<DerivationOutput, DerivationError> {
        let output = || name.to_owned();
        let (method, algorithm) = match method.strip_prefix("text:") {
            Some(algorithm) => (ContentAddressMethod::Text, algorithm),
            None => ContentAddressMethod::split_file_method(method),
        };
        let algorithm = HashAlgorithm::from_name(algorithm).ok_or_else(|| {
            DerivationError::UnknownAlgorithm {
                output: output(),
                name: algorithm.into(),
            }
        })?;
        match hash {
            "" | "impure" if !path.is_empty() => {
                Err(DerivationError::UnexpectedPath { output: output() })
            }
            "" => Ok(DerivationOutput::Floating { method, algorithm }),
            "impure" => Ok(DerivationOutput::Impure { method, algorithm }),
            _ => {
                let stated = self.dir.parse(path)?;
                let hash = Hash::parse_unprefixed(hash, algorithm).map_err(|source| {
                    DerivationError::Hash {
                        output: output(),
                        source,
                    }
                })?;
                let fixed = DerivationOutput::Fixed(ContentAddress { method, hash });
                if let Some(computed) = fixed.path(self.dir, self.drv_name, name)? {
                    check_output_path(self.drv_name, name, &stated, &computed)?;
                }
                Ok(fixed)
            }
        }
    }

    /// Parses an input derivation and the names of the outputs that are used.
    fn input_derivation(&mut self) -> Result<(StorePath, BTreeSet<String>), DerivationError> {
        let path = self.after("(", Parser::store_path)?;
        self.expect(",")?;
        let outputs: BTreeSet<String> =
            self.list(|parser| Ok(parser.unescaped_string()?.into()))?;
        self.expect(")")?;
        if outputs.is_empty() {
            return Err(DerivationError::NoOutputsUsed(path));
        }
        Ok((path, outputs))
    }

    /// Parses the name and the value of an environment variable.
    fn variable(&mut self) -> Result<(Vec<u8>, Vec<u8>), DerivationError> {
        let name = self.after("(", Parser::string)?;
        let value = self.after(",", Parser::string)?;
        self.expect(")")?;
        Ok((name, value))
    }
}
