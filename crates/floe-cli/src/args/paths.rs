//! The paths on the command line and on stdin.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::exit::UsageError;
use crate::{completions, path_lines};

/// The requested paths.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// All paths of the source, which must be able to list them
    #[arg(long, conflicts_with_all = ["stdin", "paths"])]
    pub(crate) all: bool,
    /// Read paths from stdin too, one in each line, as - among the paths does
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Store paths, base names, hash parts, files in store paths, links such as ./result, or names
    /// of paths in a local store
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(required_unless_present_any = ["all", "stdin"])]
    paths: Vec<String>,
}

impl PathArgs {
    /// Makes the arguments of a command that has further ways to name paths.
    pub(crate) fn new(all: bool, stdin: bool, paths: Vec<String>) -> PathArgs {
        PathArgs { all, stdin, paths }
    }

    /// Returns the paths of the command line and those of stdin.
    ///
    /// Errors: stdin cannot be read.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<String>> {
        read_paths(&self.paths, self.stdin)
    }

    /// Returns the paths of the command line.
    pub(crate) fn named(&self) -> Vec<String> {
        let named = self.paths.iter().filter(|path| *path != STDIN);
        named.cloned().collect()
    }

    /// Checks that there are paths for `--follow`: some come from stdin.
    pub(crate) fn check_follow(&self) -> Result<(), UsageError> {
        if self.stdin || self.paths.iter().any(|path| path == STDIN) {
            Ok(())
        } else {
            Err(UsageError(
                "cannot follow stdin: no path comes from there; add --stdin".into(),
            ))
        }
    }
}

/// Returns the paths with those of stdin in the place of `-`, or at their end.
///
/// Errors: stdin cannot be read.
pub(crate) fn read_paths(paths: &[String], stdin: bool) -> anyhow::Result<Vec<String>> {
    let is_listed = |path: &String| path == STDIN;
    let mut texts = Vec::new();
    for path in paths {
        if is_listed(path) {
            texts.extend(path_lines::read_stdin()?)
        } else {
            texts.push(path.clone())
        }
    }
    if stdin && !paths.iter().any(is_listed) {
        texts.extend(path_lines::read_stdin()?);
    }
    Ok(texts)
}

/// The path that stands for the lines of stdin.
const STDIN: &str = "-";
