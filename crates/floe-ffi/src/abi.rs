//! The boundary to C: pointers are checked and copied here, panics end here.
//!
//! include/floe.h is written by hand and says what each function promises; a test compares it with
//! this file. `structs` has the structs and numbers of the header, `options`, `request` and
//! `completion` their meaning, `sink` where a NAR goes, `pointer` all reading of foreign memory.
#![allow(unsafe_code)]

mod completion;
mod options;
mod pointer;
mod request;
mod sink;
mod status;
mod structs;

use std::ffi::{c_char, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use crate::callback::Callback;
use crate::completion::Waiter;
use crate::engine::{self, CallError, Delivery, OpenError, Shared, new_id};
use crate::{fork, handlers};

pub use status::Status;
pub use structs::{
    FloeCallback, FloeCompletion, FloeEngineOptions, FloeRequest, FloeSink, HAS_DESCRIPTOR,
    WANTS_PROGRESS,
};

use status::{Fail, fail, guard};

/// The version of this ABI: major in the upper 16 bits, minor in the lower. A host refuses another
/// major version.
#[unsafe(no_mangle)]
pub extern "C" fn floe_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of floe, as text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A number that differs when the definition of the messages does.
#[unsafe(no_mangle)]
pub extern "C" fn floe_schema_hash() -> u64 {
    floe_messages::SCHEMA_HASH
}

/// A status in words, as text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_status_text(status: i32) -> *const c_char {
    status::text(status).as_ptr()
}

/// Copies why the last call of this thread was refused, NUL-terminated and cut to `capacity`; the
/// length of the whole text without the NUL.
///
/// # Safety
///
/// `out` points to `capacity` writable bytes, or is NULL with a capacity of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_last_error(out: *mut c_char, capacity: usize) -> usize {
    status::with_last_error(|text| {
        // SAFETY: the caller promises it.
        unsafe { pointer::write_text(text, out, capacity) };
        text.len()
    })
}

/// Opens an engine.
///
/// # Safety
///
/// `options` is NULL or points to as many bytes as its `struct_size` says; `out` points to a
/// writable `u64`. The callback and its context stay good until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_engine_open(options: *const FloeEngineOptions, out: *mut u64) -> i32 {
    guard(|| {
        if fork::is_child() {
            return Err(Fail::status(Status::Forked));
        }
        // SAFETY: the caller promises it.
        let options = unsafe { pointer::read_struct(options, "floe_engine_options")? };
        // Before there is an engine that nobody could free.
        // SAFETY: as above.
        unsafe { pointer::write(out, 0, "out")? };
        fork::watch();
        let codec = options::codec(options.codec)?;
        let callback = options
            .callback
            .map(|function| Callback::new(function, options.context));
        let handle = engine::open(options::limits(&options), codec, callback, handlers::run)
            .map_err(|error| {
                let status = match error {
                    OpenError::TooMany => Status::Busy,
                    OpenError::System { .. } => Status::System,
                };
                fail(status, error.to_string())
            })?;
        // SAFETY: the caller promises it.
        unsafe { pointer::write(out, handle, "out")? };
        Ok(Status::Ok)
    })
}

/// Accepts nothing more and completes what was accepted, without waiting for it.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_shut_down(engine: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.shut_down();
        Ok(Status::Ok)
    })
}

/// Accepts nothing more, and returns when everything that was accepted is completed.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_close(engine: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.close()?;
        Ok(Status::Ok)
    })
}

/// Closes the engine and gives its handle up, and with it the completions that nobody has taken.
#[unsafe(no_mangle)]
pub extern "C" fn floe_engine_free(engine: u64) -> i32 {
    with_engine(engine, |shared| {
        shared.close()?;
        match engine::free(engine) {
            Some(()) => Ok(Status::Ok),
            None => Err(Fail::status(Status::BadHandle)),
        }
    })
}

/// Hands a request in, without waiting.
///
/// # Safety
///
/// `request` points to as many bytes as its `struct_size` says, and its payload to as many as
/// `payload_len` says, until this function returns. `out` is NULL or points to a writable `u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_submit(
    engine: u64,
    request: *const FloeRequest,
    out: *mut u64,
) -> i32 {
    with_engine(engine, |engine| {
        // SAFETY: the caller promises it.
        let parsed = unsafe { request::read(engine, request)? };
        let id = new_id();
        if !out.is_null() {
            // Before the engine can see the request: its completion may come before the return.
            // SAFETY: the caller promises it.
            unsafe { pointer::write(out, id, "out")? };
        }
        engine.submit(|| parsed.into_request(id, None))?;
        Ok(Status::Ok)
    })
}

/// Hands a request in and waits for its terminal completion, which the caller releases.
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
        // SAFETY: the caller promises it.
        let size = unsafe { pointer::struct_size(out, "floe_completion")? };
        // SAFETY: the caller promises it.
        let parsed = unsafe { request::read(engine, request)? };
        let waiter = Arc::new(Waiter::default());
        let make = || parsed.into_request(new_id(), Some(waiter.clone()));
        let completion = engine.call(make, &waiter)?;
        // SAFETY: `out` has as many bytes as its size says, which was checked above.
        unsafe { pointer::write_struct(out.cast(), size, FloeCompletion::owned(completion)) };
        Ok(Status::Ok)
    })
}

/// Asks for the end of a request. One that has ended already is left as it is.
#[unsafe(no_mangle)]
pub extern "C" fn floe_cancel(engine: u64, request: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.cancel(request);
        Ok(Status::Ok)
    })
}

/// A descriptor that is readable while completions wait. It belongs to the engine.
///
/// # Safety
///
/// `out` points to a writable `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_queue_descriptor(engine: u64, out: *mut i32) -> i32 {
    with_engine(engine, |engine| {
        let descriptor = queue_of(engine)?.descriptor().as_raw_fd();
        // SAFETY: the caller promises it.
        unsafe { pointer::write(out, descriptor, "out")? };
        Ok(Status::Ok)
    })
}

/// Takes up to `capacity` completions, without waiting; the caller releases each.
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
        pointer::check_array::<FloeCompletion>(out, struct_size, capacity)?;
        // SAFETY: the caller promises it.
        unsafe { pointer::write(count, 0, "count")? };
        let queue = queue_of(engine)?;
        let mut written = 0;
        let taken = queue.take(capacity, |completion| {
            // SAFETY: `out` has `capacity` elements of this size, and the queue gives no more.
            unsafe {
                let element = out.byte_add(written * struct_size);
                pointer::write_struct(element, struct_size, FloeCompletion::owned(completion));
            }
            written += 1;
        });
        // SAFETY: as above.
        unsafe { pointer::write(count, taken.count, "count")? };
        engine.resume_if_stalled();
        match taken.count == 0 && taken.is_over {
            true => Err(Fail::status(Status::Closed)),
            false => Ok(Status::Ok),
        }
    })
}

/// Waits until a completion is there, or the engine is closed and its queue empty, or the time is
/// over (`FLOE_TIMED_OUT`). A negative time does not end.
#[unsafe(no_mangle)]
pub extern "C" fn floe_queue_wait(engine: u64, timeout_ms: i64) -> i32 {
    with_engine(engine, |engine| {
        if engine.is_inside() {
            return Err(CallError::WouldDeadlock.into());
        }
        let time = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        match queue_of(engine)?.wait(time) {
            true => Ok(Status::Ok),
            false => Ok(Status::TimedOut),
        }
    })
}

/// Gives the payload of a completion back that was taken or came from a call. Does nothing the
/// second time.
///
/// # Safety
///
/// `completion` is NULL or points to a completion that [`floe_queue_take`] or [`floe_call`] wrote.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floe_completion_release(completion: *mut FloeCompletion) {
    if fork::is_child() {
        return;
    }
    // SAFETY: the caller promises it.
    if let Some(completion) = unsafe { completion.as_mut() } {
        completion.release();
    }
}

/// Subscribes to the events whose bits are set in `mask`: bit n for the event with number n.
///
/// # Safety
///
/// `out` points to a writable `u64`. The callback and its context stay good until
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
        // SAFETY: the caller promises it.
        unsafe { pointer::write(out, id, "out")? };
        engine.subscriptions.add(id, mask, callback);
        Ok(Status::Ok)
    })
}

/// Ends a subscription. No call to its callback is made after the return; called from inside a
/// callback of this engine, none is made after that one.
#[unsafe(no_mangle)]
pub extern "C" fn floe_unsubscribe(engine: u64, subscription: u64) -> i32 {
    with_engine(engine, |engine| {
        engine.unsubscribe(subscription)?;
        Ok(Status::Ok)
    })
}

/// Runs `f` with the engine of a handle.
fn with_engine(handle: u64, f: impl FnOnce(&Arc<Shared>) -> Result<Status, Fail>) -> i32 {
    guard(|| {
        if fork::is_child() {
            return Err(Fail::status(Status::Forked));
        }
        engine::with(handle, f).unwrap_or(Err(Fail::status(Status::BadHandle)))
    })
}

fn queue_of(engine: &Shared) -> Result<&crate::queue::CompletionQueue, Fail> {
    match &engine.delivery {
        Delivery::Queue(queue) => Ok(queue),
        Delivery::Callback(_) => Err(fail(
            Status::Invalid,
            "this engine has a callback and no queue: open one without a callback".into(),
        )),
    }
}

/// See [`floe_abi_version`].
const ABI_VERSION: u32 = 1 << 16;
