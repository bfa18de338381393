//! `floe link-names`: links by which other programs find floe under the names of Nix's programs.

pub(crate) mod args;
pub(crate) mod page;

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::nix_names::LINKED;
use crate::options;
use crate::stdout::print;
use args::LinkNamesArgs;

pub(crate) fn run(args: &LinkNamesArgs) -> anyhow::Result<()> {
    let floe = env::current_exe().context("cannot find the program floe itself")?;
    fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot create the directory {}", args.dir.display()))?;
    let dir = fs::canonicalize(&args.dir)
        .with_context(|| format!("cannot open the directory {}", args.dir.display()))?;
    // Nothing is linked unless all names are free.
    for name in LINKED {
        check_free(&dir.join(name), &floe)?;
        check_not_hidden(name, &dir, &floe)?;
    }
    let target = match floe.strip_prefix(&dir) {
        // Such a link also works where both files are copied.
        Ok(name) => name.to_path_buf(),
        Err(_) => floe.clone(),
    };
    for name in LINKED {
        let link = dir.join(name);
        if !leads_to(&link, &floe) {
            replace_link(&target, &link)
                .with_context(|| format!("cannot create the link {}", link.display()))?;
        }
        print(format_args!("{} -> {}", link.display(), target.display()))?;
    }
    Ok(())
}

/// Creates a link, or replaces one at a single moment.
fn replace_link(target: &Path, link: &Path) -> io::Result<()> {
    let new = link.with_extension(format!("new-{}", std::process::id()));
    symlink(target, &new)?;
    fs::rename(&new, link).inspect_err(|_| {
        // The error of the rename counts.
        let _: io::Result<()> = fs::remove_file(&new);
    })
}

/// Checks that nothing but a link to a program named floe is at a place.
fn check_free(link: &Path, floe: &Path) -> anyhow::Result<()> {
    match fs::read_link(link) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(target) if leads_to(link, floe) || target.file_name() == Some(PROGRAM.as_ref()) => {
            Ok(())
        }
        _ => bail!(
            "cannot create the link {}: another file is there; choose another directory, or move \
             it away",
            link.display()
        ),
    }
}

/// Checks that no program of Nix would be hidden, or would hide the link.
fn check_not_hidden(name: &str, dir: &Path, floe: &Path) -> anyhow::Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.extend(NIX_DIRECTORIES.map(PathBuf::from));
    let environment = options::environment();
    directories.extend(environment.home().map(|home| home.join(".nix-profile/bin")));
    for directory in directories {
        let program = directory.join(name);
        let is_own = fs::canonicalize(&directory).is_ok_and(|found| found == dir);
        if !is_own && program.exists() && !leads_to(&program, floe) {
            bail!(
                "cannot create the link {name} in {}: {} is Nix, and programs expect to find it; \
                 use Nix, or remove it first",
                dir.display(),
                program.display()
            );
        }
    }
    Ok(())
}

fn leads_to(link: &Path, floe: &Path) -> bool {
    matches!((fs::canonicalize(link), fs::canonicalize(floe)), (Ok(link), Ok(floe)) if link == floe)
}

/// The file name of floe, unless a user has changed it.
const PROGRAM: &str = "floe";

/// The directories in which Nix installs its programs.
const NIX_DIRECTORIES: [&str; 2] = [
    "/nix/var/nix/profiles/default/bin",
    "/run/current-system/sw/bin",
];
