//! A host program: an engine, and the completions that its callback received.

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use floe::{FloeCompletion, FloeEngineOptions, FloeRequest, FloeSink, Status};
use floe_messages::{Codec, Message, Method};

/// A copy of a completion that a callback received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) request: u64,
    pub(crate) tag: u64,
    pub(crate) kind: u32,
    pub(crate) method: u32,
    pub(crate) codec: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DONE: u32 = 1;
pub(crate) const FAILED: u32 = 2;
pub(crate) const CANCELLED: u32 = 3;
pub(crate) const SHUT_DOWN: u32 = 4;
pub(crate) const PROGRESS: u32 = 16;
pub(crate) const EVENT: u32 = 17;

/// More than any test here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

impl Received {
    pub(crate) fn is_terminal(&self) -> bool {
        self.kind < PROGRESS
    }

    /// Decodes the payload.
    #[track_caller]
    pub(crate) fn message<'a, M: Message<'a>>(&'a self) -> M {
        let codec = match self.codec {
            1 => Codec::Cbor,
            _ => Codec::Flat,
        };
        match codec.decode(&self.payload) {
            Ok(message) => message,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    /// Decodes the reply of a successful request.
    #[track_caller]
    pub(crate) fn reply<'a, M: Message<'a>>(&'a self) -> M {
        if self.kind == FAILED {
            panic!("failed: {:?}", self.message::<floe_messages::Error<'_>>());
        }
        assert_eq!(self.kind, DONE);
        self.message()
    }

    /// Copies a completion of the library.
    pub(crate) fn copy(completion: &FloeCompletion) -> Received {
        let mut payload = Vec::new();
        if completion.payload_len > 0 {
            let (data, len) = (completion.payload.cast::<u8>(), completion.payload_len);
            // SAFETY: the library guarantees that many bytes.
            payload.extend_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
        }
        Received {
            request: completion.request,
            tag: completion.tag,
            kind: completion.kind,
            method: completion.method,
            codec: completion.codec,
            payload,
        }
    }
}

/// Additional code of the callback.
type Also = Box<dyn Fn(u64, &Received) + Send + Sync>;

struct Context {
    sender: Sender<Received>,
    engine: std::sync::atomic::AtomicU64,
    also: Option<Also>,
}

/// An engine with a callback, freed when it is dropped.
pub(crate) struct Host {
    pub(crate) engine: u64,
    pub(crate) got: Receiver<Received>,
    context: *mut Context,
}

// SAFETY: only the engine and `drop` use the context.
unsafe impl Sync for Host {}
// SAFETY: as above.
unsafe impl Send for Host {}

unsafe extern "C" fn receive(context: *mut c_void, completion: *const FloeCompletion) {
    // SAFETY: the host keeps the context until the engine is freed. The completion is valid during
    // the call.
    let (context, completion) = unsafe { (&*context.cast::<Context>(), &*completion) };
    let got = Received::copy(completion);
    if let Some(also) = &context.also {
        also(
            context.engine.load(std::sync::atomic::Ordering::Acquire),
            &got,
        );
    }
    let _: Result<(), _> = context.sender.send(got);
}

/// Returns options that select all defaults.
pub(crate) fn options() -> FloeEngineOptions {
    FloeEngineOptions {
        struct_size: size_of::<FloeEngineOptions>(),
        callback: None,
        context: std::ptr::null_mut(),
        codec: 0,
        query_workers: 0,
        copy_workers: 0,
        per_thread: 0,
        in_flight: 0,
        payload_bytes: 0,
        progress_interval_ms: 0,
        slow_after_ms: 0,
    }
}

/// Opens an engine and expects success.
#[track_caller]
pub(crate) fn open(options: &FloeEngineOptions) -> u64 {
    let mut engine = 0;
    // SAFETY: both pointers are valid.
    let status = unsafe { floe::floe_engine_open(options, &mut engine) };
    assert_eq!(status, OK, "{}", last_error());
    assert_ne!(engine, 0);
    engine
}

impl Host {
    pub(crate) fn new() -> Host {
        Host::with(options(), None)
    }

    pub(crate) fn with(mut options: FloeEngineOptions, also: Option<Also>) -> Host {
        let (sender, got) = channel();
        let context = Box::into_raw(Box::new(Context {
            sender,
            engine: Default::default(),
            also,
        }));
        options.callback = Some(receive);
        options.context = context.cast();
        let engine = open(&options);
        // SAFETY: it was just created, and no other reference to it is mutable.
        unsafe { &*context }
            .engine
            .store(engine, std::sync::atomic::Ordering::Release);
        Host {
            engine,
            got,
            context,
        }
    }

    /// Returns the next completion.
    #[track_caller]
    pub(crate) fn next(&self) -> Received {
        self.got.recv_timeout(DEADLINE).unwrap()
    }

    /// Returns the next terminal completion.
    #[track_caller]
    pub(crate) fn end(&self) -> Received {
        loop {
            let got = self.next();
            if got.is_terminal() {
                return got;
            }
        }
    }

    /// Submits a flat message and expects success. Returns the number of the request.
    #[track_caller]
    pub(crate) fn submit<'m>(&self, method: Method, message: &impl Message<'m>) -> u64 {
        let ask = TestRequest::new(method, message);
        ask.submit(self.engine).unwrap()
    }

    /// Submits an echo with a delay in milliseconds.
    #[track_caller]
    pub(crate) fn sleep(&self, delay_ms: u64) -> u64 {
        self.submit(Method::Echo, &echo("asleep", delay_ms))
    }

    /// Submits a message and waits for its terminal completion.
    #[track_caller]
    pub(crate) fn ask<'m>(&self, method: Method, message: &impl Message<'m>) -> Received {
        let id = self.submit(method, message);
        let got = self.end();
        assert_eq!(got.request, id);
        got
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        floe::floe_engine_free(self.engine);
        // SAFETY: the engine is freed, so no callback runs.
        drop(unsafe { Box::from_raw(self.context) });
    }
}

pub(crate) fn echo(message: &str, delay_ms: u64) -> floe_messages::EchoRequest<'_> {
    floe_messages::EchoRequest {
        message,
        delay_ms,
        event: false,
    }
}

/// A request with its payload.
pub(crate) struct TestRequest {
    pub(crate) request: FloeRequest,
    payload: Vec<u8>,
}

impl TestRequest {
    pub(crate) fn new<'m>(method: Method, message: &impl Message<'m>) -> TestRequest {
        TestRequest::coded(Codec::Flat, method, message)
    }

    pub(crate) fn coded<'m>(
        codec: Codec,
        method: Method,
        message: &impl Message<'m>,
    ) -> TestRequest {
        let mut payload = Vec::new();
        codec.encode(message, &mut payload);
        TestRequest::raw(codec as u32, method as u32, payload)
    }

    pub(crate) fn raw(codec: u32, method: u32, payload: Vec<u8>) -> TestRequest {
        let request = FloeRequest {
            struct_size: size_of::<FloeRequest>(),
            method,
            codec,
            payload: payload.as_ptr().cast(),
            payload_len: payload.len(),
            tag: 0,
            deadline_ms: 0,
            flags: 0,
            descriptor: 0,
            sink: None,
            sink_context: std::ptr::null_mut(),
        };
        TestRequest { request, payload }
    }

    pub(crate) fn tag(mut self, tag: u64) -> TestRequest {
        self.request.tag = tag;
        self
    }

    pub(crate) fn deadline(mut self, milliseconds: u64) -> TestRequest {
        self.request.deadline_ms = milliseconds;
        self
    }

    pub(crate) fn watched(mut self) -> TestRequest {
        self.request.flags |= floe::WANTS_PROGRESS;
        self
    }

    pub(crate) fn into_sink(mut self, sink: FloeSink, context: *mut c_void) -> TestRequest {
        self.request.sink = Some(sink);
        self.request.sink_context = context;
        self
    }

    /// Submits the request. Returns its number, or the status.
    pub(crate) fn submit(&self, engine: u64) -> Result<u64, i32> {
        assert_eq!(self.request.payload_len, self.payload.len());
        let mut id = 0;
        // SAFETY: the request and its payload are valid during the call.
        match unsafe { floe::floe_submit(engine, &self.request, &mut id) } {
            OK => Ok(id),
            status => Err(status),
        }
    }

    /// Submits the request with `floe_call`.
    pub(crate) fn call(&self, engine: u64) -> Result<Received, i32> {
        let mut completion = empty();
        // SAFETY: the request, its payload and the completion are valid during the call.
        match unsafe { floe::floe_call(engine, &self.request, &mut completion) } {
            OK => {
                let got = Received::copy(&completion);
                // SAFETY: the call wrote it.
                unsafe { floe::floe_completion_release(&mut completion) };
                assert!(completion.payload.is_null());
                // SAFETY: as above; the second release does nothing.
                unsafe { floe::floe_completion_release(&mut completion) };
                Ok(got)
            }
            status => Err(status),
        }
    }
}

/// Returns a completion for the library to write to.
pub(crate) fn empty() -> FloeCompletion {
    FloeCompletion {
        struct_size: size_of::<FloeCompletion>(),
        request: 0,
        tag: 0,
        kind: 0,
        method: 0,
        codec: 0,
        reserved: 0,
        payload: std::ptr::null_mut(),
        payload_len: 0,
        capacity: 0,
    }
}

/// Returns the error text of this thread's last failed call.
pub(crate) fn last_error() -> String {
    let mut text = vec![0_u8; 500];
    // SAFETY: the vector has that many bytes.
    let len = unsafe { floe::floe_last_error(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(len.min(499));
    String::from_utf8(text).unwrap()
}

pub(crate) const OK: i32 = Status::Ok as i32;
pub(crate) const INVALID: i32 = Status::Invalid as i32;
pub(crate) const BUSY: i32 = Status::Busy as i32;
pub(crate) const CLOSED: i32 = Status::Closed as i32;
pub(crate) const BAD_HANDLE: i32 = Status::BadHandle as i32;
pub(crate) const WOULD_DEADLOCK: i32 = Status::WouldDeadlock as i32;
pub(crate) const FORKED: i32 = Status::Forked as i32;
