//! A temporary file for the bytes of a file whose number is not known: its NAR begins with it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use floe_format::nar::write as nar;

use crate::error::HostError;
use crate::stream::ReadNar;

/// Writes the bytes of a file to a temporary file in `directory`: its NAR begins with their number.
/// The file has no name, so that nothing is left of it.
pub(crate) fn spool(
    directory: &Path,
    read: &mut ReadNar<'_>,
    hash: &mut dyn FnMut(&[u8]),
) -> Result<File, HostError> {
    let failed = |source| HostError::Spool { source };
    let mut file = tempfile::tempfile_in(directory).map_err(failed)?;
    read(&mut |chunk| {
        hash(chunk);
        file.write_all(chunk).map_err(failed)
    })?;
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// Passes the NAR of a file to `write`.
pub(crate) fn write_file_nar(
    file: &mut File,
    write: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
) -> Result<(), HostError> {
    let failed = |source| HostError::Spool { source };
    let len = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    nar::begin(&mut bytes);
    nar::begin_file(&mut bytes, false, len);
    write(&bytes)?;
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => break,
            len => write(&chunk[..len])?,
        }
    }
    bytes.clear();
    nar::end_file(&mut bytes, len);
    write(&bytes)
}

const CHUNK_LEN: usize = 256 * 1024;
