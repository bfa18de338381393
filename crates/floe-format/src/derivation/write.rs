//! The writer of derivations, and of the similar text from which output paths are computed.

use std::collections::{BTreeMap, BTreeSet};

use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::derivation::{Derivation, DerivationError, DerivationOutput};
use crate::hash::HashAlgorithm;
use crate::store_path::StoreDir;

impl Derivation {
    /// Returns the text of the `.drv` file. `name` is without `.drv`.
    pub fn to_aterm(&self, dir: &StoreDir, name: &str) -> Result<Vec<u8>, DerivationError> {
        let mut outputs = Vec::new();
        for (output, value) in &self.outputs {
            outputs.push(output_fields(value, dir, name, output)?);
        }
        let inputs = self
            .input_derivations
            .iter()
            .map(|(path, outputs)| (dir.full_path(path), outputs));
        Ok(term(self, dir, &outputs, inputs, &self.env))
    }
}

/// Returns the text with each input derivation replaced by its hash in hexadecimal.
///
/// If `masked` is set, the paths of the outputs and the values of the variables named after them
/// are empty, because they are the result of hashing this text.
pub(super) fn aterm_modulo(
    derivation: &Derivation,
    dir: &StoreDir,
    inputs: &BTreeMap<String, BTreeSet<String>>,
    masked: bool,
) -> Vec<u8> {
    let mut outputs = Vec::new();
    let mut env = derivation.env.clone();
    for (name, output) in &derivation.outputs {
        let path = match output {
            DerivationOutput::InputAddressed(path) if !masked => dir.full_path(path),
            _ => String::new(),
        };
        let [method, hash] = address_fields(output);
        outputs.push([name.clone(), path, method, hash]);
        if let Some(value) = env.get_mut(name.as_bytes()).filter(|_| masked) {
            value.clear();
        }
    }
    let inputs = inputs.iter().map(|(hash, outputs)| (hash.clone(), outputs));
    term(derivation, dir, &outputs, inputs, &env)
}

/// Returns the four fields of an output: name, path, method with algorithm, and hash.
fn output_fields(
    output: &DerivationOutput,
    dir: &StoreDir,
    drv_name: &str,
    name: &str,
) -> Result<[String; 4], DerivationError> {
    let path = output.path(dir, drv_name, name)?;
    let path = path.map(|path| dir.full_path(&path)).unwrap_or_default();
    let [method, hash] = address_fields(output);
    Ok([name.into(), path, method, hash])
}

/// Returns the last two fields of an output: method with algorithm, and hash.
fn address_fields(output: &DerivationOutput) -> [String; 2] {
    let method_field = |method: ContentAddressMethod, algorithm: HashAlgorithm| {
        format!("{}{}", method.prefix(), algorithm.name())
    };
    match output {
        DerivationOutput::InputAddressed(_) | DerivationOutput::Deferred => Default::default(),
        DerivationOutput::Fixed(ContentAddress { method, hash }) => [
            method_field(*method, hash.algorithm()),
            hash.digest_base16(),
        ],
        DerivationOutput::Floating { method, algorithm } => {
            [method_field(*method, *algorithm), String::new()]
        }
        DerivationOutput::Impure { method, algorithm } => {
            [method_field(*method, *algorithm), "impure".into()]
        }
    }
}

fn term<'a>(
    derivation: &'a Derivation,
    dir: &StoreDir,
    outputs: &[[String; 4]],
    inputs: impl Iterator<Item = (String, &'a BTreeSet<String>)>,
    env: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Vec<u8> {
    let mut out = b"Derive(".to_vec();
    sequence(&mut out, b"[]", outputs, |out, fields| {
        sequence(out, b"()", fields, |out, field| unescaped(out, field));
    });
    out.push(b',');
    sequence(&mut out, b"[]", inputs, |out, (key, outputs)| {
        out.push(b'(');
        unescaped(out, &key);
        out.push(b',');
        sequence(out, b"[]", outputs, |out, output| unescaped(out, output));
        out.push(b')');
    });
    out.push(b',');
    sequence(&mut out, b"[]", &derivation.input_sources, |out, path| {
        unescaped(out, &dir.full_path(path))
    });
    out.push(b',');
    unescaped(&mut out, &derivation.platform);
    out.push(b',');
    escaped(&mut out, &derivation.builder);
    out.push(b',');
    sequence(&mut out, b"[]", &derivation.args, |out, arg| {
        escaped(out, arg)
    });
    out.push(b',');
    sequence(&mut out, b"[]", env, |out, (name, value)| {
        sequence(out, b"()", [name, value], |out, text| escaped(out, text));
    });
    out.push(b')');
    out
}

/// Appends items between two brackets, with commas between the items.
fn sequence<T>(
    out: &mut Vec<u8>,
    [open, close]: &[u8; 2],
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(*open);
    for (index, value) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item(out, value);
    }
    out.push(*close);
}

/// Appends a string without escapes, as Nix does for paths and names.
fn unescaped(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
