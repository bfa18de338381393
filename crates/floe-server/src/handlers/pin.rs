//! `/pins/NAME` and `/pins-info`: the pins of a binary cache in a directory.

use std::io::{self, Read as _};
use std::path::Path;

use floe_format::base16;
use floe_format::pin::{PIN_LEN_MAX, is_pin_name};
use floe_hash::sha256;
use floe_store::{StoreError, list_directory, open_regular_file};

use crate::context::Context;
use crate::error::ServeError;
use crate::http::response::{Response, etag_matches};

/// Checks that the directory of the pins exists, so that a wrong name does not look like a cache
/// whose pins were deleted.
///
/// Errors: [`ServeError::Io`].
pub(crate) fn check_pins(directory: &Path) -> Result<(), ServeError> {
    match list_directory(directory) {
        Ok(_) => Ok(()),
        Err(source) => Err(ServeError::Io {
            action: "serve the pins of the cache in",
            path: directory.to_owned(),
            source,
        }),
    }
}

/// Responds with a pin, or with the names of all pins.
pub(crate) fn respond(context: &Context, name: &str, if_none_match: Option<&str>) -> Response {
    let Some(directory) = &context.pins else {
        return Response::not_found("no such pin\n");
    };
    let directory = directory.join("pins");
    let found = if name.is_empty() {
        names(&directory).map(Some)
    } else {
        read(&directory.join(name))
    };
    text_response(context, found, (&directory.join(name), if_none_match))
}

/// Responds with the identifier of the cache that has the pins.
pub(crate) fn respond_info(context: &Context, if_none_match: Option<&str>) -> Response {
    let Some(directory) = &context.pins else {
        return Response::not_found("no pins\n");
    };
    let file = directory.join("pins-info");
    text_response(context, read(&file), (&file, if_none_match))
}

/// Responds with a small file, whose `ETag` is the hash of its contents, as the version of an
/// object is in a cache in a directory.
fn text_response(
    context: &Context,
    found: io::Result<Option<String>>,
    (path, if_none_match): (&Path, Option<&str>),
) -> Response {
    match found {
        Ok(Some(contents)) => {
            let etag = format!("\"{}\"", base16::encode(&sha256(contents.as_bytes())));
            let fields = format!("{FIELDS}ETag: {etag}\r\n");
            if etag_matches(if_none_match, &etag) {
                Response::not_modified(fields)
            } else {
                Response::text(200, fields, contents)
            }
        }
        Ok(None) => Response::not_found("no such pin\n"),
        Err(source) => context.error_response(&StoreError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Reads a pin. Returns `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match open_regular_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut contents = String::new();
    file.take(PIN_LEN_MAX as u64 + 1)
        .read_to_string(&mut contents)?;
    if contents.len() > PIN_LEN_MAX {
        return Err(io::Error::other(format!(
            "it has more than {PIN_LEN_MAX} bytes"
        )));
    }
    Ok(Some(contents))
}

/// Returns the names of all pins, one in each line.
fn names(directory: &Path) -> io::Result<String> {
    let entries = match list_directory(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        names.extend(
            name.to_str()
                .filter(|name| is_pin_name(name))
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names.iter().map(|name| format!("{name}\n")).collect())
}

const FIELDS: &str = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-cache\r\n";
