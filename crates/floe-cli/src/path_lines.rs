//! Paths on stdin, one in each line.

use std::io::{self, BufRead, Read as _};

use anyhow::bail;
use floe_transfer::CLOSURE_MAX;

use crate::exit::UsageError;
use crate::messages::arguments as messages;

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
                    return Some(Err(UsageError(messages::long_line(LINE_LEN_MAX)).into()));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(messages::cannot_read_stdin(error))),
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
/// Errors: a line is too long, or there are too many.
pub(crate) fn read_stdin() -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for line in PathLines(io::stdin().lock()) {
        if texts.len() == CLOSURE_MAX {
            bail!(UsageError(messages::too_many_lines(CLOSURE_MAX)));
        }
        texts.push(line?);
    }
    Ok(texts)
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
    fn line_without_end_is_refused() {
        let endless = vec![b'a'; 100_000];
        let found = lines(&endless);
        assert!(
            found[0].as_ref().unwrap_err().contains("16384"),
            "{found:?}"
        );
    }
}
