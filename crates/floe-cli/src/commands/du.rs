//! `floe du`: shows how large closures are, and which references make them large.

pub(crate) mod args;
pub(crate) mod page;

use std::cmp::Reverse;

use floe_format::StorePath;
use floe_transfer::Size;
use serde_json::{Map, Value, json};

use crate::closures::Closures;
use crate::stdout::{LongOutput, print};
use args::DuArgs;

pub(crate) fn run(args: &DuArgs) -> anyhow::Result<()> {
    let closures = Closures::query(&args.closure, &args.paths)?;
    let usages = closures.roots.iter().map(|root| Usage::of(&closures, root));
    if args.closure.json {
        let dir = &closures.store_dir;
        let objects = usages.map(|it| (dir.full_path(it.path), it.to_json(&closures)));
        return print(Value::Object(objects.collect()));
    }
    let mut output = LongOutput::new();
    _ = output.write(" CLOSURE       OWN      ONLY  PATH\n");
    for usage in usages {
        if output.write(usage.to_text(&closures)).is_break() {
            break;
        }
    }
    output.finish()
}

/// The sizes of a closure and of its parts.
struct Usage<'a> {
    path: &'a StorePath,
    /// The number of paths in the closure.
    paths: usize,
    /// The sum of the NAR sizes of the closure, in bytes.
    closure_size: u64,
    /// The references, the one with the largest share first.
    references: Vec<Share<'a>>,
}

/// The part of a closure that a reference of its root brings in.
struct Share<'a> {
    path: &'a StorePath,
    /// The size of the closure of the reference, in bytes.
    closure_size: u64,
    /// The size of the paths that no other reference brings in, in bytes.
    only_size: u64,
}

impl<'a> Usage<'a> {
    fn of(closures: &'a Closures, root: &'a StorePath) -> Usage<'a> {
        let all = closures.closure(root);
        let closure_size = closures.size(all.iter().copied());
        let shares = closures.other_references(root).map(|reference| {
            let without = closures.reachable([root], |from, to| (from, to) != (root, reference));
            Share {
                path: reference,
                closure_size: closures.size(closures.closure(reference)),
                only_size: closure_size.saturating_sub(closures.size(without)),
            }
        });
        let mut references: Vec<Share<'_>> = shares.collect();
        references.sort_by_key(|it| (Reverse((it.only_size, it.closure_size)), it.path));
        Usage {
            path: root,
            paths: all.len(),
            closure_size,
            references,
        }
    }

    /// Returns a line for the path, and one for each reference.
    fn to_text(&self, closures: &Closures) -> String {
        let line = |closure: u64, path: &StorePath, only: Option<u64>, indent: &str| {
            let (closure, own) = (Size(closure), Size(closures.nar_size(path)));
            let only = only.map_or(String::new(), |only| Size(only).to_string());
            let path = closures.store_dir.full_path(path);
            format!("{closure:>8}  {own:>8}  {only:>8}  {indent}{path}\n")
        };
        let references = self.references.iter();
        let lines = references.map(|it| line(it.closure_size, it.path, Some(it.only_size), "  "));
        let first = line(self.closure_size, self.path, None, "");
        std::iter::once(first).chain(lines).collect()
    }

    fn to_json(&self, closures: &Closures) -> Value {
        let dir = &closures.store_dir;
        let references = self.references.iter().map(|it| {
            let share = json!({
                "narSize": closures.nar_size(it.path),
                "closureNarBytes": it.closure_size,
                "onlyNarBytes": it.only_size,
            });
            (dir.full_path(it.path), share)
        });
        json!({
            "narSize": closures.nar_size(self.path),
            "closurePaths": self.paths,
            "closureNarBytes": self.closure_size,
            "references": references.collect::<Map<String, Value>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_paths_count_for_no_reference_alone() {
        let closures = Closures::of(&[
            ("0", 1, &["0", "1", "2", "4"]),
            ("1", 10, &["3"]),
            ("2", 100, &["3", "4"]),
            ("3", 1000, &[]),
            ("4", 10_000, &[]),
        ]);
        let usage = Usage::of(&closures, &closures.roots[0]);
        assert_eq!((usage.closure_size, usage.paths), (11_111, 5));
        let shares = usage.references.iter();
        let shares: Vec<_> = shares
            .map(|it| (it.path.name(), it.closure_size, it.only_size))
            .collect();
        assert_eq!(
            shares,
            [("2", 11_100, 100), ("1", 1010, 10), ("4", 10_000, 0)]
        );
    }

    #[test]
    fn sizes_that_no_store_can_have_do_not_overflow() {
        let huge = u64::MAX - 1;
        let closures = Closures::of(&[("0", huge, &["1"]), ("1", huge, &[])]);
        let usage = Usage::of(&closures, &closures.roots[0]);
        assert_eq!(usage.closure_size, u64::MAX);
        assert_eq!(usage.references[0].only_size, 1);
    }
}
