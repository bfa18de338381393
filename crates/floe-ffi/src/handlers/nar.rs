//! The request `nar`.

use std::fmt::Display;

use floe_messages::{ErrorKind, NarReply, NarRequest};
use floe_store::{StoreError, StoreReader};
use floe_transfer::{Error, PathSpec};

use super::descriptor::{WriteError, write_all};
use super::{HandlerContext, HandlerResult, WorkError, local_store, store_dir, usage};
use crate::completion::Failure;
use crate::request::Sink;

/// The reason why a dump ended early.
enum DumpError {
    Store(StoreError),
    Ended(WorkError),
}

impl From<StoreError> for DumpError {
    fn from(error: StoreError) -> DumpError {
        DumpError::Store(error)
    }
}

impl HandlerContext<'_> {
    pub(super) fn nar(&self, sink: Option<Sink>) -> HandlerResult {
        let request: NarRequest<'_> = self.request()?;
        let Some(mut sink) = sink else {
            let text =
                "cannot write the NAR: the request has no destination; set a sink or a descriptor";
            return Err(usage(text.into()));
        };
        let dir = store_dir(request.store_dir)?;
        let store = StoreReader::open(local_store(request.store, dir.as_ref())?)?;
        let path =
            PathSpec::parse(request.path, &store.layout().store_dir)?.find_in_store(&store)?;
        if store.path_info(&path)?.is_none() {
            let path = store.layout().store_dir.full_path(&path);
            let sources = vec![store.layout().real_store_dir.display().to_string()];
            return Err(Error::NotFound { path, sources }.into());
        }
        let mut nar_size = 0;
        let dumped = store.dump(&path, &mut |chunk: &[u8]| {
            if self.cancel().is_raised() {
                return Err(DumpError::Ended(WorkError::Cancelled));
            }
            nar_size += chunk.len() as u64;
            self.job.progress.bytes_done(chunk.len() as i64);
            let failed = |to: &str, reason: &dyn Display| {
                let text = format!("cannot write the NAR of {path} to its {to}: {reason}");
                DumpError::Ended(WorkError::Failed(Failure::new(ErrorKind::Failed, text)))
            };
            match &mut sink {
                Sink::Function(write) => write(chunk).map_err(|reason| failed("sink", &reason)),
                Sink::Descriptor(file) => {
                    write_all(file, chunk, self.cancel()).map_err(|error| match error {
                        WriteError::Cancelled => DumpError::Ended(WorkError::Cancelled),
                        WriteError::System(error) => failed("descriptor", &error),
                    })
                }
            }
        });
        match dumped {
            Ok(()) => self.reply(&NarReply { nar_size }),
            Err(DumpError::Store(error)) => Err(error.into()),
            Err(DumpError::Ended(ended)) => Err(ended),
        }
    }
}
