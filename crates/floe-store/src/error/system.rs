//! The meaning of errors of the system.

use std::io;

use rustix::io::Errno;

/// Whether an error has one of these numbers.
pub(super) fn is_errno(error: &io::Error, numbers: &[Errno]) -> bool {
    let found = error.raw_os_error();
    found.is_some_and(|found| numbers.iter().any(|number| number.raw_os_error() == found))
}

/// Whether the error concerns the disk, the file system or this process as a whole instead of one
/// file.
pub(crate) fn is_system_wide(error: &io::Error) -> bool {
    const SYSTEM_WIDE: [Errno; 5] = [
        Errno::IO,
        Errno::ROFS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    is_out_of_space(error) || is_errno(error, &SYSTEM_WIDE)
}

/// Whether an error of the system means that there is no space left.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether a file does not exist.
pub(crate) fn is_not_found<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::NotFound)
}
