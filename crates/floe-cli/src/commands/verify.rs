//! `floe verify`: what `nix-store --verify --check-contents` would find, without repairing it.

use std::time::Instant;

use anyhow::bail;
use floe_engine::{Location, Root};
use floe_format::StoreDir;
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
        .map(|text| Root::parse(text, &store.layout().store_dir)?.find_in(&store))
        .collect::<Result<Vec<_>, _>>()?;
    let found = store.verify(&paths, args.jobs, &())?;
    let dir = &store.layout().store_dir;
    if args.json {
        print(json!({
            "paths": found.paths,
            "narBytes": found.nar_bytes,
            "links": found.links,
            "faults": found.faults.iter().map(|f| to_json(f, dir)).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        for fault in &found.faults {
            print(fault.describe(dir))?;
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

fn to_json(fault: &Fault, dir: &StoreDir) -> Value {
    let kind = match fault {
        Fault::NotValid(_) => "notValid",
        Fault::Disappeared { .. } => "disappeared",
        Fault::Modified { .. } => "modified",
        Fault::WrongSize { .. } => "wrongSize",
        Fault::Unreadable { .. } => "unreadable",
        Fault::ModifiedLink { .. } => "modifiedLink",
    };
    json!({ "kind": kind, "path": fault.subject(dir), "message": fault.describe(dir) })
}

/// "Untrusted or corrupt" in docs/interface.md.
const FAULTS_EXIT_CODE: u8 = 3;
