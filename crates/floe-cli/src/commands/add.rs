//! `floe add`: adds files and directories to a store or cache.

pub(crate) mod args;
pub(crate) mod page;

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

use anyhow::bail;
use floe_config::StoreAccess;
use floe_copy::FileToAdd;

use crate::adding;
use crate::copying::{CopyAction, Copying, Follow, TransferArgs};
use crate::exit::UsageError;
use crate::options::Settings;
use args::AddArgs;

pub(crate) fn run(args: &AddArgs) -> anyhow::Result<()> {
    if let (Some(name), [_, other, ..]) = (&args.name, &*args.files) {
        let other = other.display();
        bail!(UsageError(format!(
            "cannot add {other} as {name}: --name takes one file; add the files one by one"
        )));
    }
    args.files.iter().try_for_each(|file| check_file(file))?;
    let settings = Settings::load(&args.options, args.store_dir.as_deref())?;
    let target = settings.store_or(args.to.as_deref(), &args.local, StoreAccess::Write)?;
    let files: Vec<FileToAdd> = args
        .files
        .iter()
        .map(|file| file_to_add(file, args))
        .collect();
    let (request, _) = adding::request(&settings, target, &files)?;
    let transfer = TransferArgs {
        out_link: args.out_link.clone(),
        dry_run: args.dry_run,
        json: args.json,
        options: args.options.clone(),
        log: args.log,
        output: args.output,
        ..TransferArgs::default()
    };
    let command = Copying {
        action: CopyAction::Add,
        settings: &settings,
        args: &transfer,
        names: &[],
        earlier: &|_| None,
        follow: &Follow::No,
        is_result: true,
    };
    command.run(request)
}

/// Refuses a single word that is no file: other programs call it so to install a package.
fn check_file(file: &Path) -> Result<(), UsageError> {
    let mut components = file.components();
    let is_word = matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    );
    match fs::symlink_metadata(file) {
        Err(error) if is_word && error.kind() == ErrorKind::NotFound => {
            let file = file.display();
            Err(UsageError(format!(
                "cannot add {file}: there is no such file; to install a package, try floe install \
                 {file}"
            )))
        }
        _ => Ok(()),
    }
}

fn file_to_add(file: &Path, args: &AddArgs) -> FileToAdd {
    FileToAdd {
        file: file.to_owned(),
        name: args.name.clone(),
        method: args.mode.method(),
        algorithm: args.hash_algo,
    }
}
