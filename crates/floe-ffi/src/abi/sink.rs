//! Where the NAR of a request goes: a function of the host, or a descriptor.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::BorrowedFd;

use super::status::{Fail, Status, fail};
use super::structs::{FloeRequest, FloeSink, HAS_DESCRIPTOR};
use crate::request::Sink;

struct HostSink {
    function: FloeSink,
    context: *mut c_void,
}

// SAFETY: the header says that the sink is called on a worker; the library itself never looks at
// what the context points to.
unsafe impl Send for HostSink {}

impl HostSink {
    fn take(&self, data: &[u8]) -> Result<(), String> {
        // SAFETY: the host promised that both stay good until the request is completed.
        match unsafe { (self.function)(self.context, data.as_ptr().cast(), data.len()) } {
            0 => Ok(()),
            status => Err(format!("the sink returned {status}")),
        }
    }
}

/// Where the NAR of a request goes. A descriptor is duplicated, so that the host may close its own.
pub(super) fn sink(request: &FloeRequest) -> Result<Option<Sink>, Fail> {
    match (request.sink, request.flags & HAS_DESCRIPTOR != 0) {
        (None, false) => Ok(None),
        (Some(_), true) => Err(fail(
            Status::Invalid,
            "a request has a sink or a descriptor, and not both".into(),
        )),
        (Some(function), false) => {
            let context = request.sink_context;
            let sink = HostSink { function, context };
            Ok(Some(Sink::Function(Box::new(move |data| sink.take(data)))))
        }
        (None, true) => {
            let file = duplicate(request.descriptor).map_err(|error| {
                let text = format!("duplicating the descriptor {}: {error}", request.descriptor);
                fail(Status::Invalid, text)
            })?;
            Ok(Some(Sink::Descriptor(file)))
        }
    }
}

fn duplicate(descriptor: i32) -> std::io::Result<File> {
    if descriptor < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is used for this call only; a number that is no open descriptor is an error of
    // the system and nothing worse.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}
