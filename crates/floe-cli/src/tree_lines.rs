//! Trees of paths with the lines of Nix.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Whether the branches of a path are below its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occurrence {
    First,
    /// They are below an earlier line.
    Again,
}

/// Returns the branches of a path.
type Branches<'a, P> = dyn FnMut(&P) -> anyhow::Result<Vec<P>> + 'a;

/// Writes the text before a path, and the path.
type WriteLine<'a, P> = dyn FnMut(&str, &P, Occurrence) -> anyhow::Result<ControlFlow<()>> + 'a;

/// Draws the tree of each root. The work ends if `write` breaks. A tree may be deep, so its depth
/// uses no stack.
///
/// Errors: those of the functions.
pub(crate) fn draw_trees<P: Clone + Ord>(
    roots: impl IntoIterator<Item = P>,
    branches: &mut Branches<'_, P>,
    write: &mut WriteLine<'_, P>,
) -> anyhow::Result<()> {
    let mut done = BTreeSet::new();
    for root in roots {
        // Each path with the text before it, and the text before its branches.
        let mut open = vec![(root, String::new(), String::new())];
        while let Some((path, before, below)) = open.pop() {
            let occurrence = if done.insert(path.clone()) {
                Occurrence::First
            } else {
                Occurrence::Again
            };
            if write(&before, &path, occurrence)?.is_break() {
                return Ok(());
            }
            if occurrence == Occurrence::Again {
                continue;
            }
            // The last one on the stack is written first.
            for (number, branch) in branches(&path)?.into_iter().rev().enumerate() {
                let (own, after) = if number == 0 {
                    ("└───", "    ")
                } else {
                    ("├───", "│   ")
                };
                open.push((branch, format!("{below}{own}"), format!("{below}{after}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_tree_needs_no_stack() {
        let mut lines = 0_u32;
        draw_trees(
            [0_u32],
            &mut |path| Ok(if *path < 5000 { vec![path + 1] } else { vec![] }),
            &mut |before, path, occurrence| {
                assert_eq!(before.chars().count() as u32, path * 4);
                assert_eq!(occurrence, Occurrence::First);
                lines += 1;
                Ok(ControlFlow::Continue(()))
            },
        )
        .unwrap();
        assert_eq!(lines, 5001);
    }

    #[test]
    fn branches_stand_below_the_first_line_alone() {
        let mut text = String::new();
        let mut write = |before: &str, path: &&str, occurrence| {
            let mark = match occurrence {
                Occurrence::First => "",
                Occurrence::Again => " [...]",
            };
            text += &format!("{before}{path}{mark}\n");
            Ok(ControlFlow::Continue(()))
        };
        let mut branches = |path: &&str| {
            Ok(match *path {
                "a" => vec!["b", "c"],
                "b" => vec!["c"],
                "c" => vec!["d"],
                _ => vec![],
            })
        };
        draw_trees(["a"], &mut branches, &mut write).unwrap();
        let expected = "a\n├───b\n│   └───c\n│       └───d\n└───c [...]\n";
        assert_eq!(text, expected);
    }
}
