//! The JSON forms of realisations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{DrvKey, DrvOutput, REALISATION_LEN_MAX, Realisation, RealisationError};
use crate::base64;
use crate::signature::Signature;
use crate::store_path::StorePath;

pub(super) fn parse(id: &DrvOutput, text: &[u8]) -> Result<Realisation, RealisationError> {
    if text.len() > REALISATION_LEN_MAX {
        return Err(RealisationError::TooLong);
    }
    let value: Value =
        serde_json::from_slice(text).map_err(|error| RealisationError::Json(error.to_string()))?;
    let object = value
        .as_object()
        .ok_or_else(|| RealisationError::Json("it is not an object".into()))?;
    if let DrvKey::Hash(_) = id.key() {
        let found = DrvOutput::parse(text_of(object, "id")?)?;
        if found != *id {
            return Err(RealisationError::OtherOutput(found.to_string()));
        }
    }
    Ok(Realisation {
        id: id.clone(),
        out_path: StorePath::parse(text_of(object, "outPath")?)?,
        signatures: signatures(object)?,
        dependent_realisations: match id.key() {
            DrvKey::Hash(_) => dependencies(object)?,
            DrvKey::Path(_) => BTreeMap::new(),
        },
    })
}

pub(super) fn to_json(realisation: &Realisation) -> Value {
    let Realisation { signatures, .. } = realisation;
    let (mut object, signatures) = match realisation.id.key() {
        DrvKey::Hash(_) => {
            // Nix up to 2.34 sorts signatures as text.
            let texts: BTreeSet<String> = signatures.iter().map(ToString::to_string).collect();
            (by_hash(realisation), json!(texts))
        }
        DrvKey::Path(_) => {
            let objects = signatures.iter().map(|signature| {
                json!({
                    "keyName": signature.key_name(),
                    "sig": base64::encode(signature.bytes()),
                })
            });
            let object = json!({ "outPath": realisation.out_path.as_str() });
            (object, Value::Array(objects.collect()))
        }
    };
    object["signatures"] = signatures;
    object
}

pub(super) fn fingerprint(realisation: &Realisation) -> String {
    // The fields are in the order of their names, as Nix writes them.
    match realisation.id.key() {
        DrvKey::Hash(_) => by_hash(realisation).to_string(),
        // `json!` sorts too, but `drvPath` is before `outputName` and `key` before `value` anyway.
        DrvKey::Path(path) => json!({
            "key": { "drvPath": path.as_str(), "outputName": realisation.id.name() },
            "value": { "outPath": realisation.out_path.as_str() },
        })
        .to_string(),
    }
}

/// Returns the fields of a realisation by hash, without the signatures.
fn by_hash(realisation: &Realisation) -> Value {
    let dependencies: BTreeMap<String, &str> = realisation
        .dependent_realisations
        .iter()
        .map(|(id, path)| (id.to_string(), path.as_str()))
        .collect();
    json!({
        "dependentRealisations": dependencies,
        "id": realisation.id.to_string(),
        "outPath": realisation.out_path.as_str(),
    })
}

fn text_of<'a>(
    object: &'a Map<String, Value>,
    field: &'static str,
) -> Result<&'a str, RealisationError> {
    let value = object.get(field).and_then(Value::as_str);
    value.ok_or(RealisationError::Field(field))
}

/// Returns the signatures. The newest Nix reads both of their forms, too.
fn signatures(object: &Map<String, Value>) -> Result<BTreeSet<Signature>, RealisationError> {
    const FIELD: RealisationError = RealisationError::Field("signatures");
    let values = match object.get("signatures") {
        None => return Ok(BTreeSet::new()),
        Some(values) => values.as_array().ok_or(FIELD)?,
    };
    let parse = |value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            value => {
                let part = |name| value.get(name).and_then(Value::as_str).ok_or(FIELD);
                format!("{}:{}", part("keyName")?, part("sig")?)
            }
        };
        Ok(Signature::parse(&text)?)
    };
    values.iter().map(parse).collect()
}

fn dependencies(
    object: &Map<String, Value>,
) -> Result<BTreeMap<DrvOutput, StorePath>, RealisationError> {
    const FIELD: RealisationError = RealisationError::Field("dependentRealisations");
    let values = match object.get("dependentRealisations") {
        None => return Ok(BTreeMap::new()),
        Some(values) => values.as_object().ok_or(FIELD)?,
    };
    let parse = |(id, path): (&String, &Value)| {
        let path = path.as_str().ok_or(FIELD)?;
        let id = DrvOutput::parse(id)?;
        match id.key() {
            DrvKey::Hash(_) => Ok((id, StorePath::parse(path)?)),
            DrvKey::Path(_) => Err(FIELD),
        }
    };
    values.iter().map(parse).collect()
}
