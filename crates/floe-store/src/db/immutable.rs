//! Opens a database without locks, as a file that does not change.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// Opens a file that does not change while it is open.
pub(super) fn open_immutable(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(immutable_uri(file), flags)
}

fn immutable_uri(file: &Path) -> String {
    // The host is empty, because a path may begin with two slashes.
    let mut uri = String::from(if file.is_absolute() {
        "file://"
    } else {
        "file:"
    });
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}
