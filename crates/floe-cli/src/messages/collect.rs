//! The texts of `floe gc`, `delete` and `optimise`.

use std::fmt::Display;
use std::path::Path;

use floe_store::{AlivePath, DeleteFailure, RootPlace};
use floe_transfer::Size;

use super::counted;
pub(crate) use super::manage::escaped;

/// The line of `nix-store --gc --print-roots`.
pub(crate) fn root(place: impl Display, path: &str) -> String {
    format!("{} -> {path}", escaped(place))
}

pub(crate) fn unknown_free_space(store: &Path) -> String {
    let store = store.display();
    format!(
        "cannot find out the free space of {store}: its file system does not count it; try \
         --max-freed BYTES"
    )
}

pub(crate) fn dead(path: &str, size: Size) -> String {
    format!("{size:>8}  {path}")
}

pub(crate) fn would_delete(paths: usize, size: Size) -> String {
    match paths {
        0 => "nothing to delete: roots keep all paths in the store directory".into(),
        paths => format!("would delete {} ({size})", counted(paths, "path")),
    }
}

pub(crate) const NOTHING_DELETABLE: &str = "nothing to delete: all of these paths are alive";

pub(crate) fn will_delete(paths: u64, size: Size) -> String {
    let paths = counted(count(paths), "path");
    format!("deleting {paths} without any root ({size} as NARs)")
}

pub(crate) fn deleting((done, all): (u64, u64), (done_size, size): (Size, Size)) -> String {
    format!("deleted {done} of {all} paths ({done_size} of {size})")
}

pub(crate) fn deleted(paths: u64, size: Size) -> String {
    match paths {
        0 => "deleted no path".into(),
        paths => format!("deleted {}, freed {size}", counted(count(paths), "path")),
    }
}

pub(crate) fn removed_registrations(count: usize) -> String {
    let registrations = counted(count, "registration");
    format!("removed {registrations} of roots that do not exist")
}

pub(crate) fn saved(size: Size) -> String {
    format!("hard links between equal files save {size}")
}

pub(crate) fn failure(failure: &DeleteFailure) -> String {
    let hint = match failure.source.kind() {
        std::io::ErrorKind::PermissionDenied => "; remove it as root, after lsattr and chattr -i",
        _ => "",
    };
    format!("{}{hint}", escaped(failure))
}

pub(crate) fn circular(count: usize, first: impl Display) -> String {
    let paths = counted(count, "path");
    format!(
        "skipping {paths} such as {first}: they refer to each other in a circle, so the database \
         is damaged; nix-store --verify finds more"
    )
}

pub(crate) fn not_deleted(count: usize) -> String {
    let places = counted(count, "place");
    format!("cannot delete all files at {places}; the next collection tries again")
}

pub(crate) fn absent(path: &str) -> String {
    format!("skipping {path}: this store does not have it")
}

pub(crate) fn not_in_store(path: &str) -> String {
    format!("cannot delete {path}: this store does not have it")
}

pub(crate) fn alive(path: &str, obstacle: &AlivePath, chain: &[String]) -> String {
    let first = chain.first().map_or(path, String::as_str);
    let chain = match chain {
        [] | [_] => String::new(),
        chain => format!(" ({})", chain.join(" -> ")),
    };
    match obstacle {
        AlivePath::Root {
            place: RootPlace::Link(place),
            ..
        } => format!(
            "cannot delete {path}: the root {} keeps it{chain}; remove the root first, or try \
             --skip-alive",
            escaped(place.display())
        ),
        AlivePath::Root { place, .. } => format!(
            "cannot delete {path}: the {} keeps it{chain}; wait for the end of the process, or try \
             --skip-alive",
            escaped(used(place, first))
        ),
        AlivePath::InUse { .. } => format!(
            "cannot delete {path}: a process uses it{chain}; wait for its end, or try --skip-alive"
        ),
        AlivePath::DamagedRow { .. } => format!(
            "cannot delete {path}: a damaged row of the database names it{chain}; try floe verify \
             --repair first"
        ),
        AlivePath::LostReference { .. } => format!(
            "cannot delete {path}: {first} has lost a reference in the database, which may be this \
             path; try floe verify --repair first"
        ),
        AlivePath::Referrer { .. } => format!(
            "cannot delete {path}: another path refers to it{chain}; try --also-referrers, which \
             deletes that too"
        ),
    }
}

/// Returns the use of a path by a process: that of a file below `/proc`, in words.
pub(crate) fn used(place: &RootPlace, path: &str) -> String {
    let described = place.describe_use(path);
    described.unwrap_or_else(|| format!("root {place}"))
}

fn count(paths: u64) -> usize {
    usize::try_from(paths).unwrap_or(usize::MAX)
}

// floe optimise

pub(crate) fn optimising((done, all): (u64, u64), (done_size, size): (Size, Size)) -> String {
    format!("read {done} of {all} paths ({done_size} of {size})")
}

pub(crate) fn linked(files: u64, size: Size, dry_run: bool) -> String {
    let files = counted(count(files), "file");
    match dry_run {
        true => format!("would link {files} to equal ones, which frees {size}"),
        false => format!("linked {files} to equal ones, which freed {size}"),
    }
}

pub(crate) fn writable_files(files: usize, first: &Path) -> String {
    let first = first.display();
    let others = match files {
        1 => String::new(),
        files => format!(" and {} more", files - 1),
    };
    format!(
        "skipping {first}{others}: a file that its owner may write may be changed; floe verify \
         shows whether it is"
    )
}

pub(crate) fn damaged_links(links: u64) -> String {
    format!(
        "replaced {} in .links whose contents did not match their names; paths that use such a \
         file are damaged: floe verify --repair fetches them again",
        counted(count(links), "file")
    )
}

pub(crate) fn not_optimised(paths: usize) -> String {
    format!("cannot link the files of {}", counted(paths, "path"))
}
