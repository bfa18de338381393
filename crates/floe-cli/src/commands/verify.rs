//! `floe verify`: what `nix-store --verify --check-contents` would find, without repairing it.

use std::time::Instant;

use anyhow::bail;
use floe_engine::{Location, Root};
use floe_format::StorePath;
use floe_store::{Fault, StoreReader};
use serde_json::{Value, json};

use super::print;
use crate::args::VerifyArgs;
use crate::failure::Silent;
use crate::progress::say;
use crate::settings;

pub(crate) fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let store_dir = settings::store_dir(args.store_dir.as_deref())?;
    let named = args.store.as_deref();
    let Location::Store(layout) = settings::store(args.root.as_deref(), named, store_dir.as_ref())?
    else {
        bail!(
            "{} is a binary cache; floe verifies local stores",
            named.unwrap_or_default()
        );
    };
    let store = StoreReader::open(layout)?;
    let paths = args
        .paths
        .iter()
        .map(|text| find(&store, text))
        .collect::<Result<Vec<_>, _>>()?;
    let found = store.verify(&paths, args.jobs, &|_| {})?;
    let print_path = |path: &StorePath| store.layout().store_dir.print(path);
    if args.json {
        print(json!({
            "paths": found.paths,
            "narBytes": found.nar_bytes,
            "links": found.links,
            "faults": found.faults.iter().map(|f| to_json(f, &print_path)).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        for fault in &found.faults {
            print(describe(fault, &print_path))?;
        }
    }
    say(format_args!(
        "verified {} paths ({}) and {} links: {} faults",
        found.paths,
        indicatif::HumanBytes(found.nar_bytes),
        found.links,
        found.faults.len(),
    ));
    match found.faults.is_empty() {
        true => Ok(()),
        false => Err(Silent(FAULTS_EXIT_CODE).into()),
    }
}

/// The path that a user means: a hash part stands for the valid path that has it.
fn find(store: &StoreReader, text: &str) -> anyhow::Result<StorePath> {
    match Root::parse(text, &store.layout().store_dir)? {
        Root::Path(path) => Ok(path),
        Root::HashPart(part) => match store.path_of_hash_part(&part)? {
            Some(path) => Ok(path),
            None => bail!(
                "no valid path of {} has the hash part {part}",
                store.layout().real_store.display()
            ),
        },
    }
}

fn describe(fault: &Fault, print: &dyn Fn(&StorePath) -> String) -> String {
    match fault {
        Fault::NotValid(path) => format!("path '{}' is not valid", print(path)),
        Fault::Disappeared { path, referrers } if referrers.is_empty() => {
            format!("path '{}' disappeared", print(path))
        }
        Fault::Disappeared { path, referrers } => {
            let referrers: Vec<String> = referrers.iter().map(print).collect();
            format!(
                "path '{}' disappeared, and {} need it",
                print(path),
                referrers.join(", ")
            )
        }
        Fault::Modified {
            path,
            expected,
            actual,
        } => format!(
            "path '{}' was modified: expected hash '{}', got '{}'",
            print(path),
            expected.to_nix32(),
            actual.to_nix32()
        ),
        Fault::WrongSize {
            path,
            expected,
            actual,
        } => format!(
            "path '{}' has a wrong size in the database: expected {expected}, got {actual}",
            print(path)
        ),
        Fault::Unreadable { path, error } => format!("path '{}': {error}", print(path)),
        Fault::ModifiedLink { name, actual } => {
            format!("link .links/{name} was modified: got '{actual}'")
        }
    }
}

fn to_json(fault: &Fault, print: &dyn Fn(&StorePath) -> String) -> Value {
    let (kind, subject) = match fault {
        Fault::NotValid(path) => ("notValid", print(path)),
        Fault::Disappeared { path, .. } => ("disappeared", print(path)),
        Fault::Modified { path, .. } => ("modified", print(path)),
        Fault::WrongSize { path, .. } => ("wrongSize", print(path)),
        Fault::Unreadable { path, .. } => ("unreadable", print(path)),
        Fault::ModifiedLink { name, .. } => ("modifiedLink", format!(".links/{name}")),
    };
    json!({ "kind": kind, "path": subject, "message": describe(fault, print) })
}

/// "Untrusted or corrupt" in docs/interface.md.
const FAULTS_EXIT_CODE: u8 = 3;
