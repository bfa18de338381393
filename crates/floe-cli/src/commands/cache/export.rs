//! `floe cache export`: writes closures of a cache into one file.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use floe_copy::{CopyRequest, CopySummary, Export, RequestedPaths};
use floe_store::{UnfinishedFile, WrittenFile};
use floe_transfer::{CopyOptions, ErrorKind, Events, Size};
use rustix::fs::Mode;
use serde_json::json;
use tempfile::TempPath;

use super::ChosenCache;
use super::args::CacheExportArgs;
use crate::copying::warn_of_unavailable;
use crate::display::{Display, eprint_line};
use crate::exit::{self, UsageError};
use crate::messages::counted;
use crate::stdout::print;

pub(super) fn run(args: &CacheExportArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, None)?;
    let Some(place) = &args.output_file else {
        refuse_stdout(args)?;
        let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0)?;
        let summary = write(args, &chosen, File::from(stdout), "on stdout")?;
        return report(args, &chosen, &summary, "stdout");
    };
    let name = place.display().to_string();
    let failed = || format!("cannot create {name}");
    let found = fs::metadata(place).ok();
    if found.as_ref().is_some_and(Metadata::is_dir) {
        bail!("cannot create {name}: it is a directory; add the name of a file");
    }
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        // A pipe or a device stays what it is.
        let file =
            UnfinishedFile::from(WrittenFile::create_or_truncate(place).with_context(failed)?);
        let summary = write_and_close(args, &chosen, file, &name)?;
        return report(args, &chosen, &summary, &name);
    }
    // A symbolic link stays, too.
    let real = fs::canonicalize(place).unwrap_or_else(|_| place.clone());
    // It is removed if the export fails.
    let (file, temporary) = new_file(&real, found.as_ref()).with_context(failed)?;
    let summary = write_and_close(args, &chosen, file.into(), &name)?;
    let persisted = temporary.persist(&real);
    persisted
        .map_err(|error| error.error)
        .with_context(failed)?;
    report(args, &chosen, &summary, &name)
}

/// Writes the export into a file, and closes it.
fn write_and_close(
    args: &CacheExportArgs,
    chosen: &ChosenCache,
    mut file: UnfinishedFile,
    name: &str,
) -> anyhow::Result<CopySummary> {
    let clone = file.get_mut().map(|file| file.as_file().try_clone());
    let clone = clone.context("a file without a descriptor")??;
    let is_file = clone.metadata()?.is_file();
    let summary = write(args, chosen, clone, name)?;
    if let Some(file) = file.take() {
        let synced = if is_file {
            file.as_file().sync_all()
        } else {
            Ok(())
        };
        let closed = synced.and(file.close());
        closed.with_context(|| format!("cannot write {name}"))?;
    }
    Ok(summary)
}

/// Makes an unfinished file beside the place of the finished one, with the mode of the file there.
fn new_file(place: &Path, found: Option<&Metadata>) -> io::Result<(WrittenFile, TempPath)> {
    let name = place.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let id = std::process::id();
    let path = place.with_file_name(format!(".{}.floe-{id}", name.display()));
    // The umask of the user applies to a new file.
    let file = WrittenFile::create(&path, Mode::from_raw_mode(0o666))?;
    let set = found.map_or(Ok(()), |found| file.set_mode(found.mode() & 0o777));
    match set.and_then(|()| TempPath::try_from_path(path)) {
        Ok(temporary) => Ok((file, temporary)),
        Err(error) => {
            file.discard();
            Err(error)
        }
    }
}

fn refuse_stdout(args: &CacheExportArgs) -> Result<(), UsageError> {
    if args.of.json {
        return Err(UsageError(
            "cannot write the export and JSON on stdout; add --output-file FILE".into(),
        ));
    }
    if io::stdout().is_terminal() {
        return Err(UsageError(
            "cannot write the export on a terminal; add --output-file FILE".into(),
        ));
    }
    Ok(())
}

fn write(
    args: &CacheExportArgs,
    chosen: &ChosenCache,
    file: File,
    name: &str,
) -> anyhow::Result<CopySummary> {
    let settings = &chosen.settings;
    let export = Export::new(file, name);
    let paths = RequestedPaths::Named(args.paths.clone());
    let request = CopyRequest {
        network: settings.network(true),
        events: Events::new(Arc::new(Display::default())),
        options: CopyOptions {
            trusted_keys: settings.trusted_keys(&args.trust)?,
            check_signatures: !args.trust.no_check_sigs,
            // Paths are written one after the other.
            jobs: Some(NonZeroUsize::MIN),
            closure_limit: settings.closure_limit(),
            cancel: chosen.cancel.clone(),
            ..CopyOptions::default()
        },
        ..CopyRequest::new(vec![chosen.store.clone()], Arc::new(export.clone()), paths)
    };
    let copy = request.open()?;
    warn_of_unavailable(&copy.sources);
    let summary = copy.run();
    let interrupted = if args.output_file.is_some() {
        "interrupted; the file is not written"
    } else {
        INTERRUPTED
    };
    let summary = summary.map_err(|error| exit::explain_interrupt(error.into(), interrupted))?;
    if summary.failures.is_empty() {
        export.finish()?;
        return Ok(summary);
    }
    let failed = summary.failed_paths();
    let line = format!("cannot export {}", counted(failed, "path"));
    let kinds = summary.failures.iter().map(floe_transfer::Error::kind);
    bail!(exit::failures(
        &line,
        failed,
        kinds.max().unwrap_or(ErrorKind::Failed)
    ))
}

const INTERRUPTED: &str = "interrupted; an export without its end cannot be imported";

fn report(
    args: &CacheExportArgs,
    chosen: &ChosenCache,
    summary: &CopySummary,
    name: &str,
) -> anyhow::Result<()> {
    if args.of.json {
        print(json!({
            "paths": summary.copied,
            "narBytes": summary.nar_bytes,
            "downloadBytes": summary.download_bytes,
            "file": name,
        }))?;
    }
    let paths = usize::try_from(summary.copied).unwrap_or(usize::MAX);
    eprint_line(format_args!(
        "exported {} ({}) of {} to {name}",
        counted(paths, "path"),
        Size(summary.nar_bytes),
        chosen.store
    ));
    Ok(())
}
