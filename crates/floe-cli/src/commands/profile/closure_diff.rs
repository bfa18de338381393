//! The differences between two closures, by package (`nix profile diff-closures`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use floe_format::PathInfo;
use floe_format::drv_name::name_and_version;
use floe_transfer::Size;
use serde_json::{Value, json};

/// A package whose versions or size differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
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

/// Returns the packages that differ, sorted by name. As in Nix, a change of the size alone counts
/// from 8 KiB.
pub(super) fn closure_diff(before: &[PathInfo], after: &[PathInfo]) -> Vec<Change> {
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    for (side, closure) in [before, after].into_iter().enumerate() {
        for info in closure {
            let (name, version) = name_and_version(info.path.name());
            let package = packages.entry(name).or_default();
            package.versions[side].insert(version.to_owned());
            package.bytes[side] += info.nar_size;
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
        .filter(|it| it.before != it.after || it.bytes.unsigned_abs() >= SIZE_CHANGE_MIN)
        .collect()
}

impl Change {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "narBytes": self.bytes,
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gone, new) = (
            versions(&self.before, &self.after),
            versions(&self.after, &self.before),
        );
        write!(f, "  {}: ", self.name)?;
        if gone != new {
            write!(f, "{gone} -> {new}, ")?;
        }
        let sign = if self.bytes < 0 { '-' } else { '+' };
        write!(f, "{sign}{}", Size(self.bytes.unsigned_abs()))
    }
}

/// Returns the versions that only one side has.
fn versions(own: &BTreeSet<String>, other: &BTreeSet<String>) -> String {
    if own.is_empty() {
        return "∅".into();
    }
    let own = own.difference(other).map(|version| match &**version {
        "" => "ε",
        version => version,
    });
    own.collect::<Vec<_>>().join(", ")
}

const SIZE_CHANGE_MIN: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_package_names_versions_only_if_they_differ() {
        let changed = |before: &str, after: &str, bytes| {
            let [before, after] = [before, after].map(|version| [version.to_owned()].into());
            let name = "jq".to_owned();
            let change = Change {
                name,
                before,
                after,
                bytes,
            };
            change.to_string()
        };
        assert_eq!(changed("1.6", "1.7", 20_480), "  jq: 1.6 -> 1.7, +20 KiB");
        assert_eq!(changed("1.6", "1.6", -20_480), "  jq: -20 KiB");
    }
}
