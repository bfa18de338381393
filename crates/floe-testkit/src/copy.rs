//! Copies of files that a test may modify or execute.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::run;

/// Copies a tree of plain files, without their modes.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Copies an executable.
///
/// `cp` does it in another process. If this process had the copy open for writing while another
/// test forked, the child would inherit the descriptor, and running the copy would fail with
/// `ETXTBSY`.
pub fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    run(command.arg("--preserve=mode").args([from, to])).expect(0);
}
