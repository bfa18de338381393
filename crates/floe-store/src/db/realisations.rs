//! The realisations of outputs. There are two generations of tables. Nix creates them if the
//! experimental feature `ca-derivations` is on, and floe before the first realisation.
//!
//! Up to Nix 2.34, the key of an output is a hash of its derivation (`Realisations`). In the newest
//! Nix, the key is the path of its derivation (`BuildTraceV3`). Neither version reads the other's
//! table. A row of the older table vanishes together with its path; one of the newer table stays.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{DrvKey, DrvOutput, Hash, Realisation, Signature, StorePath};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use super::Database;
use super::write::path_id;
use crate::error::{RealisationRefusal, StoreError};

impl Database {
    /// Returns the realisation of an output.
    pub(crate) fn realisation(&self, id: &DrvOutput) -> Result<Option<Realisation>, StoreError> {
        match id.key() {
            DrvKey::Hash(hash) => self.realisation_by_hash(id, hash),
            DrvKey::Path(derivation) => self.realisation_by_path(id, derivation),
        }
    }

    fn realisation_by_hash(
        &self,
        id: &DrvOutput,
        hash: &Hash,
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
            let rows = query.query_map([&hash.to_base16(), id.name()], RealisationRow::read)?;
            rows.collect()
        })?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let parse_id =
            |text: &str| DrvOutput::parse(text).map_err(|error| self.unreadable(text, &error));
        let dependencies = rows
            .iter()
            // If there are several realisations, Nix uses the first as well.
            .take_while(|row| row.id == first.id)
            .filter_map(|row| row.dependency.as_ref())
            .map(|(id, path)| Ok((parse_id(id)?, self.parse_path(path)?)))
            .collect::<Result<_, StoreError>>()?;
        Ok(Some(Realisation {
            out_path: self.parse_path(&first.out_path)?,
            signatures: self.parse_signatures(&id.to_string(), &first.signatures)?,
            dependent_realisations: dependencies,
            id: id.clone(),
        }))
    }

    fn realisation_by_path(
        &self,
        id: &DrvOutput,
        derivation: &StorePath,
    ) -> Result<Option<Realisation>, StoreError> {
        if !self.has_table("BuildTraceV3")? {
            return Ok(None);
        }
        let text = "select outputPath, signatures from BuildTraceV3 \
             where drvPath = ?1 and outputName = ?2 order by id limit 1";
        let found = self.query("look up a realisation in", text, |query| {
            let read = |row: &Row<'_>| <(String, Option<String>)>::try_from(row);
            query
                .query_row([derivation.as_str(), id.name()], read)
                .optional()
        })?;
        let Some((out_path, signatures)) = found else {
            return Ok(None);
        };
        Ok(Some(Realisation {
            out_path: self.parse_path(&out_path)?,
            signatures: self.parse_signatures(&id.to_string(), &signatures.unwrap_or_default())?,
            dependent_realisations: BTreeMap::new(),
            id: id.clone(),
        }))
    }

    /// Registers realisations in one transaction, dependencies first. If one has a row for the same
    /// path, the row gets its signatures too.
    ///
    /// Errors leave the database unchanged: also [`RealisationRefusal`].
    pub(crate) fn register_realisations(
        &self,
        realisations: &[Realisation],
    ) -> Result<(), StoreError> {
        let error = |source| super::database_error("register realisations in", &self.file, source);
        let behavior = TransactionBehavior::Immediate;
        self.retry_when_full(|| {
            let transaction = Transaction::new_unchecked(&self.connection, behavior);
            let transaction = transaction.map_err(error)?;
            for realisation in realisations {
                let schema = match realisation.id.key() {
                    DrvKey::Hash(_) => SCHEMA_BY_HASH,
                    DrvKey::Path(_) => SCHEMA_BY_PATH,
                };
                transaction.execute_batch(schema).map_err(error)?;
                let known = self.realisation(&realisation.id)?;
                if let Some(known) = &known
                    && known.out_path != realisation.out_path
                {
                    return Err(refused(RealisationRefusal::Conflict {
                        id: realisation.id.clone(),
                        known: known.out_path.clone(),
                        new: realisation.out_path.clone(),
                    }));
                }
                let written = match known {
                    Some(mut known) => {
                        known.signatures.extend(realisation.signatures.clone());
                        update_signatures(&transaction, &known).map(|()| true)
                    }
                    None => self.insert(&transaction, realisation),
                };
                if !written.map_err(error)? {
                    return Err(refused(RealisationRefusal::NotValid {
                        id: realisation.id.clone(),
                        path: realisation.out_path.clone(),
                    }));
                }
            }
            transaction.commit().map_err(error)
        })
    }

    /// Inserts a realisation. Returns `false` if its path is not valid, or a dependency is not
    /// registered.
    fn insert(&self, connection: &Connection, realisation: &Realisation) -> rusqlite::Result<bool> {
        let out_path = self.layout.store_dir.full_path(&realisation.out_path);
        let Some(path_row) = path_id(connection, &out_path)? else {
            return Ok(false);
        };
        let (key, name) = row_key(&realisation.id);
        let signatures = joined(&realisation.signatures);
        if let DrvKey::Path(_) = realisation.id.key() {
            let text = "insert into BuildTraceV3 (drvPath, outputName, outputPath, signatures) \
                 values (?1, ?2, ?3, ?4)";
            connection.execute(text, params![key, name, out_path, signatures])?;
            return Ok(true);
        }
        let text = "insert into Realisations (drvPath, outputName, outputPath, signatures) \
             values (?1, ?2, ?3, ?4)";
        connection.execute(text, params![key, name, path_row, signatures])?;
        let row = connection.last_insert_rowid();
        for (dependency, path) in &realisation.dependent_realisations {
            let (key, name) = row_key(dependency);
            let text = "insert into RealisationsRefs (referrer, realisationReference) \
                 select ?1, d.id from Realisations d join ValidPaths p on p.id = d.outputPath \
                 where d.drvPath = ?2 and d.outputName = ?3 and p.path = ?4 limit 1";
            let path = self.layout.store_dir.full_path(path);
            if connection.execute(text, params![row, key, name, path])? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_table(&self, name: &str) -> Result<bool, StoreError> {
        let text = "select 1 from sqlite_schema where type = 'table' and name = ?1";
        self.query("look for tables in", text, |query| query.exists([name]))
    }
}

fn refused(refusal: RealisationRefusal) -> StoreError {
    Box::new(refusal).into()
}

fn update_signatures(connection: &Connection, known: &Realisation) -> rusqlite::Result<()> {
    let text = match known.id.key() {
        DrvKey::Hash(_) => {
            "update Realisations set signatures = ?3 where drvPath = ?1 and outputName = ?2"
        }
        DrvKey::Path(_) => {
            "update BuildTraceV3 set signatures = ?3 where drvPath = ?1 and outputName = ?2"
        }
    };
    let (key, name) = row_key(&known.id);
    connection.execute(text, params![key, name, joined(&known.signatures)])?;
    Ok(())
}

/// Returns the columns `drvPath` and `outputName`.
fn row_key(id: &DrvOutput) -> (String, &str) {
    let key = match id.key() {
        DrvKey::Hash(hash) => hash.to_base16(),
        DrvKey::Path(path) => path.to_string(),
    };
    (key, id.name())
}

/// Returns the column `signatures`.
fn joined(signatures: &BTreeSet<Signature>) -> String {
    let texts: Vec<String> = signatures.iter().map(ToString::to_string).collect();
    texts.join(" ")
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

/// The tables up to Nix 2.34.
const SCHEMA_BY_HASH: &str = include_str!("realisations_by_hash.sql");

/// The table of later versions.
const SCHEMA_BY_PATH: &str = include_str!("realisations_by_path.sql");
