//! `floe dump`: writes the NAR of a path.

pub(crate) mod args;
pub(crate) mod page;

use std::io::{self, IsTerminal as _};

use anyhow::bail;

use crate::args::PathArgs;
use crate::exit::UsageError;
use crate::requested_paths::OpenSource;
use crate::stdout::BinaryOutput;
use args::DumpArgs;

pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        let message = "cannot write a NAR to a terminal; redirect stdout to a file";
        return Err(UsageError(message.into()).into());
    }
    let query = &args.query;
    let open = OpenSource::open(&query.source, &query.local, &query.options)?;
    let paths = PathArgs::new(false, false, vec![args.path.clone()]);
    let specs = open.requested(&paths, &query.names)?;
    let found = open.query(&specs, false)?.complete()?;
    let [narinfo] = &found.into_values().collect::<Vec<_>>()[..] else {
        bail!("cannot write the NARs of {} paths; try one", specs.len());
    };
    let mut output = BinaryOutput::new();
    match open
        .source()
        .dump_nar(narinfo, &mut |chunk| output.write(chunk))
    {
        Ok(()) => output.finish(),
        Err(error) => output.fail(error),
    }
}
