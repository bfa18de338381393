//! The one change floe makes to a database: registering paths.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::{PathInfo, StorePath};
use rusqlite::{Connection, TransactionBehavior, params};

use super::Database;
use crate::error::StoreError;

impl Database {
    /// Registers paths in one transaction. Every reference must be valid already or be among
    /// them; a derivation comes with the paths of its outputs.
    ///
    /// Errors leave the database as it was.
    pub(crate) fn register(&mut self, paths: &[Registration<'_>]) -> Result<(), StoreError> {
        let store_dir = self.layout.store_dir.clone();
        let file = self.file.clone();
        let failed = |source| super::failed("registering paths", &file, source);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let mut ids = HashMap::new();
        for registration in paths {
            let print = |path: &StorePath| store_dir.print(path);
            let id = insert_path(&transaction, registration, &print).map_err(failed)?;
            ids.insert(&registration.info.path, id);
        }
        for registration in paths {
            let info = registration.info;
            let referrer = ids[&info.path];
            for reference in &info.references {
                let known = ids.get(reference).copied();
                insert_reference(&transaction, referrer, known, &store_dir.print(reference))
                    .map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }
}

/// A path to be registered.
pub(crate) struct Registration<'a> {
    pub(crate) info: &'a PathInfo,
    /// For a derivation: the identifiers and paths of its outputs.
    pub(crate) outputs: Vec<(String, StorePath)>,
}

fn insert_path(
    connection: &Connection,
    registration: &Registration<'_>,
    print: &dyn Fn(&StorePath) -> String,
) -> rusqlite::Result<i64> {
    let info = registration.info;
    let signatures: Vec<String> = info.signatures.iter().map(ToString::to_string).collect();
    connection
        .prepare_cached(
            "insert into ValidPaths \
             (path, hash, registrationTime, deriver, narSize, ultimate, sigs, ca) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            print(&info.path),
            info.nar_hash.to_base16(),
            i64::try_from(info.registration_time.unwrap_or_else(now)).unwrap_or(i64::MAX),
            info.deriver.as_ref().map(print),
            i64::try_from(info.nar_size).ok().filter(|size| *size != 0),
            info.ultimate.then_some(1),
            (!signatures.is_empty()).then(|| signatures.join(" ")),
            info.ca.as_ref().map(ToString::to_string),
        ])?;
    let id = connection.last_insert_rowid();
    for (output, path) in &registration.outputs {
        connection
            .prepare_cached(
                "insert or replace into DerivationOutputs (drv, id, path) values (?1, ?2, ?3)",
            )?
            .execute(params![id, output, print(path)])?;
    }
    Ok(id)
}

/// `reference` is the row of the reference where the caller knows it; otherwise the row is
/// looked up, and its absence fails the insertion because the column may not be null.
fn insert_reference(
    connection: &Connection,
    referrer: i64,
    reference: Option<i64>,
    reference_path: &str,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "insert or replace into Refs (referrer, reference) \
             values (?1, coalesce(?2, (select id from ValidPaths where path = ?3)))",
        )?
        .execute(params![referrer, reference, reference_path])?;
    Ok(())
}

/// Seconds since 1970, as Nix stamps a registration.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}
