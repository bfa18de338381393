//! NARs on their way to a sink or a target, outside of a copy.

use floe_format::NarInfo;
use floe_hash::hash_pool::HashPool;
use floe_transfer::codec::DecoderBudget;
use floe_transfer::{
    CopyOptions, Error, IncomingNar, NarContext, NarRequest, NarSink, NarStream, PlannedPath,
    Source, Target,
};

/// Passes a NAR to a function, on a worker of its own.
pub(super) fn with_incoming<T>(
    narinfo: &NarInfo,
    stream: Result<NarStream, Error>,
    receive: impl FnOnce(&mut IncomingNar<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let planned = PlannedPath {
        narinfo: narinfo.clone(),
        source: 0,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address: false,
        keeps_signatures: false,
    };
    let (options, budget) = (CopyOptions::default(), DecoderBudget::new(1));
    let pool = HashPool::sequential(1, None);
    let worker = pool.tickets().next().unwrap().start();
    let context = NarContext {
        options: &options,
        events: &(),
        worker: &worker,
        decoder_budget: &budget,
        needed: &(),
    };
    let mut scratch = vec![0; 64 * 1024];
    let mut nar = IncomingNar::new(context, &planned, &mut scratch);
    nar.set_stream(stream?, "the tested source".into());
    receive(&mut nar)
}

/// Reads and verifies the NAR that a narinfo of a source describes.
pub(super) fn read_nar(source: &dyn Source, narinfo: &NarInfo) -> Result<Vec<u8>, Error> {
    struct Buffer(Vec<u8>);
    impl NarSink for Buffer {
        fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
            self.0.extend_from_slice(nar);
            Ok(())
        }
    }
    let stream = source.open_nar(narinfo, NarRequest::streamed());
    with_incoming(narinfo, stream, |nar| {
        let mut buffer = Buffer(Vec::new());
        nar.write_to(&mut buffer)?;
        Ok(buffer.0)
    })
}

/// Sends bytes as the NAR of a path to a target.
pub(super) fn stage(target: &dyn Target, narinfo: &NarInfo, nar: Vec<u8>) -> Result<(), Error> {
    let dump = NarStream::Dump(Box::new(move |write| {
        nar.chunks(1000).try_for_each(&mut *write)
    }));
    with_incoming(narinfo, Ok(dump), |nar| target.receive(nar))
}
