//! Access to foreign memory.

use std::ffi::{c_char, c_void};
use std::ptr;

use super::structs::{FloeCompletion, FloeEngineOptions, FloeRequest};
use crate::status::{Fail, invalid};

/// A struct that begins with its size, so that it can grow.
///
/// # Safety
///
/// All zero bytes are a valid value, and the first field is `struct_size: usize`.
pub(super) unsafe trait Versioned: Copy {
    /// Its size in the first version of the ABI.
    const LEAST: usize;
}

// SAFETY: null pointers, absent functions and zeros are valid.
unsafe impl Versioned for FloeEngineOptions {
    const LEAST: usize = 64;
}
// SAFETY: as above.
unsafe impl Versioned for FloeRequest {
    const LEAST: usize = 72;
}
// SAFETY: as above.
unsafe impl Versioned for FloeCompletion {
    const LEAST: usize = 64;
}

pub(super) fn null(name: &str) -> Fail {
    invalid(format!("{name} is NULL"))
}

/// Returns the size that a struct claims.
///
/// # Safety
///
/// `from` is NULL or points to a `size_t`.
pub(super) unsafe fn struct_size<T: Versioned>(from: *const T, name: &str) -> Result<usize, Fail> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, and the caller guarantees the rest.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    check_size::<T>(size, name)?;
    Ok(size)
}

/// Checks the size that a struct claims.
pub(super) fn check_size<T: Versioned>(size: usize, name: &str) -> Result<(), Fail> {
    if size < T::LEAST || size > SIZE_MAX {
        let text = format!(
            "invalid struct_size {size} of {name}; set it to sizeof({name}), which is at least {}",
            T::LEAST
        );
        return Err(invalid(text));
    }
    Ok(())
}

/// Copies a struct of a host that may be older or newer than this library.
///
/// # Safety
///
/// `from` is NULL or points to as many bytes as its first field says.
#[inline]
pub(super) unsafe fn read_struct<T: Versioned>(from: *const T, name: &str) -> Result<T, Fail> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { struct_size(from, name)? };
    if size == size_of::<T>() {
        // SAFETY: as above; every field is plain data.
        return Ok(unsafe { from.read_unaligned() });
    }
    // SAFETY: zero bytes are a valid value, as the trait guarantees.
    let mut value: T = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<T>());
    // SAFETY: both have at least that many bytes.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast(), known) };
    for at in known..size {
        // SAFETY: the caller guarantees `size` bytes.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let text = format!("{name} has a field that this version of libfloe does not support");
            return Err(invalid(text));
        }
    }
    Ok(value)
}

/// Writes the fields of a struct that fit into `size` bytes.
///
/// # Safety
///
/// `to` points to `size` writable bytes, and `size` is at least `T::LEAST`.
pub(super) unsafe fn write_struct<T: Versioned>(to: *mut c_void, size: usize, value: T) {
    let known = size.min(size_of::<T>());
    // SAFETY: both have at least that many bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast(), known) };
}

/// Writes one value.
///
/// # Safety
///
/// `to` is NULL or points to a writable value.
pub(super) unsafe fn write<T>(to: *mut T, value: T, name: &str) -> Result<(), Fail> {
    if to.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, and the caller guarantees the rest.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Borrows bytes from the host until the call returns.
///
/// # Safety
///
/// `from` points to `len` bytes, or is NULL if `len` is 0.
#[inline]
pub(super) unsafe fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Fail> {
    match (from.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null("payload")),
        // SAFETY: guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) }),
    }
}

/// Writes a text with a NUL, cut to `capacity`.
///
/// # Safety
///
/// `to` points to `capacity` writable bytes, or is NULL.
pub(super) unsafe fn write_text(text: &str, to: *mut c_char, capacity: usize) {
    if to.is_null() || capacity == 0 {
        return;
    }
    let mut len = text.len().min(capacity - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: `len + 1` is at most `capacity`.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), len);
        to.add(len).write(0);
    }
}

/// No struct will ever be that large, so such a size was never set.
const SIZE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_never_shrink_below_first_version() {
        assert!(size_of::<FloeEngineOptions>() >= FloeEngineOptions::LEAST);
        assert!(size_of::<FloeRequest>() >= FloeRequest::LEAST);
        assert!(size_of::<FloeCompletion>() >= FloeCompletion::LEAST);
    }
}
