//! Reads the netrc files, which have the user's logins. `request/auth` finds the login of a host.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use floe_format::Netrc;
use floe_store::open_regular_file;
use floe_transfer::Error;

use crate::error::file_error;

/// Reads netrc files, and returns the errors of those that cannot be used. Ignores absent files, as
/// curl does: most requests need no credentials.
pub(super) fn read_netrc_files(files: &[PathBuf]) -> (Vec<Netrc>, Vec<Error>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for file in files {
        let text = read(file);
        match text.and_then(|text| Netrc::parse(&text).map_err(io::Error::other)) {
            Ok(netrc) => found.push(netrc),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => errors.push(file_error("read the netrc file", file)(error)),
        }
    }
    (found, errors)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open_regular_file(file)?.read_to_end(&mut text)?;
    Ok(text)
}
