//! Checks of results. They hold no list of all paths in memory; see `Stage::make_store`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use floe_bench::BenchError;
use rusqlite::{Connection, OpenFlags};

use crate::file_cache;
use crate::synthetic_store::full_path;
use crate::synthetic_store::shape::{self, Shape};

/// The output of a correct program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    /// This number of lines.
    Lines(usize),
    /// A text that occurs this often.
    Text(&'static str, usize),
    /// Lines with exactly these paths.
    Paths(PathSet),
}

/// A set of paths, as their number and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathSet {
    count: usize,
    sum: u128,
}

impl PathSet {
    fn add(&mut self, path: &str) {
        let hash = floe_hash::sha256(path.as_bytes());
        let half: [u8; 16] = std::array::from_fn(|at| hash[at]);
        self.count += 1;
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(half));
    }
}

impl FromIterator<String> for PathSet {
    fn from_iter<I: IntoIterator<Item = String>>(paths: I) -> PathSet {
        let mut set = PathSet::default();
        paths.into_iter().for_each(|path| set.add(&path));
        set
    }
}

/// Runs a command and checks its output.
pub(super) fn output(command: &mut Command, expected: &Output) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the command")?;
    let stdout = child.stdout.take().context("the command has no stdout")?;
    let found = matches(stdout, expected);
    let status = child.wait().context("cannot wait for the command")?;
    ensure!(status.success(), "{status}");
    found
}

fn matches(mut stdout: impl Read, expected: &Output) -> Result<()> {
    match expected {
        Output::Text(text, count) => {
            let found = occurrences(&mut stdout, text.as_bytes())?;
            ensure!(
                found == *count,
                "it printed `{text}` {found} times instead of {count}"
            );
        }
        Output::Lines(count) => {
            let found = occurrences(&mut stdout, b"\n")?;
            ensure!(
                found == *count,
                "it printed {found} lines instead of {count}"
            );
        }
        Output::Paths(set) => {
            let mut found = PathSet::default();
            for line in BufReader::new(stdout).lines() {
                let line = line.context("the output is not text")?;
                if line.starts_with("/nix/store/") {
                    found.add(&line);
                }
            }
            let (count, expected) = (found.count, set.count);
            ensure!(
                found == *set,
                "it printed {count} paths, not the {expected} right ones"
            );
        }
    }
    Ok(())
}

/// How often a text occurs, also across two reads.
fn occurrences(reader: &mut impl Read, text: &[u8]) -> Result<usize> {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; CHUNK_LEN];
    let mut count = 0;
    loop {
        let len = reader.read(&mut chunk).context("cannot read the output")?;
        if len == 0 {
            return Ok(count);
        }
        buffer.extend_from_slice(&chunk[..len]);
        count += buffer.windows(text.len()).filter(|it| *it == text).count();
        // A text that is complete in the rest would count twice.
        let rest = buffer.len().saturating_sub(text.len() - 1);
        buffer.drain(..rest);
    }
}

/// Checks that exactly the live paths are valid and on disk.
pub(super) fn collected(root: &Path, shape: Shape) -> Result<(), BenchError> {
    let live = (0..shape.paths).filter(|number| !shape::is_dead(*number));
    let expected: PathSet = live.map(full_path).collect();
    let failed = |error: anyhow::Error| BenchError::Result(format!("{error:#}"));
    let valid = valid_paths(root).map_err(failed)?;
    let entries = fs::read_dir(root.join("nix/store")).into_iter();
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let on_disk: PathSet = names
        // Beside the paths there is `.links`.
        .filter(|name| !name.starts_with('.'))
        .map(|name| format!("/nix/store/{name}"))
        .collect();
    if valid == expected && on_disk == expected {
        return Ok(());
    }
    Err(BenchError::Result(format!(
        "{} valid paths and {} on disk, not the {} live ones",
        valid.count, on_disk.count, expected.count
    )))
}

fn valid_paths(root: &Path) -> Result<PathSet> {
    let file = root.join("nix/var/nix/db/db.sqlite");
    let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mut query = database.prepare("select path from ValidPaths")?;
    let paths = query.query_map((), |row| row.get::<_, String>(0))?;
    let mut set = PathSet::default();
    for path in paths {
        set.add(&path?);
    }
    Ok(set)
}

/// Checks that a cache has this number of narinfos.
pub(super) fn narinfos(cache: &Path, expected: usize) -> Result<(), BenchError> {
    let found = file_cache::count_narinfos(cache);
    if found == expected {
        Ok(())
    } else {
        let text = format!("{found} narinfos instead of {expected}");
        Err(BenchError::Result(text))
    }
}

const CHUNK_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns three bytes at once.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let len = buffer.len().min(3);
            self.0.read(&mut buffer[..len])
        }
    }

    #[test]
    fn text_across_two_reads_counts_once() {
        let text = b"one -> two -> three\n";
        assert_eq!(occurrences(&mut Slow(text), b" -> ").unwrap(), 2);
        assert_eq!(occurrences(&mut Slow(text), b"\n").unwrap(), 1);
    }

    #[test]
    fn paths_match_in_any_order_and_only_completely() {
        let path = |name: &str| format!("/nix/store/{name}");
        let expected = Output::Paths([path("a"), path("b")].into_iter().collect());
        for (text, is_right) in [
            ("/nix/store/b\n/nix/store/a\n", true),
            ("finding\n/nix/store/a\n/nix/store/b\n", true),
            ("/nix/store/a\n", false),
            ("/nix/store/a\n/nix/store/c\n", false),
        ] {
            assert_eq!(
                matches(text.as_bytes(), &expected).is_ok(),
                is_right,
                "{text}"
            );
        }
    }
}
