//! The differences between two closures, by package, as `nix store diff-closures` finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use floe_format::StorePath;
use floe_format::drv_name::name_and_version;
use serde_json::{Value, json};

use crate::nix_sizes::render_size;

/// A package whose versions or size differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    name: String,
    before: BTreeSet<String>,
    after: BTreeSet<String>,
    /// The change of the sum of NAR sizes, in bytes.
    bytes: i64,
}

#[derive(Default)]
struct Package {
    versions: [BTreeSet<String>; 2],
    bytes: [u64; 2],
}

/// Returns the packages that differ between the closure before and the one after, each a list of
/// paths with their NAR sizes. They are sorted by name. As in Nix, a change of the size alone
/// counts from 8 KiB.
pub(crate) fn closure_diff<'a, C>(closures: [C; 2]) -> Vec<Change>
where
    C: IntoIterator<Item = (&'a StorePath, u64)>,
{
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    for (side, closure) in closures.into_iter().enumerate() {
        for (path, nar_size) in closure {
            let (name, version) = name_and_version(without_output(path.name()));
            let package = packages.entry(name).or_default();
            package.versions[side].insert(version.to_owned());
            package.bytes[side] = package.bytes[side].saturating_add(nar_size);
        }
    }
    let changes = packages.into_iter().map(|(name, package)| {
        let ([before, after], [old, new]) = (package.versions, package.bytes);
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        Change {
            name: name.to_owned(),
            bytes: signed(new) - signed(old),
            before,
            after,
        }
    });
    changes
        .filter(|it| it.before != it.after || it.has_other_size())
        .collect()
}

/// Removes what may be the name of an output, as Nix does: lower-case letters after the last
/// hyphen.
fn without_output(name: &str) -> &str {
    let split = name.rsplit_once('-').filter(|(_, output)| {
        let is_word = !output.is_empty() && output.bytes().all(|byte| byte.is_ascii_lowercase());
        is_word || matches!(*output, "lib32" | "lib64")
    });
    split.map_or(name, |(stem, _)| stem)
}

impl Change {
    fn has_other_size(&self) -> bool {
        self.bytes.unsigned_abs() >= SIZE_CHANGE_MIN
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "narBytes": self.bytes,
        })
    }
}

/// The line of Nix, with a sign before the size.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        let has_other_versions = self.before != self.after;
        if has_other_versions {
            let (gone, new) = (
                versions(&self.before, &self.after),
                versions(&self.after, &self.before),
            );
            write!(f, "{gone} → {new}")?;
        }
        if self.has_other_size() {
            let separator = if has_other_versions { ", " } else { "" };
            let sign = if self.bytes < 0 { '-' } else { '+' };
            let size = render_size(self.bytes.unsigned_abs());
            write!(f, "{separator}{sign}{size}")?;
        }
        Ok(())
    }
}

/// Returns the versions that only one side has.
fn versions(own: &BTreeSet<String>, other: &BTreeSet<String>) -> String {
    let own: BTreeSet<&str> = own
        .difference(other)
        .map(|version| match &**version {
            "" => "ε",
            version => version,
        })
        .collect();
    if own.is_empty() {
        return "∅".into();
    }
    own.into_iter().collect::<Vec<_>>().join(", ")
}

const SIZE_CHANGE_MIN: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_versions_and_sizes_only_if_they_differ() {
        let changed = |before: &[&str], after: &[&str], bytes| {
            let [before, after] =
                [before, after].map(|all| all.iter().map(|&it| it.to_owned()).collect());
            let name = "jq".to_owned();
            let change = Change {
                name,
                before,
                after,
                bytes,
            };
            change.to_string()
        };
        assert_eq!(
            changed(&["1.6"], &["1.7"], 20_480),
            "jq: 1.6 → 1.7, +20.0 KiB"
        );
        assert_eq!(changed(&["1.6"], &["1.6"], -20_480), "jq: -20.0 KiB");
        assert_eq!(changed(&["", "1"], &["1"], 0), "jq: ε → ∅");
        assert_eq!(changed(&[], &["1", "2"], 10), "jq: ∅ → 1, 2");
    }

    #[test]
    fn outputs_belong_to_the_same_package() {
        for (name, stem) in [
            ("curl-7.88.1-dev", "curl-7.88.1"),
            ("curl-7.88.1", "curl-7.88.1"),
            ("gcc-lib64", "gcc"),
            ("x-1.0-unstable", "x-1.0"),
            ("x-", "x-"),
            ("x", "x"),
        ] {
            assert_eq!(without_output(name), stem);
        }
    }

    #[test]
    fn small_change_of_size_alone_is_no_difference() {
        let paths = ["a-1", "a-2", "b-1"].map(|name| {
            let text = format!("{}-{name}", "0".repeat(32));
            StorePath::parse(&text).unwrap()
        });
        let diff = |sizes: [u64; 2]| {
            let [before, after] = sizes;
            closure_diff([vec![(&paths[2], before)], vec![(&paths[2], after)]]).len()
        };
        assert_eq!((diff([9000, 1000]), diff([10_000, 1000])), (0, 1));
        let changes = closure_diff([vec![(&paths[0], 1)], vec![(&paths[1], 1)]]);
        assert_eq!(changes[0].to_string(), "a: 1 → 2");
    }
}
