//! The outputs of content-addressed derivations. There are two generations of tables, which exist
//! only where the experimental feature `ca-derivations` was used.
//!
//! Up to Nix 2.34, the key of an output is a hash of its derivation (`Realisations`). In the newest
//! Nix, the key is the path of its derivation (`BuildTraceV3`). Neither version reads the other's
//! table.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{Signature, StorePath, base64};
use rusqlite::{OptionalExtension as _, Row};
use serde_json::{Value, json};

use super::Database;
use crate::error::StoreError;

/// The output of a derivation, as Nix up to 2.34 records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realisation {
    /// The hash of the derivation and the name of the output: `sha256:HASH!out`.
    pub id: String,
    /// The output.
    pub out_path: StorePath,
    /// The signatures of the realisation.
    pub signatures: BTreeSet<Signature>,
    /// The outputs that it was built from, by their identifiers.
    pub dependent_realisations: BTreeMap<String, StorePath>,
}

impl Realisation {
    /// Returns the contents of `realisations/ID.doi` in a binary cache of Nix up to 2.34.
    pub fn to_json(&self) -> Value {
        let dependencies: BTreeMap<&str, &str> = self
            .dependent_realisations
            .iter()
            .map(|(id, path)| (id.as_str(), path.as_str()))
            .collect();
        // Nix up to 2.34 sorts signatures as text.
        let signatures: BTreeSet<String> =
            self.signatures.iter().map(ToString::to_string).collect();
        json!({
            "dependentRealisations": dependencies,
            "id": self.id,
            "outPath": self.out_path.as_str(),
            "signatures": signatures,
        })
    }
}

/// The output of a derivation, as the newest Nix records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildTrace {
    /// The derivation.
    pub drv_path: StorePath,
    /// The name of the output.
    pub output_name: String,
    /// The output.
    pub out_path: StorePath,
    /// The signatures of the build trace.
    pub signatures: BTreeSet<Signature>,
}

impl BuildTrace {
    /// Returns the contents of `build-trace-v2/DRV/OUTPUT.doi` in a binary cache of the newest Nix.
    pub fn to_json(&self) -> Value {
        let signature = |signature: &Signature| {
            json!({
                "keyName": signature.key_name(),
                "sig": base64::encode(signature.bytes()),
            })
        };
        json!({
            "outPath": self.out_path.as_str(),
            "signatures": self.signatures.iter().map(signature).collect::<Vec<_>>(),
        })
    }
}

impl Database {
    /// Returns the realisation of an output, by the hash of its derivation.
    pub(crate) fn realisation(
        &self,
        drv_hash: &str,
        output: &str,
    ) -> Result<Option<Realisation>, StoreError> {
        if !self.has_table("Realisations")? || !self.has_table("RealisationsRefs")? {
            return Ok(None);
        }
        // One statement, so that no write happens between a realisation and its dependencies.
        let text = "select r.id, o.path, r.signatures, d.drvPath, d.outputName, p.path \
             from Realisations r join ValidPaths o on o.id = r.outputPath \
             left join RealisationsRefs x on x.referrer = r.id \
             left join Realisations d on d.id = x.realisationReference \
             left join ValidPaths p on p.id = d.outputPath \
             where r.drvPath = ?1 and r.outputName = ?2 order by r.id";
        let rows: Vec<RealisationRow> = self.query("look up a realisation in", text, |query| {
            let rows = query.query_map([drv_hash, output], RealisationRow::read)?;
            rows.collect()
        })?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let dependencies = rows
            .iter()
            // If there are several realisations, Nix uses the first as well.
            .take_while(|row| row.id == first.id)
            .filter_map(|row| row.dependency.as_ref())
            .map(|(id, path)| Ok((id.clone(), self.parse_path(path)?)))
            .collect::<Result<_, StoreError>>()?;
        let id = format!("{drv_hash}!{output}");
        Ok(Some(Realisation {
            out_path: self.parse_path(&first.out_path)?,
            signatures: self.parse_signatures(&id, &first.signatures)?,
            dependent_realisations: dependencies,
            id,
        }))
    }

    /// Returns the build trace of an output, by the path of its derivation.
    pub(crate) fn build_trace(
        &self,
        drv: &StorePath,
        output: &str,
    ) -> Result<Option<BuildTrace>, StoreError> {
        if !self.has_table("BuildTraceV3")? {
            return Ok(None);
        }
        let text = "select outputPath, signatures from BuildTraceV3 \
             where drvPath = ?1 and outputName = ?2 order by id limit 1";
        let found = self.query("look up a build trace in", text, |query| {
            let read = |row: &Row<'_>| <(String, Option<String>)>::try_from(row);
            query.query_row([drv.as_str(), output], read).optional()
        })?;
        let Some((out_path, signatures)) = found else {
            return Ok(None);
        };
        let id = format!("{drv}^{output}");
        Ok(Some(BuildTrace {
            drv_path: drv.clone(),
            output_name: output.to_owned(),
            out_path: self.parse_path(&out_path)?,
            signatures: self.parse_signatures(&id, &signatures.unwrap_or_default())?,
        }))
    }

    fn has_table(&self, name: &str) -> Result<bool, StoreError> {
        let text = "select 1 from sqlite_schema where type = 'table' and name = ?1";
        self.query("look for tables in", text, |query| query.exists([name]))
    }
}

struct RealisationRow {
    id: i64,
    out_path: String,
    signatures: String,
    /// Identifier and output of a dependency.
    dependency: Option<(String, String)>,
}

impl RealisationRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<RealisationRow> {
        let key: Option<(String, String)> = Option::zip(row.get(3)?, row.get(4)?);
        let id = key.map(|(drv_hash, output)| format!("{drv_hash}!{output}"));
        Ok(RealisationRow {
            id: row.get(0)?,
            out_path: row.get(1)?,
            signatures: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            dependency: id.zip(row.get(5)?),
        })
    }
}
