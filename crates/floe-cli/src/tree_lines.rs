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
        let mut open = Open {
            levels: vec![vec![root].into_iter()],
            padding: String::new(),
        };
        while let Some((before, path)) = open.next() {
            let occurrence = if done.insert(path.clone()) {
                Occurrence::First
            } else {
                Occurrence::Again
            };
            if write(&before, &path, occurrence)?.is_break() {
                return Ok(());
            }
            let below = match occurrence {
                Occurrence::First => branches(&path)?,
                Occurrence::Again => Vec::new(),
            };
            open.push(below);
        }
    }
    Ok(())
}

/// The paths whose lines are not written yet.
struct Open<P> {
    /// The rest of the branches at each depth, the deepest ones last.
    levels: Vec<std::vec::IntoIter<P>>,
    /// The text before the deepest branches: four characters for each level above.
    padding: String,
}

impl<P> Open<P> {
    /// Returns the next path, and the text before it.
    fn next(&mut self) -> Option<(String, P)> {
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            let Some(path) = level.next() else {
                self.levels.pop();
                if depth > 2 {
                    let end = self.padding.char_indices().nth_back(PADDING_LEN - 1);
                    self.padding.truncate(end.map_or(0, |(at, _)| at));
                }
                continue;
            };
            let own = match (depth, level.len()) {
                (1, _) => "",
                (_, 0) => "└───",
                (_, _) => "├───",
            };
            return Some((format!("{}{own}", self.padding), path));
        }
    }

    /// Adds the branches of the path that was returned last.
    fn push(&mut self, branches: Vec<P>) {
        if self.levels.len() > 1 {
            let is_last = self.levels.last().is_some_and(|level| level.len() == 0);
            self.padding.push_str(if is_last { "    " } else { "│   " });
        }
        self.levels.push(branches.into_iter());
    }
}

/// The width of a level.
const PADDING_LEN: usize = 4;

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
