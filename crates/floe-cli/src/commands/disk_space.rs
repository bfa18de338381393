//! What a dry run says of room: how much would be written, and how much is free where.

use floe_engine::Space;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::display::eprint_line;

/// Says it on stderr; stdout has the plan.
pub(super) fn print_space(space: &Space) {
    let (bytes, inodes) = (HumanBytes(space.write_bytes), space.write_inodes);
    let file_system = &space.file_system;
    let free = match (file_system.free_bytes, file_system.free_inodes) {
        (None, _) => "which does not say what is free".to_owned(),
        (Some(bytes), None) => format!("{} free", HumanBytes(bytes)),
        (Some(bytes), Some(inodes)) => format!("{} and {inodes} inodes free", HumanBytes(bytes)),
    };
    let kind = file_system.kind.map(|kind| format!(" ({kind})"));
    eprint_line(format_args!(
        "to write: about {bytes} and {inodes} inodes, to {}{}: {free}",
        file_system.mount_point.display(),
        kind.unwrap_or_default(),
    ));
}

/// Adds it to the JSON object. Without a plan nothing is written, wherever that is.
pub(super) fn insert_space(object: &mut Value, space: Option<&Space>) {
    object["writeBytes"] = json!(space.map_or(0, |space| space.write_bytes));
    object["writeInodesEstimate"] = json!(space.map_or(0, |space| space.write_inodes));
    let Some(space) = space else { return };
    let file_system = &space.file_system;
    object["freeBytes"] = json!(file_system.free_bytes);
    object["freeInodes"] = json!(file_system.free_inodes);
    object["fileSystem"] = json!({
        "directory": file_system.mount_point.display().to_string(),
        "kind": file_system.kind,
    });
}
