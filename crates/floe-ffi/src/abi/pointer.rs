//! Foreign memory, read and written.

use std::ffi::{c_char, c_void};
use std::ptr;

use super::status::{Fail, Status, fail};
use super::structs::{FloeCompletion, FloeEngineOptions, FloeRequest};

/// A struct that begins with its size, so that it can grow.
///
/// # Safety
///
/// All zero bytes are a value of it, and its first field is `struct_size: usize`.
pub(super) unsafe trait Versioned: Copy {
    /// Its size in the first version of the ABI.
    const LEAST: usize;
}

// SAFETY: pointers, options of functions and numbers are all good as zero.
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

fn null(name: &str) -> Fail {
    fail(Status::Invalid, format!("{name} is NULL"))
}

/// The size that a struct says it has.
///
/// # Safety
///
/// `from` is NULL or points to a `size_t`.
pub(super) unsafe fn struct_size<T: Versioned>(from: *const T, name: &str) -> Result<usize, Fail> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, and the caller promises the rest.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    check_size::<T>(size, name)?;
    Ok(size)
}

fn check_size<T: Versioned>(size: usize, name: &str) -> Result<(), Fail> {
    if size < T::LEAST || size > SIZE_MAX {
        let text = format!(
            "the struct_size of {name} is {size}: set it to sizeof({name}), which is at least {}",
            T::LEAST
        );
        return Err(fail(Status::Invalid, text));
    }
    Ok(())
}

/// Copies a struct whose host may be older or newer than this library.
///
/// # Safety
///
/// `from` is NULL or points to as many bytes as its first field says.
#[inline]
pub(super) unsafe fn read_struct<T: Versioned>(from: *const T, name: &str) -> Result<T, Fail> {
    // SAFETY: the caller promises it.
    let size = unsafe { struct_size(from, name)? };
    if size == size_of::<T>() {
        // SAFETY: as above; every field is plain data.
        return Ok(unsafe { from.read_unaligned() });
    }
    // SAFETY: zero bytes are a value, as the trait promises.
    let mut value: T = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<T>());
    // SAFETY: both have as many bytes.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast(), known) };
    for at in known..size {
        // SAFETY: the caller promises `size` bytes.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let text = format!("{name} asks for something that this version of libfloe has not");
            return Err(fail(Status::Invalid, text));
        }
    }
    Ok(value)
}

/// Writes as much of a struct as there is room for.
///
/// # Safety
///
/// `to` points to `size` writable bytes, and `size` is at least the least size.
pub(super) unsafe fn write_struct<T: Versioned>(to: *mut c_void, size: usize, value: T) {
    let known = size.min(size_of::<T>());
    // SAFETY: both have as many bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast(), known) };
}

/// Whether an array can be one.
pub(super) fn check_array<T: Versioned>(
    to: *mut c_void,
    struct_size: usize,
    capacity: usize,
) -> Result<(), Fail> {
    check_size::<T>(struct_size, "floe_completion")?;
    if to.is_null() && capacity > 0 {
        return Err(null("out"));
    }
    Ok(())
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
    // SAFETY: it is not NULL, and the caller promises the rest.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// The bytes that a host lends until the call returns.
///
/// # Safety
///
/// `from` points to `len` bytes, or is NULL where `len` is 0.
#[inline]
pub(super) unsafe fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Fail> {
    match (from.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null("payload")),
        // SAFETY: the caller promises it.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) }),
    }
}

/// Writes a text with a NUL behind it, as much of it as there is room for.
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

/// No struct will ever be so large: such a size was never set.
const SIZE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_struct_is_smaller_than_in_the_first_version() {
        assert!(size_of::<FloeEngineOptions>() >= FloeEngineOptions::LEAST);
        assert!(size_of::<FloeRequest>() >= FloeRequest::LEAST);
        assert!(size_of::<FloeCompletion>() >= FloeCompletion::LEAST);
    }
}
