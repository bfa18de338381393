//! `floe cache import`: adds the paths of an export to a cache.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use floe_copy::{CopyRequest, ReadExport, RequestedPaths};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::ChosenCache;
use super::args::CacheImportArgs;
use crate::copying::{CopyAction, Copying, Follow, TransferArgs};

pub(super) fn run(args: &CacheImportArgs) -> anyhow::Result<()> {
    let keys = &args.secret_key_file;
    let chosen = ChosenCache::with(&args.of, None, |settings| {
        settings.set_push_defaults(keys, false)
    })?;
    let dir = chosen.open_or_new(true)?.dir().clone();
    let (file, name) = match &args.file {
        Some(place) => {
            let name = place.display().to_string();
            // Otherwise the command waits for the writer of a pipe, and a signal does not end it.
            let opened = openat(
                CWD,
                place,
                OFlags::NONBLOCK | OFlags::CLOEXEC,
                Mode::empty(),
            );
            let file = opened.with_context(|| format!("cannot open {name}"))?;
            (File::from(file), name)
        }
        None => {
            let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)?;
            (File::from(stdin), "on stdin".to_owned())
        }
    };
    let temporary = chosen.settings.context.temporary_dir.as_deref();
    let temporary = temporary.unwrap_or(Path::new("/tmp"));
    let export = ReadExport::read((file, &name), dir.clone(), temporary, &chosen.cancel)?;
    let transfer = TransferArgs {
        dry_run: args.dry_run,
        json: args.of.json,
        options: args.of.options.clone(),
        log: args.of.log,
        output: args.of.output,
        ..TransferArgs::default()
    };
    let command = Copying {
        action: CopyAction::Import,
        settings: &chosen.settings,
        args: &transfer,
        names: &[],
        earlier: &|_| None,
        follow: &Follow::No,
        is_result: true,
    };
    command.run(CopyRequest {
        store_dir: Some(dir),
        ..CopyRequest::new(
            vec![Arc::new(export)],
            chosen.store.clone(),
            RequestedPaths::All,
        )
    })
}
