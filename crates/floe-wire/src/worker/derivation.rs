//! Derivations in messages.

use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};

/// Reads a derivation in the form of the protocol (`derivation::read`), and returns its outputs.
pub(crate) fn read_outputs(input: &mut Input<'_>) -> Result<Vec<(String, String)>, WireError> {
    const PART: &str = "a part of a derivation";
    let text = |input: &mut Input<'_>| Ok(input.text(PART, TEXT_LEN_MAX)?.to_owned());
    let outputs = input.list("the outputs", 4 * NUMBER_LEN, |input| {
        let (name, path) = (text(input)?, text(input)?);
        // The algorithm and the hash of a fixed output.
        text(input)?;
        text(input)?;
        Ok((name, path))
    })?;
    input.list("the input sources", NUMBER_LEN, text)?;
    // The platform and the builder.
    text(input)?;
    text(input)?;
    input.list("the arguments", NUMBER_LEN, |input| {
        input.bytes(PART, DERIVATION_LEN_MAX).map(drop)
    })?;
    input.list("the environment", 2 * NUMBER_LEN, |input| {
        input.bytes(PART, DERIVATION_LEN_MAX)?;
        input.bytes(PART, DERIVATION_LEN_MAX).map(drop)
    })?;
    Ok(outputs)
}

/// The longest variable of a derivation, in bytes.
const DERIVATION_LEN_MAX: usize = 64 * 1024 * 1024;
