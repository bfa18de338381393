//! Finds references in contents: the hash parts of store paths, anywhere between other bytes.

use crate::hash_part::HashPart;
use crate::nix32;

/// Finds hash parts in bytes that arrive in pieces.
///
/// A candidate is every run of 32 digits of nix32, as in Nix: also one that begins inside a longer
/// run of such digits. The caller decides which candidates are hash parts of paths.
///
/// ```
/// use floe_format::HashPart;
/// use floe_format::reference_scan::ReferenceScanner;
///
/// let mut scanner = ReferenceScanner::new();
/// let mut found = Vec::new();
/// for piece in ["/nix/store/7bw2d1cqdpnxi05lr3", "s6pmcgl5xazl2c-hello"] {
///     scanner.scan(piece.as_bytes(), &mut |hash_part, offset| found.push((hash_part, offset)));
/// }
/// let hash_part = HashPart::parse("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c").unwrap();
/// assert_eq!(found, [(hash_part, 11)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReferenceScanner {
    /// The last bytes, at most 31. A hash part may begin in them.
    tail: Vec<u8>,
    /// The number of bytes before `tail`.
    offset: u64,
}

impl ReferenceScanner {
    /// Makes a scanner at the start of the contents.
    pub fn new() -> ReferenceScanner {
        ReferenceScanner::default()
    }

    /// Scans the next bytes. Calls `found` with each candidate and its offset in the contents, in
    /// ascending order.
    pub fn scan(&mut self, piece: &[u8], found: &mut dyn FnMut(HashPart, u64)) {
        // The candidates that begin in the tail.
        let tail_len = self.tail.len();
        let joint_len = piece.len().min(HashPart::LEN - 1);
        self.tail.extend_from_slice(&piece[..joint_len]);
        scan_slice(&self.tail, self.offset, found);
        if joint_len == piece.len() {
            self.keep_end();
            return;
        }
        self.offset += tail_len as u64;
        scan_slice(piece, self.offset, found);
        self.tail.clear();
        self.tail.extend_from_slice(piece);
        self.keep_end();
    }

    /// Removes all but the last 31 bytes.
    fn keep_end(&mut self) {
        let len = self.tail.len().saturating_sub(HashPart::LEN - 1);
        self.tail.drain(..len);
        self.offset += len as u64;
    }
}

/// Finds the candidates in a slice that begins at an offset.
fn scan_slice(slice: &[u8], offset: u64, found: &mut dyn FnMut(HashPart, u64)) {
    let mut start = 0;
    while let Some(window) = slice[start..].first_chunk::<{ HashPart::LEN }>() {
        // From the end: most windows hold a byte that is no digit, and the ones before it need no
        // look.
        match window
            .iter()
            .rposition(|byte| !IS_DIGIT[usize::from(*byte)])
        {
            Some(position) => start += position + 1,
            None => {
                found(HashPart::of_digits(*window), offset + start as u64);
                start += 1;
            }
        }
    }
}

/// Whether each byte is a digit of nix32.
static IS_DIGIT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte: u8 = 0;
    while byte < u8::MAX {
        table[byte as usize] = nix32::is_digit(byte as char);
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns what a scanner finds in contents that arrive in pieces.
    fn scan(pieces: &[&[u8]]) -> Vec<(HashPart, u64)> {
        let mut scanner = ReferenceScanner::new();
        let mut found = Vec::new();
        for piece in pieces {
            scanner.scan(piece, &mut |hash_part, offset| {
                found.push((hash_part, offset))
            });
        }
        found
    }

    /// The definition: each window of 32 bytes that parses.
    fn windows(contents: &[u8]) -> Vec<(HashPart, u64)> {
        let windows = (0..).zip(contents.windows(HashPart::LEN));
        let parse = |window| HashPart::parse(std::str::from_utf8(window).ok()?);
        windows
            .filter_map(|(offset, window)| Some((parse(window)?, offset)))
            .collect()
    }

    proptest! {
        #[test]
        fn candidates_are_the_windows_that_parse(
            contents in proptest::collection::vec(
                prop_oneof![20 => "[0-9a-df-np-sv-z]{1,40}", 1 => "[/e.\u{e9}]"],
                0..40,
            ),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let contents = contents.concat().into_bytes();
            let mut cuts: Vec<usize> =
                cuts.iter().map(|cut| cut.index(contents.len() + 1)).collect();
            cuts.extend([0, contents.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> =
                cuts.windows(2).map(|cut| &contents[cut[0]..cut[1]]).collect();
            prop_assert_eq!(scan(&pieces), windows(&contents));
        }
    }

    #[test]
    fn single_bytes_make_a_hash_part() {
        let contents = format!("é/{}/", "7".repeat(33)).into_bytes();
        let pieces: Vec<&[u8]> = contents.chunks(1).collect();
        let found: Vec<u64> = scan(&pieces).iter().map(|(_, offset)| *offset).collect();
        assert_eq!(found, [3, 4]);
    }
}
