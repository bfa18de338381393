//! The rows that floe writes to an existing database, and deletes from it: those of paths.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::{PathInfo, SecretKey, Signature, StorePath};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Statement, Transaction, TransactionBehavior,
    params,
};

use super::Database;
use crate::error::StoreError;

impl Database {
    /// Registers paths in one transaction, references first. Each reference must be valid or among
    /// `paths`.
    ///
    /// Returns how many paths it has registered: all; the first ones if the disk has no space for
    /// more; or none if a reference is no longer valid. No collector can delete a reference of a
    /// registered path: it checks for referrers in a transaction of its own before each deletion.
    ///
    /// Errors leave the database unchanged.
    pub(crate) fn register(&self, paths: &[Registration<'_>]) -> Result<usize, StoreError> {
        let error = |source| super::database_error("register paths in", &self.file, source);
        let mut count = paths.len();
        let mut no_space: Option<StoreError> = None;
        loop {
            let register = || self.try_register(&paths[..count]).map_err(error);
            match (self.retry_when_full(register), no_space.take()) {
                (Ok(true), _) => return Ok(count),
                // The order of the paths allows no smaller transaction.
                (Ok(false), Some(error)) => return Err(error),
                (Ok(false), None) => return Ok(0),
                (Err(error), _) if error.is_out_of_space() && count > 1 => {
                    count /= 2;
                    no_space = Some(error);
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Replaces the metadata of a valid path after its contents were replaced, as Nix does
    /// (`updatePathInfo`). The row keeps its number, its references and its deriver.
    pub(crate) fn update(&self, info: &PathInfo) -> Result<(), StoreError> {
        let text = "update ValidPaths set narSize = ?2, hash = ?3, ultimate = ?4, sigs = ?5, \
             ca = ?6 where path = ?1";
        let update = |query: &mut Statement<'_>| {
            query.execute(params![
                self.layout.store_dir.full_path(&info.path),
                i64::try_from(info.nar_size).ok().filter(|size| *size != 0),
                info.nar_hash.to_base16(),
                info.ultimate.then_some(1),
                signatures(info),
                info.ca.as_ref().map(ToString::to_string),
            ])
        };
        self.retry_when_full(|| self.query("update a path in", text, update))?;
        Ok(())
    }

    /// Adds signatures by keys to paths, in one transaction.
    ///
    /// Errors leave the database unchanged.
    pub(crate) fn sign(
        &self,
        paths: &[StorePath],
        keys: &[SecretKey],
    ) -> Result<Vec<Signing>, StoreError> {
        let dir = &self.layout.store_dir;
        let add = |info: &mut PathInfo| {
            keys.iter().for_each(|key| info.sign(dir, key));
            Ok(())
        };
        self.change_signatures(paths, &add)
    }

    /// Adds signatures to a path, and returns what that did.
    pub(crate) fn add_signatures(
        &self,
        path: &StorePath,
        signatures: &BTreeSet<Signature>,
    ) -> Result<Signing, StoreError> {
        let add = |info: &mut PathInfo| {
            info.signatures.extend(signatures.iter().cloned());
            Ok(())
        };
        let done = self.change_signatures(std::slice::from_ref(path), &add)?;
        Ok(done.into_iter().next().unwrap_or(Signing::Absent))
    }

    /// Adds the signatures of other descriptions of paths, in one transaction. A path gets none if
    /// a fact that they cover is another one here.
    ///
    /// Errors leave the database unchanged.
    pub(crate) fn merge_signatures(&self, infos: &[PathInfo]) -> Result<Vec<Signing>, StoreError> {
        let by_path: BTreeMap<&StorePath, &PathInfo> =
            infos.iter().map(|info| (&info.path, info)).collect();
        let add = |info: &mut PathInfo| {
            let Some(other) = by_path.get(&info.path) else {
                return Ok(());
            };
            if let Some(what) = other.signed_difference(info) {
                return Err(what);
            }
            info.signatures.extend(other.signatures.iter().cloned());
            Ok(())
        };
        let paths: Vec<StorePath> = infos.iter().map(|info| info.path.clone()).collect();
        self.change_signatures(&paths, &add)
    }

    fn change_signatures(
        &self,
        paths: &[StorePath],
        add: &AddSignatures<'_>,
    ) -> Result<Vec<Signing>, StoreError> {
        let error = |source| super::database_error("sign paths in", &self.file, source);
        let behavior = TransactionBehavior::Immediate;
        self.retry_when_full(|| {
            let transaction = Transaction::new_unchecked(&self.connection, behavior);
            let transaction = transaction.map_err(error)?;
            let signed = paths
                .iter()
                .map(|path| self.change_signatures_of(path, add));
            let signed = signed.collect::<Result<_, StoreError>>()?;
            transaction.commit().map_err(error)?;
            Ok(signed)
        })
    }

    fn change_signatures_of(
        &self,
        path: &StorePath,
        add: &AddSignatures<'_>,
    ) -> Result<Signing, StoreError> {
        let mut info = match self.path_info_or_damaged_row(path)? {
            Some(Ok(info)) => info,
            Some(Err(row)) => return Ok(Signing::DamagedRow(row.reason)),
            None => return Ok(Signing::Absent),
        };
        if info.nar_size == 0 {
            return Ok(Signing::NoNarSize);
        }
        let before = info.signatures.len();
        if let Err(what) = add(&mut info) {
            return Ok(Signing::Different(what));
        }
        if info.signatures.len() == before {
            return Ok(Signing::Present);
        }
        let text = "update ValidPaths set sigs = ?2 where path = ?1";
        let path = self.layout.store_dir.full_path(path);
        self.query("sign a path in", text, |query| {
            query.execute(params![path, signatures(&info)])
        })?;
        Ok(Signing::Added)
    }

    /// Deletes the rows of paths in one transaction, referrers first. Returns for each path whether
    /// it may be removed: another path may refer to it by now, which keeps it.
    ///
    /// Errors leave the database unchanged.
    pub(crate) fn delete(&self, rows: &[(i64, &StorePath)]) -> Result<Vec<bool>, StoreError> {
        let error = |source| super::database_error("delete paths from", &self.file, source);
        self.retry_when_full(|| self.try_delete(rows).map_err(error))
    }

    fn try_delete(&self, rows: &[(i64, &StorePath)]) -> rusqlite::Result<Vec<bool>> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let mut is_removable = Vec::with_capacity(rows.len());
        let mut delete = transaction.prepare_cached("delete from ValidPaths where id = ?1")?;
        for (row, path) in rows {
            is_removable.push(match delete.execute([row]) {
                // Another process has deleted the row. The path may have a new one.
                Ok(0) => path_id(&transaction, &self.layout.store_dir.full_path(path))?.is_none(),
                Ok(_) => true,
                // The schema allows no reference to a path without a row. The path also stays if
                // the realisation of another derivation depends on it.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                    false
                }
                Err(error) => return Err(error),
            });
        }
        drop(delete);
        transaction.commit()?;
        Ok(is_removable)
    }

    fn try_register(&self, paths: &[Registration<'_>]) -> rusqlite::Result<bool> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let print = |path: &StorePath| self.layout.store_dir.full_path(path);
        let mut ids = HashMap::new();
        for registration in paths {
            let id = insert_path(&transaction, registration, &print)?;
            ids.insert(&registration.info.path, id);
        }
        for registration in paths {
            let info = registration.info;
            let referrer = ids[&info.path];
            for reference in &info.references {
                let reference_id = match ids.get(reference) {
                    Some(id) => Some(*id),
                    None => path_id(&transaction, &print(reference))?,
                };
                let Some(reference_id) = reference_id else {
                    transaction.rollback()?;
                    return Ok(false);
                };
                transaction
                    .prepare_cached(INSERT_REFERENCE)?
                    .execute([referrer, reference_id])?;
            }
        }
        transaction.commit()?;
        Ok(true)
    }
}

/// The result of a request for signatures of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signing {
    /// It has got a signature.
    Added,
    /// It had all of them.
    Present,
    /// It is not valid.
    Absent,
    /// The database does not know its NAR size, which a signature covers.
    NoNarSize,
    /// The database has another value of this fact, which a signature covers.
    Different(&'static str),
    /// Its row does not parse, for this reason.
    DamagedRow(String),
}

/// Adds signatures to a path, or returns the fact that forbids them.
type AddSignatures<'a> = dyn Fn(&mut PathInfo) -> Result<(), &'static str> + 'a;

/// A path to register.
pub(crate) struct Registration<'a> {
    pub(crate) info: &'a PathInfo,
    /// For a derivation: the identifiers and paths of its outputs.
    pub(crate) outputs: Vec<(String, StorePath)>,
}

pub(super) fn insert_path(
    connection: &Connection,
    registration: &Registration<'_>,
    print: &dyn Fn(&StorePath) -> String,
) -> rusqlite::Result<i64> {
    let info = registration.info;
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
            signatures(info),
            info.ca.as_ref().map(ToString::to_string),
        ])?;
    let id = connection.last_insert_rowid();
    insert_outputs(connection, id, registration, print)?;
    Ok(id)
}

/// Inserts the outputs of a derivation with the row number `id`.
pub(super) fn insert_outputs(
    connection: &Connection,
    id: i64,
    registration: &Registration<'_>,
    print: &dyn Fn(&StorePath) -> String,
) -> rusqlite::Result<()> {
    for (output, path) in &registration.outputs {
        let text = "insert or replace into DerivationOutputs (drv, id, path) values (?1, ?2, ?3)";
        let mut insert = connection.prepare_cached(text)?;
        insert.execute(params![id, output, print(path)])?;
    }
    Ok(())
}

/// Returns the signatures as the database stores them.
pub(super) fn signatures(info: &PathInfo) -> Option<String> {
    let signatures: Vec<String> = info.signatures.iter().map(ToString::to_string).collect();
    (!signatures.is_empty()).then(|| signatures.join(" "))
}

pub(super) fn path_id(connection: &Connection, path: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(super::PATH_ID)?
        .query_row([path], |row| row.get(0))
        .optional()
}

/// Seconds since 1970, the unit of Nix's registration time.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

pub(super) const INSERT_REFERENCE: &str =
    "insert or replace into Refs (referrer, reference) values (?1, ?2)";

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::{Hash, StoreDir};

    use super::*;
    use crate::db::MissingTables;
    use crate::disk::StoreLayout;
    use crate::options::WriteOptions;

    /// The paths of a chain, in which each refers to the one before.
    fn chain(len: usize) -> Vec<PathInfo> {
        let path = |number| StorePath::parse(&format!("{}-{number}", "0".repeat(32))).unwrap();
        let info = |number: usize| PathInfo {
            path: path(number),
            nar_hash: Hash::sha256([0; 32]),
            nar_size: 1,
            references: number.checked_sub(1).map(path).into_iter().collect(),
            deriver: None,
            signatures: Default::default(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        (0..len).map(info).collect()
    }

    fn registrations(infos: &[PathInfo]) -> Vec<Registration<'_>> {
        let registration = |info| Registration {
            info,
            outputs: Vec::new(),
        };
        infos.iter().map(registration).collect()
    }

    /// SQLite's limit of pages stands for the full disk: the error is the same.
    #[test]
    fn first_paths_are_registered_if_not_all_fit() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        let database = Database::open_writable(
            &layout,
            &WriteOptions::default().database(MissingTables::Create),
        )
        .unwrap();
        let connection = &database.connection;
        let pages: i64 = connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        let limit = format!("pragma max_page_count = {}", pages + 20);
        connection.query_row(&limit, (), |_| Ok(())).unwrap();
        let infos = chain(1000);
        let mut registered = 0;
        let error = loop {
            match database.register(&registrations(&infos[registered..])) {
                Ok(0) => panic!("no path and no error after {registered}"),
                Ok(count) => registered += count,
                Err(error) => break error,
            }
        };
        assert!(error.is_out_of_space(), "{error}");
        assert!((1..1000).contains(&registered), "{registered}");
        assert_eq!(database.valid_paths().unwrap().len(), registered);
        // Referrers first: no smaller transaction is possible, and the database stays as it is.
        let mut rest: Vec<PathInfo> = infos[registered..].to_vec();
        rest.reverse();
        let error = database.register(&registrations(&rest)).unwrap_err();
        assert!(error.is_out_of_space(), "{error}");
        assert_eq!(database.valid_paths().unwrap().len(), registered);
    }
}
