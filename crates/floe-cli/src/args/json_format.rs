//! The formats of the JSON of `nix path-info` as values of an option.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use floe_format::JsonFormat;

/// Returns the parser of a format, which a shell can complete.
pub(crate) fn json_format() -> impl TypedValueParser<Value = JsonFormat> {
    PossibleValuesParser::new(FORMATS.map(|(number, _)| number)).try_map(|text| {
        let mut formats = FORMATS.iter();
        let found = formats.find(|(number, _)| *number == text);
        let (_, format) = found.ok_or_else(|| format!("unknown format {text}"))?;
        Ok::<_, String>(*format)
    })
}

/// The numbers that Nix gives to the formats.
const FORMATS: [(&str, JsonFormat); 3] = [
    ("1", JsonFormat::V1),
    ("2", JsonFormat::V2),
    ("3", JsonFormat::V3),
];
