//! The destination of a NAR: a function of the host, or a descriptor.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::BorrowedFd;

use super::structs::{FloeRequest, FloeSink, HAS_DESCRIPTOR};
use crate::request::Sink;
use crate::status::{Fail, invalid};

struct HostSink {
    function: FloeSink,
    context: *mut c_void,
}

// SAFETY: the header documents that the sink runs on a worker. The library never dereferences the
// context.
unsafe impl Send for HostSink {}

impl HostSink {
    fn take(&self, data: &[u8]) -> Result<(), String> {
        // SAFETY: the host guarantees that both stay valid until the request is completed.
        match unsafe { (self.function)(self.context, data.as_ptr().cast(), data.len()) } {
            0 => Ok(()),
            status => Err(format!("the sink returned {status}")),
        }
    }
}

/// Returns the sink of a request. A descriptor is duplicated, so that the host may close its own.
pub(super) fn sink(request: &FloeRequest) -> Result<Option<Sink>, Fail> {
    match (request.sink, request.flags & HAS_DESCRIPTOR != 0) {
        (None, false) => Ok(None),
        (Some(_), true) => Err(invalid(
            "cannot use both a sink and a descriptor; set one of them",
        )),
        (Some(function), false) => {
            let context = request.sink_context;
            let sink = HostSink { function, context };
            Ok(Some(Sink::Function(Box::new(move |data| sink.take(data)))))
        }
        (None, true) => {
            let descriptor = request.descriptor;
            let file = duplicate(descriptor).map_err(|error| {
                invalid(format!(
                    "cannot duplicate the descriptor {descriptor}: {error}"
                ))
            })?;
            Ok(Some(Sink::Descriptor(file)))
        }
    }
}

fn duplicate(descriptor: i32) -> std::io::Result<File> {
    if descriptor < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is used only for this call. If the number is not an open descriptor, the call
    // fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}
