//! The rule that names in directories of other users are used relative to an open directory.

use std::collections::BTreeSet;

use super::Fault;
use super::code::Pattern::{self, Letters, Path};

/// The ways to open, create, rename or remove a file by its path.
pub(super) const PATTERNS: &[Pattern] = &[
    Path("File", "open"),
    Path("File", "create"),
    Path("File", "options"),
    Path("fs", "create_dir"),
    Path("fs", "create_dir_all"),
    Path("fs", "hard_link"),
    Path("fs", "read_dir"),
    Path("fs", "remove_dir"),
    Path("fs", "remove_dir_all"),
    Path("fs", "remove_file"),
    Path("fs", "rename"),
    Path("fs", "set_permissions"),
    Path("fs", "symlink"),
    Path("fs", "write"),
    Letters("cwd"),
    Letters("list_directory"),
];

pub(super) const WHY: &str = "another user may exchange the directories of this path; use \
                              Directory and Entry of floe-store";

/// Whether the rule applies to a shipped file: it uses names below `profiles`, `gcroots` and
/// `temproots`, locks, or links of users.
pub(super) fn applies(file: &str) -> bool {
    SHARED.iter().any(|begin| file.starts_with(begin)) && !EXEMPT.contains(&file)
}

/// Returns the entries of the rule that name no file any more.
pub(super) fn stale_entries(files: &BTreeSet<String>) -> Vec<Fault> {
    let is_stale = |begin: &&&str| !files.iter().any(|file| file.starts_with(**begin));
    let stale = SHARED.iter().filter(is_stale);
    let why = "crates/xtask/src/check/shared_directories.rs names it, and it does not exist";
    stale
        .map(|begin| Fault::new(begin, 0, "present", why))
        .collect()
}

const SHARED: &[&str] = &[
    "crates/floe-store/src/collect/collector/received_roots.rs",
    "crates/floe-store/src/roots",
    "crates/floe-store/src/locks",
    "crates/floe-cli/src/commands/gc",
    "crates/floe-cli/src/commands/list",
    "crates/floe-cli/src/commands/profile",
    "crates/floe-cli/src/commands/roots",
    "crates/floe-cli/src/commands/uninstall",
    "crates/floe-cli/src/copying/gc_roots",
    "crates/floe-cli/src/root_links",
];

/// `/proc` belongs to the system.
const EXEMPT: &[&str] = &["crates/floe-store/src/roots/gc_roots/processes.rs"];
