//! The request `nar`.

use floe_messages::{ErrorKind, NarReply, NarRequest};
use floe_store::StoreReader;
use floe_transfer::{Error, PathSpec};

use super::descriptor::write_all;
use super::{HandlerContext, failed, local_store, usage};
use crate::completion::{JobError, JobOutcome};
use crate::request::Sink;

impl HandlerContext<'_> {
    pub(super) fn nar(&self, sink: Option<Sink>) -> JobOutcome {
        let request: NarRequest<'_> = self.request()?;
        let Some(mut sink) = sink else {
            let text =
                "cannot write the NAR: the request has no destination; set a sink or a descriptor";
            return Err(usage(text));
        };
        let store = StoreReader::open(local_store(request.store, request.store_dir)?)?;
        let path =
            PathSpec::parse(request.path, &store.layout().store_dir)?.find_in_store(&store)?;
        if store.path_info(&path)?.is_none() {
            let path = store.layout().store_dir.full_path(&path);
            let sources = vec![store.layout().real_store_dir.display().to_string()];
            return Err(Error::NotFound { path, sources }.into());
        }
        let mut nar_size = 0;
        store.dump(&path, &mut |chunk: &[u8]| {
            if self.cancel().is_raised() {
                return Err(JobError::Cancelled);
            }
            nar_size += chunk.len() as u64;
            self.job.state.bytes_done(chunk.len() as i64);
            let (to, error) = match &mut sink {
                Sink::Function(write) => ("sink", write(chunk).err()),
                Sink::Descriptor(file) => match write_all(file, chunk, self.cancel()) {
                    Ok(false) => return Err(JobError::Cancelled),
                    written => ("descriptor", written.err().map(|error| error.to_string())),
                },
            };
            let Some(error) = error else {
                return Ok(());
            };
            let text = format!("cannot write the NAR of {path} to its {to}: {error}");
            Err(failed(ErrorKind::Failed, text))
        })?;
        self.reply(&NarReply { nar_size })
    }
}
