//! Listings of store directories, to compare two stores.

use std::fs;
use std::path::Path;

/// Lists every file below `root/nix/store` with mode, owner, modification time and contents.
pub fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    list(&root.join("nix/store"), Path::new(""), &mut lines);
    lines.sort();
    assert!(!lines.is_empty(), "{} is empty", root.display());
    lines
}

fn list(base: &Path, relative: &Path, lines: &mut Vec<String>) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(base.join(relative)).unwrap() {
        let name = relative.join(entry.unwrap().file_name());
        // Nix creates `.links` for --optimise, so its modification time is arbitrary.
        if name == Path::new(".links") {
            continue;
        }
        let path = base.join(&name);
        let stat = fs::symlink_metadata(&path).unwrap();
        let contents = if stat.is_file() {
            floe_hash::sha256(&fs::read(&path).unwrap())
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect()
        } else if stat.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            String::new()
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {contents}",
            name.display(),
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.mtime()
        ));
        if stat.is_dir() {
            list(base, &name, lines);
        }
    }
}
