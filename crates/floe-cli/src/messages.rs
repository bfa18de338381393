//! The texts that users read, together in one place.
//!
//! Errors have the form `cannot VERB OBJECT: cause; try FIX`. Warnings begin with a verb. The texts
//! of the libraries' errors stand with their error types.

pub(crate) mod bench;
pub(crate) mod collect;
pub(crate) mod manage;
pub(crate) mod run;

use std::fmt::Display;
use std::path::Path;

use floe_config::UnknownSetting;
use floe_store::{DamagedRow, LostRecord};
use floe_transfer::Size;

/// `1 path`, `2 paths`.
pub(crate) fn counted(count: impl TryInto<usize>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(usize::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub(crate) fn directory(path: &Path) -> String {
    format!("cannot create the directory {}", path.display())
}

pub(crate) fn waiting_for_resource(resource: &str) -> String {
    format!("floe: waiting for {resource}")
}

// Rows of the database that do not parse

pub(crate) fn skipped_rows(rows: &[DamagedRow]) -> Option<String> {
    let rows = DamagedRow::describe(rows)?;
    Some(format!("skipping {rows}; try floe verify"))
}

pub(crate) fn kept_rows(rows: &[DamagedRow]) -> Option<String> {
    let lost = rows.iter().filter(|row| row.is_lost_reference()).cloned();
    if let Some(lost) = DamagedRow::describe(&lost.collect::<Vec<DamagedRow>>()) {
        return Some(format!(
            "keeping all paths and files of the store, because one of them may be the lost \
             reference in {lost}; try floe verify --repair"
        ));
    }
    let rows = DamagedRow::describe(rows)?;
    Some(format!(
        "keeping all paths in {rows}; try floe verify --repair"
    ))
}

pub(crate) fn removed_row(path: &str) -> String {
    format!("floe: removed {path} from the database: its files are gone, and no source has it")
}

pub(crate) fn kept_rows_of_empty_store(store: &Path) -> String {
    let store = store.display();
    format!(
        "keeping the paths of {store} in the database: no file is there, so its file system may \
         not be mounted; try mount {store}"
    )
}

// Opening a store

pub(crate) fn checking_paths(paths: usize) -> String {
    let paths = counted(paths, "path");
    format!("checking {paths} whose files may not have reached the disk")
}

pub(crate) fn lost_rows(trees: usize) -> String {
    format!(
        "the database had no tables, and floe has made them: {} of the store {} not registered \
         any more; floe install registers a path again, and a backup of db.sqlite restores all",
        counted(trees, "path"),
        if trees == 1 { "is" } else { "are" }
    )
}

pub(crate) fn lost_sync_record(reason: LostRecord) -> String {
    let defect = match reason {
        LostRecord::Deleted => "it was deleted",
        LostRecord::BeyondDatabase => "it belongs to another database",
    };
    format!(
        "replacing the record of paths that may not have reached the disk: {defect}; if the system \
         lost its power, floe verify finds damaged paths"
    )
}

// floe config

pub(crate) fn unknown_setting(setting: &UnknownSetting) -> String {
    let UnknownSetting {
        name,
        origin,
        nearest,
    } = setting;
    let fix = match nearest {
        Some(nearest) => format!("use {nearest}"),
        None => "floe config lists the settings of floe".into(),
    };
    format!("ignoring {name} ({origin}): neither floe nor Nix has such a setting; {fix}")
}

/// The note of `floe config` about a store to which the user may not write.
pub(crate) fn written_through(daemon: impl Display) -> String {
    format!("this user may not write to it, so floe writes through {daemon}")
}

pub(crate) fn unreadable_conf_file(file_and_cause: &str) -> String {
    format!("floe: ignoring the configuration file {file_and_cause}")
}

// floe verify

pub(crate) fn cache_not_verifiable(cache: impl Display) -> String {
    format!(
        "cannot verify {cache}: it is a binary cache; copy its paths into a store with floe copy, which verifies them"
    )
}

pub(crate) fn paths_not_verifiable(store: impl Display) -> String {
    format!(
        "cannot verify single paths of {store}: its daemon verifies whole stores; leave out the \
         paths"
    )
}

pub(crate) fn repairs_from_own_substituters(store: impl Display) -> String {
    format!(
        "cannot repair {store} from another cache: its daemon uses its own substituters; leave out \
         --from and --refresh"
    )
}

pub(crate) fn verified_by_daemon(store: impl Display, has_problems: bool) -> String {
    match has_problems {
        true => format!("the daemon of {store} verified its store: problems remain"),
        false => format!("the daemon of {store} verified its store: no problem remains"),
    }
}

pub(crate) fn verified(paths: u64, nar_bytes: u64, links: u64, problems: usize) -> String {
    let (bytes, problems) = (Size(nar_bytes), counted(problems, "problem"));
    let [paths, links] = [(paths, "path"), (links, "link")]
        .map(|(count, noun)| counted(usize::try_from(count).unwrap_or(usize::MAX), noun));
    format!("verified {paths} ({bytes}) and {links}: {problems}")
}

pub(crate) fn repaired(verified: &str, repaired: usize) -> String {
    format!("{verified}, {repaired} repaired")
}

// floe key

pub(crate) const SECRET_KEY_ON_STDIN: &str = "cannot read a secret key from stdin";
pub(crate) const NO_RANDOMNESS: &str = "cannot generate a key: the system provides no random bytes";

pub(crate) fn invalid_key_name(name: &str, cause: impl Display) -> String {
    format!("cannot name a key {name:?}: {cause}")
}

// floe man

pub(crate) fn manual_pages(dir: &Path) -> String {
    format!("cannot write manual pages into {}", dir.display())
}

// floe demo

pub(crate) fn demo_program(program: &Path) -> String {
    format!("cannot copy {}", program.display())
}

pub(crate) fn demo_run(program: &Path) -> String {
    format!("cannot run {}", program.display())
}

#[cfg(test)]
mod tests;
