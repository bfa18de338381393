//! The entries of a list: a store path in each line.

use floe_format::StorePath;
use floe_format::drv_name::name_and_version;

use crate::name_spec::OUTPUTS;

/// A path of a list, with the parts of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The line.
    pub path: &'a str,
    /// The hash part and the name.
    pub base_name: &'a str,
    /// The name without version and output, such as `jq`.
    pub package: &'a str,
    /// The version, such as `1.7.1`. It is empty if the name has none.
    pub version: &'a str,
    /// The output, such as `out` or `man`.
    pub output: &'a str,
}

impl<'a> Entry<'a> {
    /// Parses a line. Returns `None` for another text and for a derivation.
    fn parse(line: &'a str) -> Option<Entry<'a>> {
        let path = line.trim();
        let base_name = path.rsplit('/').next()?;
        let name = base_name.get(HASH_PART_LEN..)?.strip_prefix('-')?;
        if name.is_empty() || name.ends_with(".drv") {
            return None;
        }
        let (package, version) = name_and_version(name);
        let (version, output) = match version.rsplit_once('-') {
            Some((version, output)) if OUTPUTS.contains(&output) => (version, output),
            _ => (version, "out"),
        };
        Some(Entry {
            path,
            base_name,
            package,
            version,
            output,
        })
    }

    /// Returns the store path, unless it has a character that no path has.
    pub(crate) fn store_path(&self) -> Option<StorePath> {
        StorePath::parse(self.base_name).ok()
    }
}

/// Returns the entries of a list. Lines without a store path have none.
pub fn parse_list(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.lines().filter_map(Entry::parse)
}

/// The length of the hash part of a path.
const HASH_PART_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_packages_versions_and_outputs() {
        let hash = "0".repeat(32);
        for (name, expected) in [
            ("jq-1.7.1", ("jq", "1.7.1", "out")),
            ("jq-1.7.1-bin", ("jq", "1.7.1", "bin")),
            (
                "python3.12-requests-2.31.0",
                ("python3.12-requests", "2.31.0", "out"),
            ),
            ("source", ("source", "", "out")),
            (
                "foo-unstable-2024-01-02-dev",
                ("foo-unstable", "2024-01-02", "dev"),
            ),
            ("bar-1.0-unstable", ("bar", "1.0-unstable", "out")),
        ] {
            let line = format!("/nix/store/{hash}-{name}");
            let entry = Entry::parse(&line).unwrap();
            assert_eq!((entry.package, entry.version, entry.output), expected);
            assert_eq!(entry.store_path().unwrap().name(), name);
        }
        for line in [
            "",
            "<html>",
            "/nix/store/x",
            &format!("{hash}-a-1.drv"),
            &format!("{hash}-"),
        ] {
            assert_eq!(Entry::parse(line), None, "{line}");
        }
    }
}
