//! The rule that each file that floe writes is a `WrittenFile`, whose close reports errors.

use super::code::Pattern::{self, Letters, Method, Path};

/// The ways to create a file, or to open one for writing.
pub(super) const PATTERNS: &[Pattern] = &[
    Path("File", "create"),
    Path("File", "create_new"),
    Path("File", "create_buffered"),
    Path("File", "options"),
    Letters("openoptions"),
    Path("fs", "write"),
    Path("fs", "copy"),
    Path("OFlags", "WRONLY"),
    Path("OFlags", "RDWR"),
    Path("OFlags", "CREATE"),
    Path("OFlags", "TMPFILE"),
    Letters("namedtempfile"),
    Path("tempfile", "tempfile"),
    Path("tempfile", "tempfile_in"),
    Method("tempfile"),
    Method("tempfile_in"),
];

pub(super) const WHY: &str = "a file system may report a failed write only at the close; write \
                              files with WrittenFile of floe-store";

/// The functions of the standard library that list a directory.
pub(super) const LISTINGS: &[Pattern] = &[Path("fs", "read_dir"), Path("fs", "remove_dir_all")];

pub(super) const WHY_LISTINGS: &str = "the standard library panics if the close of a directory \
                                       fails; use list_directory or remove_tree of floe-store";

/// Whether the rule about written files applies to a shipped file of a package.
pub(super) fn applies(package: &str, file: &str) -> bool {
    let is_tool = matches!(package, "floe-testkit" | "xtask");
    !is_tool && !EXEMPT.iter().any(|(exempt, _)| *exempt == file)
}

/// Whether the rule about listed directories applies to a shipped file of a package.
pub(super) fn applies_to_listings(package: &str, file: &str) -> bool {
    const PACKAGES: [&str; 3] = ["floe-store", "floe-cache", "floe-server"];
    let is_exempt = EXEMPT_LISTINGS.iter().any(|(exempt, _)| *exempt == file);
    PACKAGES.contains(&package) && !is_exempt
}

/// Files that may open others for writing, each with the reason.
const EXEMPT: &[(&str, &str)] = &[
    (
        "crates/floe-store/src/disk/written_file.rs",
        "it defines WrittenFile",
    ),
    (
        "crates/floe-store/src/disk/directory/entry.rs",
        "it opens lock files and roots files, which stay open",
    ),
    (
        "crates/floe-bench/src/run.rs",
        "a measured program writes and closes the file",
    ),
    (
        "crates/floe-cli/src/commands/run/user_namespace.rs",
        "files of /proc report errors when they are written",
    ),
    (
        "crates/floe-cli/src/commands/serve/access_log.rs",
        "a server keeps its logs open until it ends, and reports failed writes",
    ),
    (
        "crates/floe-daemon/src/spool.rs",
        "the file has no name, and is read before its end",
    ),
    (
        "crates/floe-cli/src/commands/serve/process.rs",
        "/dev/null has no contents",
    ),
];

/// Files that may list directories through the standard library, each with the reason.
const EXEMPT_LISTINGS: &[(&str, &str)] = &[
    (
        "crates/floe-store/src/roots/gc_roots/processes.rs",
        "it lists /proc",
    ),
    (
        "crates/floe-server/src/metrics/process.rs",
        "it lists /proc",
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::code::{lines_with, tokens, without_tests};
    use super::*;

    #[test]
    fn exempt_files_still_need_their_exemption() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (exempt, patterns) in [(EXEMPT, PATTERNS), (EXEMPT_LISTINGS, LISTINGS)] {
            for (file, reason) in exempt {
                let text = fs::read_to_string(root.join(file)).unwrap();
                let code = without_tests(&tokens(&text));
                let is_needed = |pattern: &&Pattern| !lines_with(&code, **pattern).is_empty();
                assert!(patterns.iter().any(|it| is_needed(&it)), "{file}: {reason}");
            }
        }
    }
}
