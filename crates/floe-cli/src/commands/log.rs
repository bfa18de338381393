//! `floe log`: prints the logs of builds.

pub(crate) mod args;
pub(crate) mod page;

use std::io::{self, Read};

use anyhow::{Context as _, anyhow, bail};
use floe_config::{StoreFlags, build_log_dir};
use floe_format::StorePath;
use floe_transfer::{Error, PathSpec, open_build_log};

use crate::args::PathArgs;
use crate::options;
use crate::requested_paths::OpenSource;
use crate::stdout::BinaryOutput;
use args::LogCommandArgs;

pub(crate) fn run(args: &LogCommandArgs) -> anyhow::Result<()> {
    let query = &args.query;
    let open = OpenSource::open(&query.source, &query.local, &query.options)?;
    let paths = PathArgs::new(false, false, args.paths.clone());
    let mut output = BinaryOutput::new();
    for spec in open.requested(&paths, &query.names)? {
        // A log may stay longer than its derivation.
        let derivation = match &spec {
            PathSpec::Path(path) if path.is_derivation() => path.clone(),
            _ => {
                let found = open.query(std::slice::from_ref(&spec), false)?.complete()?;
                let info = found.into_values().next().map(|narinfo| narinfo.info);
                let info = info.with_context(|| format!("cannot find {}", spec.text()))?;
                match info.deriver {
                    _ if info.path.is_derivation() => info.path,
                    Some(deriver) => deriver,
                    None => bail!(
                        "cannot find the log of {}: the store does not know its derivation; give \
                         the derivation",
                        info.path
                    ),
                }
            }
        };
        let log = open_log(args, &open, &derivation)?;
        let mut log = log.with_context(|| {
            format!(
                "cannot find the log of {derivation}: {} does not have it",
                open.source().name()
            )
        })?;
        let copied = output.copy(&mut log);
        let copied = copied.map_err(|error| match error.downcast::<Error>() {
            Ok(error) => anyhow!(error),
            Err(error) => anyhow!(error).context(format!("cannot read the log of {derivation}")),
        });
        if copied? {
            break;
        }
    }
    output.finish()
}

/// Opens a log, which a local store has in a directory of its own.
fn open_log(
    args: &LogCommandArgs,
    open: &OpenSource,
    derivation: &StorePath,
) -> anyhow::Result<Option<Box<dyn Read>>> {
    let Some(layout) = open.layout() else {
        return Ok(open.source().open_build_log(derivation)?);
    };
    let local = &args.query.local;
    let flags = StoreFlags {
        root: local.root.as_deref(),
        store: local.store.as_deref(),
        ..StoreFlags::default()
    };
    let log_dir = build_log_dir(layout, &flags, &options::environment())?;
    let found: io::Result<_> = open_build_log(&log_dir, derivation);
    found.with_context(|| {
        format!(
            "cannot open the log of {derivation} in {}",
            log_dir.display()
        )
    })
}
