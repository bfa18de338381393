//! The boundary to C: checks and copies pointers, and catches panics.
//!
//! include/floe.h is written by hand and describes each function; a test compares it with this
//! file. `structs` has the structs and numbers of the header. `options` and `request` convert
//! them. `sink` receives NARs, and `pointer` reads and writes foreign memory.
#![expect(unsafe_code, reason = "C passes pointers")]

mod options;
mod pointer;
mod request;
mod sink;
mod structs;

use std::ffi::{c_char, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use crate::callback::Callback;
use crate::engine::{self, Delivery, Shared, new_id};
use crate::status::{self, Fail, guard, invalid};
use crate::{fork, handlers};

pub use crate::status::Status;
pub use structs::{
    FloeCallback, FloeCompletion, FloeEngineOptions, FloeRequest, FloeSink, HAS_DESCRIPTOR,
    WANTS_PROGRESS,
};

/// Returns the version of this ABI: major in the upper 16 bits, minor in the lower. A host must
/// reject another major version.
#[unsafe(no_mangle)]
pub extern "C" fn floe_abi_version() -> u32 {
    ABI_VERSION
}

/// Returns the version of floe as a text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the hash of the message schema.
#[unsafe(no_mangle)]
pub extern "C" fn floe_schema_hash() -> u64 {
    floe_messages::SCHEMA_HASH
}

/// Returns the description of a status as a text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_status_text(status: i32) -> *const c_char {
    status::text(status).as_ptr()
}

/// Copies the error text of this thread's last failed call, NUL-terminated and cut to `capacity`.
/// Returns the length of the whole text without the NUL.
///
/// # Safety
///
/// `out` points to `capacity` writable bytes, or is NULL with a capacity of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_last_error(out: *mut c_char, capacity: usize) -> usize {
    status::with_last_error(|text| {
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write_text(text, out, capacity) };
        text.len()
    })
}

/// Opens an engine.
///
/// # Safety
///
/// `options` is NULL or points to as many bytes as its `struct_size` says. `out` points to a
/// writable `u64`. The callback and its context stay valid until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_engine_open(options: *const FloeEngineOptions, out: *mut u64) -> i32 {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { pointer::read_struct(options, "floe_engine_options")? };
        // Checked before the engine exists: without a handle, the host could not free it.
        // SAFETY: as above.
        unsafe { pointer::write(out, 0, "out")? };
        fork::watch();
        let codec = options::codec(options.codec)?;
        let callback = options
            .callback
            .map(|function| Callback::new(function, options.context));
        let handle = engine::open(options::limits(&options), codec, callback, handlers::run)?;
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write(out, handle, "out") }
    })
}

/// Stops accepting requests and ends the accepted ones, without waiting for them.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_shut_down(engine: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.shut_down();
        Ok(())
    })
}

/// Stops accepting requests, and returns when all accepted requests are completed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_close(engine: u64) -> i32 {
    with_engine(engine, |engine| Ok(engine.close()?))
}

/// Closes the engine and invalidates its handle. Drops the completions that were not taken.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_free(engine: u64) -> i32 {
    with_engine(engine, |shared| {
        shared.close()?;
        engine::free(engine).ok_or(Status::BadHandle.into())
    })
}

/// Submits a request without waiting.
///
/// # Safety
///
/// Until this function returns, `request` points to as many bytes as its `struct_size` says, and
/// its payload to `payload_len` bytes. `out` is NULL or points to a writable `u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_submit(
    engine: u64,
    request: *const FloeRequest,
    out: *mut u64,
) -> i32 {
    with_engine(engine, |engine| {
        // SAFETY: guaranteed by the caller.
        let make = unsafe { request::read(engine, request)? };
        let id = new_id();
        if !out.is_null() {
            // Written before the engine sees the request, because the completion may come before
            // the return.
            // SAFETY: guaranteed by the caller.
            unsafe { pointer::write(out, id, "out")? };
        }
        Ok(engine.submit(|| make(id, None))?)
    })
}

/// Submits a request and waits for its terminal completion, which the caller releases.
///
/// # Safety
///
/// As for [`floe_submit`]; `out` points to a writable completion whose `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_call(
    engine: u64,
    request: *const FloeRequest,
    out: *mut FloeCompletion,
) -> i32 {
    with_engine(engine, |engine| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { pointer::struct_size(out, "floe_completion")? };
        // SAFETY: guaranteed by the caller.
        let make = unsafe { request::read(engine, request)? };
        let completion = engine.call(|waiter| make(new_id(), Some(waiter)))?;
        // SAFETY: `out` has as many bytes as its size says, which was checked above.
        unsafe { pointer::write_struct(out.cast(), size, FloeCompletion::owned(completion)) };
        Ok(())
    })
}

/// Asks a request to end. Has no effect on a completed request.
#[unsafe(no_mangle)]
pub extern "C" fn floe_cancel(engine: u64, request: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.cancel(request);
        Ok(())
    })
}

/// Writes a descriptor that is readable while completions wait. The engine owns it.
///
/// # Safety
///
/// `out` points to a writable `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_queue_descriptor(engine: u64, out: *mut i32) -> i32 {
    with_engine(engine, |engine| {
        let descriptor = queue_of(engine)?.descriptor().as_raw_fd();
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write(out, descriptor, "out") }
    })
}

/// Takes up to `capacity` completions without waiting. The caller releases each of them.
///
/// # Safety
///
/// `out` points to `capacity` writable elements of `struct_size` bytes each, `count` to a writable
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_queue_take(
    engine: u64,
    out: *mut c_void,
    struct_size: usize,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    with_engine(engine, |engine| {
        pointer::check_size::<FloeCompletion>(struct_size, "floe_completion")?;
        if out.is_null() && capacity > 0 {
            return Err(pointer::null("out"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write(count, 0, "count")? };
        let queue = queue_of(engine)?;
        let mut written = 0;
        let is_over = queue.take(capacity, |completion| {
            // SAFETY: `out` has `capacity` elements of this size, and the queue passes no more.
            unsafe {
                let element = out.byte_add(written * struct_size);
                pointer::write_struct(element, struct_size, FloeCompletion::owned(completion));
            }
            written += 1;
        });
        // SAFETY: as above.
        unsafe { pointer::write(count, written, "count")? };
        engine.resume_if_stalled();
        if is_over {
            Err(Status::Closed.into())
        } else {
            Ok(())
        }
    })
}

/// Waits until a completion waits, until the engine is closed and its queue is empty, or until the
/// timeout (`FLOE_TIMED_OUT`). A negative timeout waits forever.
#[unsafe(no_mangle)]
pub extern "C" fn floe_queue_wait(engine: u64, timeout_ms: i64) -> i32 {
    with_engine(engine, |engine| {
        engine.check_may_wait()?;
        let time = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        if queue_of(engine)?.wait(time) {
            Ok(())
        } else {
            Err(Status::TimedOut.into())
        }
    })
}

/// Frees the payload of a completion that was taken or came from a call. Does nothing the second
/// time.
///
/// # Safety
///
/// `completion` is NULL or points to a completion that [`floe_queue_take`] or [`floe_call`] wrote.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_completion_release(completion: *mut FloeCompletion) {
    if fork::is_child() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    if let Some(completion) = unsafe { completion.as_mut() } {
        completion.release();
    }
}

/// Subscribes to the events whose bits are set in `mask`: bit n for the event with number n.
///
/// # Safety
///
/// `out` points to a writable `u64`. The callback and its context stay valid until
/// [`floe_unsubscribe`] has returned or the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_subscribe(
    engine: u64,
    mask: u64,
    callback: Option<FloeCallback>,
    context: *mut c_void,
    out: *mut u64,
) -> i32 {
    with_engine(engine, |engine| {
        let callback = callback.map(|function| Callback::new(function, context));
        let id = new_id();
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write(out, id, "out")? };
        engine.subscriptions.add(id, mask, callback);
        Ok(())
    })
}

/// Ends a subscription. Its callback is not called after the return. If a callback of this engine
/// calls this function, the subscription ends when that callback returns.
#[unsafe(no_mangle)]
pub extern "C" fn floe_unsubscribe(engine: u64, subscription: u64) -> i32 {
    with_engine(engine, |engine| Ok(engine.unsubscribe(subscription)?))
}

/// Runs `f` with the engine of a handle.
fn with_engine(handle: u64, f: impl FnOnce(&Arc<Shared>) -> Result<(), Fail>) -> i32 {
    guard(|| engine::with(handle, f).unwrap_or(Err(Status::BadHandle.into())))
}

fn queue_of(engine: &Shared) -> Result<&crate::completion_queue::CompletionQueue, Fail> {
    match &engine.delivery {
        Delivery::Queue(queue) => Ok(queue),
        Delivery::Callback(_) => Err(invalid(
            "cannot use the queue of an engine with a callback; open an engine without a callback",
        )),
    }
}

/// See [`floe_abi_version`].
const ABI_VERSION: u32 = (1 << 16) | 1;
