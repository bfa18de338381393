//! The outputs of a build, as the protocols send them: `HASH!OUTPUT` and a realisation in JSON.
//! `HASH` identifies the derivation (`staticOutputHashes`).

use std::collections::BTreeMap;

use floe_format::{StoreDir, StorePath};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};
use crate::output;

/// A realisation. `Realisation::fromJSON` of Nix 2.8 demands all of its parts.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Realisation {
    #[serde(default)]
    dependent_realisations: BTreeMap<String, String>,
    #[serde(default)]
    id: String,
    out_path: String,
    #[serde(default)]
    signatures: Vec<String>,
}

/// Appends the outputs of a build.
pub(crate) fn write_outputs(output: &mut Vec<u8>, outputs: &BTreeMap<String, StorePath>) {
    output::number(output, outputs.len() as u64);
    for (id, path) in outputs {
        let realisation = Realisation {
            dependent_realisations: BTreeMap::new(),
            id: id.clone(),
            out_path: path.to_string(),
            signatures: Vec::new(),
        };
        output::text(output, id);
        // Texts in a struct are always JSON.
        output::text(
            output,
            serde_json::to_string(&realisation).unwrap_or_default(),
        );
    }
}

/// Reads the outputs of a build. Nix up to 2.8 sends whole paths, and later versions base names.
pub(crate) fn read_outputs(
    input: &mut Input<'_>,
    dir: &StoreDir,
) -> Result<BTreeMap<String, StorePath>, WireError> {
    const REALISATION: &str = "a realisation";
    let outputs = input.list("the realisations", 2 * NUMBER_LEN, |input| {
        let id = input.text(REALISATION, TEXT_LEN_MAX)?.to_owned();
        let text = input.text(REALISATION, TEXT_LEN_MAX)?;
        let invalid = |reason: String| WireError::value(REALISATION, text, reason);
        let found: Realisation =
            serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        let path = StorePath::parse(&found.out_path).or_else(|_| dir.parse(&found.out_path));
        Ok((id, path.map_err(|error| invalid(error.to_string()))?))
    })?;
    Ok(outputs.into_iter().collect())
}
