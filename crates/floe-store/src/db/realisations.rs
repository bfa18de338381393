//! What content-addressed derivations became: two generations of tables, which exist only where
//! the experimental feature `ca-derivations` was used.
//!
//! Up to Nix 2.34 an output is known by a hash of its derivation (`Realisations`). The newest
//! Nix knows it by the path of its derivation (`BuildTraceV3`). Neither reads the other's table.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{Signature, StorePath, base64};
use rusqlite::{OptionalExtension as _, Row};
use serde_json::{Value, json};

use super::Database;
use crate::error::StoreError;

/// What an output of a derivation became, as Nix up to 2.34 tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realisation {
    /// The hash of the derivation and the name of the output: `sha256:HASH!out`.
    pub id: String,
    /// The output.
    pub out_path: StorePath,
    /// Who vouches for it.
    pub signatures: BTreeSet<Signature>,
    /// The outputs that it was built from, by their identifiers.
    pub dependent_realisations: BTreeMap<String, StorePath>,
}

impl Realisation {
    /// What such a Nix puts into `realisations/ID.doi` of a binary cache.
    pub fn to_json(&self) -> Value {
        let dependencies: BTreeMap<&str, &str> = self
            .dependent_realisations
            .iter()
            .map(|(id, path)| (id.as_str(), path.as_str()))
            .collect();
        // In the order of the texts, as that Nix keeps them.
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

/// What an output of a derivation became, as the newest Nix tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildTrace {
    /// The derivation.
    pub drv_path: StorePath,
    /// The name of the output.
    pub output_name: String,
    /// The output.
    pub out_path: StorePath,
    /// Who vouches for it.
    pub signatures: BTreeSet<Signature>,
}

impl BuildTrace {
    /// What the newest Nix puts into `build-trace-v2/DRV/OUTPUT.doi` of a binary cache.
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
    /// What an output became, by the hash of its derivation.
    pub(crate) fn realisation(
        &self,
        drv_hash: &str,
        output: &str,
    ) -> Result<Option<Realisation>, StoreError> {
        if !self.has_tables(&["Realisations", "RealisationsRefs"])? {
            return Ok(None);
        }
        // One statement, so that no writer comes between a realisation and its dependencies.
        let rows: Vec<RealisationRow> = self
            .connection
            .prepare_cached(
                "select r.id, o.path, r.signatures, d.drvPath, d.outputName, p.path \
                 from Realisations r join ValidPaths o on o.id = r.outputPath \
                 left join RealisationsRefs x on x.referrer = r.id \
                 left join Realisations d on d.id = x.realisationReference \
                 left join ValidPaths p on p.id = d.outputPath \
                 where r.drvPath = ?1 and r.outputName = ?2 order by r.id",
            )
            .and_then(|mut query| {
                query
                    .query_map([drv_hash, output], RealisationRow::read)?
                    .collect()
            })
            .map_err(self.database_error("looking up a realisation"))?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let dependencies = rows
            .iter()
            // Nix too takes the first, should there be several.
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

    /// What an output became, by its derivation.
    pub(crate) fn build_trace(
        &self,
        drv: &StorePath,
        output: &str,
    ) -> Result<Option<BuildTrace>, StoreError> {
        if !self.has_tables(&["BuildTraceV3"])? {
            return Ok(None);
        }
        let found: Option<(String, Option<String>)> = self
            .connection
            .prepare_cached(
                "select outputPath, signatures from BuildTraceV3 \
                 where drvPath = ?1 and outputName = ?2 order by id limit 1",
            )
            .and_then(|mut query| {
                query
                    .query_row([drv.as_str(), output], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()
            })
            .map_err(self.database_error("looking up a build trace"))?;
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

    fn has_tables(&self, names: &[&str]) -> Result<bool, StoreError> {
        let has = |name: &&str| {
            self.connection
                .prepare_cached("select 1 from sqlite_schema where type = 'table' and name = ?1")
                .and_then(|mut query| query.exists([name]))
        };
        for name in names {
            if !has(name).map_err(self.database_error("looking for tables"))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

struct RealisationRow {
    id: i64,
    out_path: String,
    signatures: String,
    /// Identifier and output, where there is a dependency.
    dependency: Option<(String, String)>,
}

impl RealisationRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<RealisationRow> {
        let drv_hash: Option<String> = row.get(3)?;
        let output: Option<String> = row.get(4)?;
        let path: Option<String> = row.get(5)?;
        Ok(RealisationRow {
            id: row.get(0)?,
            out_path: row.get(1)?,
            signatures: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            dependency: drv_hash
                .zip(output)
                .map(|(drv_hash, output)| format!("{drv_hash}!{output}"))
                .zip(path),
        })
    }
}
