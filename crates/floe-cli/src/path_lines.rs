//! Paths on stdin, one in each line.

use std::io::{self, BufRead, Read as _};

use anyhow::{Context as _, bail};
use floe_format::{HashPart, StorePath};
use floe_transfer::{CLOSURE_MAX, DerivedPath};

use crate::exit::UsageError;
use crate::links::existing_file;

/// The lines of a reader, without empty ones.
#[derive(Debug)]
pub(crate) struct PathLines<R>(pub(crate) R);

impl<R: BufRead> Iterator for PathLines<R> {
    type Item = anyhow::Result<String>;

    fn next(&mut self) -> Option<anyhow::Result<String>> {
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut self.0).take(LINE_LEN_MAX + 1);
            match limited.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(len) if len as u64 > LINE_LEN_MAX => {
                    let error = UsageError(format!(
                        "cannot read paths from stdin: a line has more than {LINE_LEN_MAX} bytes; \
                         put one path in each line"
                    ));
                    return Some(Err(error.into()));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error).context("cannot read paths from stdin")),
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty() {
                return Some(Ok(text));
            }
        }
    }
}

/// Reads all lines of stdin.
///
/// Errors: a line is too long or is not a path, or there are too many.
pub(crate) fn read_stdin() -> anyhow::Result<Vec<String>> {
    read_all(io::stdin().lock())
}

fn read_all(input: impl BufRead) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for (number, line) in (1_usize..).zip(PathLines(input)) {
        if texts.len() == CLOSURE_MAX {
            bail!(UsageError(format!(
                "cannot read paths from stdin: there are more than {CLOSURE_MAX} lines; copy them \
                 in parts"
            )));
        }
        let line = line?;
        if !may_be_path(&line) {
            bail!(UsageError(format!(
                "cannot read paths from stdin: line {number} of those that are not empty is not a \
                 store path: {line:?}; put one path in each line, and no comments"
            )));
        }
        texts.push(line);
    }
    Ok(texts)
}

/// Whether a text may name a path: by its name, its hash part, or a file that leads to it.
fn may_be_path(text: &str) -> bool {
    let is_name = StorePath::parse(text).is_ok()
        || HashPart::parse(text).is_some()
        || DerivedPath::is_one(text);
    is_name || text.contains('/') && !text.starts_with('#') || existing_file(text).is_some()
}

/// The length of the longest line in bytes, far above that of any file name.
const LINE_LEN_MAX: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Result<String, String>> {
        let lines = PathLines(text);
        lines
            .take(5)
            .map(|line| line.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn lines_lose_spaces_and_empty_ones_are_skipped() {
        let found = lines(b"\n a\r\n\nb\n  \nc");
        assert_eq!(found, ["a", "b", "c"].map(|text| Ok(text.to_owned())));
    }

    #[test]
    fn line_that_is_no_path_is_named_with_its_number() {
        let hash = "0".repeat(32);
        let good = format!("/nix/store/{hash}-x\n{hash}\n{hash}-x\n{hash}-x.drv^out\n./result\n");
        assert_eq!(read_all(good.as_bytes()).unwrap().len(), 5);
        for bad in ["# a comment", "#/nix/store", ".links", "absent-file"] {
            let error = read_all(format!("{good}{bad}\n").as_bytes()).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("line 6") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn line_without_end_is_refused() {
        let endless = vec![b'a'; 100_000];
        let found = lines(&endless);
        assert!(
            found[0].as_ref().unwrap_err().contains("16384"),
            "{found:?}"
        );
    }
}
