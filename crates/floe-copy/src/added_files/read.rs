//! Reads the contents of files and trees: once for their paths, and once for the copy.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use floe_format::content_address::{ContentAddressError, ContentAddressMethod};
use floe_format::nar::write as nar;
use floe_format::{ContentAddress, Hash, PathInfo, StoreDir};
use floe_hash::{Hasher, Sha256};
use floe_store::tree::{CHUNK_LEN, dump_path};
use floe_store::{StoreError, open_regular_file};
use floe_transfer::{Cancel, Error, WriteChunk};

use super::{AddedFile, FileToAdd};

/// Reads a file or tree, and returns the path that follows from its contents.
pub(super) fn describe(
    file: &FileToAdd,
    dir: &StoreDir,
    cancel: &Cancel,
) -> Result<AddedFile, Error> {
    let name = name_of(file)?;
    let (mut contents, mut nar_hasher) = (Hasher::new(file.algorithm), Sha256::new());
    let mut nar_size = 0;
    // A slash at the end of a symbolic link does not follow it, as for Nix.
    let place: PathBuf = file.file.components().collect();
    let is_flat = file.method != ContentAddressMethod::NixArchive;
    let hash_contents = &mut |bytes: &[u8]| contents.update(bytes);
    read((&place, is_flat), hash_contents, &mut |chunk| {
        if cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        nar_hasher.update(chunk);
        nar_size += chunk.len() as u64;
        Ok(())
    })?;
    let hash = Hash::new(file.algorithm, &contents.finish());
    let hash = hash.map_err(|_| Error::Internal("a hash of a wrong length"))?;
    let method = file.method;
    let ca = ContentAddress { method, hash };
    let path = ca.store_path(dir, &name, &BTreeSet::new(), false);
    let path = path.map_err(|error| {
        let fix = match &error {
            ContentAddressError::Name(_) => "; try floe add --name NAME",
            _ => "",
        };
        not_addable(&place, format!("{error}{fix}"))
    })?;
    let info = PathInfo {
        path,
        nar_hash: Hash::sha256(nar_hasher.finish()),
        nar_size,
        references: BTreeSet::new(),
        deriver: None,
        signatures: BTreeSet::new(),
        ca: Some(ca),
        registration_time: None,
        ultimate: false,
    };
    Ok(AddedFile {
        file: place,
        is_flat,
        info,
    })
}

/// Passes the NAR of a file to `write`.
///
/// Errors: [`StoreError::FileChanged`] if it is not the NAR that was described.
pub(super) fn dump_unchanged(added: &AddedFile, write: &mut WriteChunk<'_>) -> Result<(), Error> {
    let changed = || Error::from(StoreError::FileChanged(added.file.clone()));
    let (mut hasher, mut size) = (Sha256::new(), 0);
    read((&added.file, added.is_flat), &mut |_| (), &mut |chunk| {
        hasher.update(chunk);
        size += chunk.len() as u64;
        // The target would call a file that grows a wrong NAR.
        if size > added.info.nar_size {
            return Err(changed());
        }
        write(chunk)
    })?;
    if Hash::sha256(hasher.finish()) != added.info.nar_hash {
        return Err(changed());
    }
    Ok(())
}

/// Passes the bytes that the content address covers to `hash`, and the NAR to `write`.
fn read(
    (place, is_flat): (&Path, bool),
    hash: &mut dyn FnMut(&[u8]),
    write: &mut WriteChunk<'_>,
) -> Result<(), Error> {
    if is_flat {
        return read_flat(place, hash, write);
    }
    dump_path(place, &mut |chunk| {
        hash(chunk);
        write(chunk)
    })
}

/// Reads a regular file. As in Nix, its NAR keeps whether the file is executable, which the content
/// address does not cover.
fn read_flat(
    place: &Path,
    hash: &mut dyn FnMut(&[u8]),
    write: &mut WriteChunk<'_>,
) -> Result<(), Error> {
    let failed = |action| {
        move |source| Error::File {
            action,
            path: place.to_owned(),
            source,
        }
    };
    let found = fs::symlink_metadata(place).map_err(failed("examine"))?;
    if !found.is_file() {
        let reason = "it is not a regular file; try its NAR, with --mode nar or --recursive";
        return Err(not_addable(place, reason));
    }
    let mut file = open_regular_file(place).map_err(failed("open"))?;
    let found = file.metadata().map_err(failed("examine"))?;
    let (len, is_executable) = (found.len(), found.mode() & 0o100 != 0);
    let mut framing = Vec::new();
    nar::begin(&mut framing);
    nar::begin_file(&mut framing, is_executable, len);
    write(&framing)?;
    let mut chunk = vec![0; CHUNK_LEN];
    let mut left = len;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) if read as u64 > left => {
                return Err(StoreError::FileChanged(place.to_owned()).into());
            }
            Ok(read) => {
                left -= read as u64;
                hash(&chunk[..read]);
                write(&chunk[..read])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read")(error)),
        }
    }
    if left > 0 {
        return Err(StoreError::FileChanged(place.to_owned()).into());
    }
    framing.clear();
    nar::end_file(&mut framing, len);
    write(&framing)
}

/// Returns the name of the store path.
fn name_of(file: &FileToAdd) -> Result<String, Error> {
    if let Some(name) = &file.name {
        return Ok(name.clone());
    }
    let own = |place: &Path| place.file_name().map(OsString::from);
    // `.` and `..` have the name of the directory.
    let resolved = || fs::canonicalize(&file.file).ok().and_then(|it| own(&it));
    let name = own(&file.file).or_else(resolved);
    let name = name.and_then(|name| name.into_string().ok());
    name.ok_or_else(|| not_addable(&file.file, "a store path cannot have its name"))
}

fn not_addable(file: &Path, reason: impl ToString) -> Error {
    Error::NotAddable {
        file: file.to_owned(),
        reason: reason.to_string(),
    }
}
