//! The space that a dry run reports: how much a copy would write, and how much is free.

use floe_transfer::Space;
use serde_json::{Value, json};

use crate::display::eprint_line;
use crate::messages::copy;

/// Prints it on stderr; stdout has the plan.
pub(super) fn print_space(space: &Space) {
    eprint_line(copy::space(space));
}

/// Adds it to the JSON object. An empty plan writes nothing and has no file system.
pub(super) fn insert_space(object: &mut Value, space: Option<&Space>) {
    object["writeBytes"] = json!(space.map_or(0, |space| space.write_bytes));
    object["writeInodesEstimate"] = json!(space.map_or(0, |space| space.write_inodes));
    let Some(space) = space else { return };
    let file_system = &space.file_system;
    object["freeBytes"] = json!(file_system.free_bytes);
    object["freeInodes"] = json!(file_system.free_inodes);
    object["fileSystem"] = json!({
        "mountPoint": file_system.mount_point.display().to_string(),
        "kind": file_system.kind,
    });
}
