//! The header field `Range` (RFC 9110, section 14).

use std::ops::Range;

/// The most ranges in one response. A client that asks for more gets everything. Hundreds of small
/// ranges cost a server more than the whole, and Nix never asks for more than one.
pub const RANGES_MAX: usize = 16;

/// The bytes that a field asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All bytes: the field is absent, malformed, or asks for too many ranges.
    Whole,
    /// These ranges, at least one, in the order of the field.
    Parts(Vec<Range<u64>>),
    /// None: all ranges begin beyond the end.
    Unsatisfiable,
}

/// Parses the field for a response of `len` bytes.
///
/// A malformed field is ignored, as the RFC demands. Ranges that begin beyond the end are left
/// out. If none is left, the status is 416.
pub fn parse(field: Option<&str>, len: u64) -> Ranges {
    let Some(set) = field.and_then(|field| strip_unit(field)) else {
        return Ranges::Whole;
    };
    let mut parts = Vec::new();
    let mut count = 0;
    for text in set
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        count += 1;
        let Some(range) = parse_one(text, len) else {
            return Ranges::Whole;
        };
        if !range.is_empty() {
            parts.push(range);
        }
    }
    let total = parts
        .iter()
        .try_fold(0u64, |sum, part| sum.checked_add(part.end - part.start));
    match count {
        0 => Ranges::Whole,
        _ if parts.is_empty() => Ranges::Unsatisfiable,
        // Overlapping ranges could ask for a multiple of the length.
        _ if count > RANGES_MAX || (count > 1 && total.is_none_or(|total| total > len)) => {
            Ranges::Whole
        }
        _ => Ranges::Parts(parts),
    }
}

fn strip_unit(field: &str) -> Option<&str> {
    let (unit, set) = field.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(set)
}

/// Parses one range. It is empty if it begins beyond the end, and `None` if it is malformed.
fn parse_one(text: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let number = |digits: &str| -> Option<u64> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit into 64 bits is beyond every end.
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    if first.is_empty() {
        let suffix = number(last)?.min(len);
        return Some(len - suffix..len);
    }
    let first = number(first)?;
    let end = match last {
        "" => len,
        last => {
            let last = number(last)?;
            if last < first {
                return None;
            }
            last.saturating_add(1).min(len)
        }
    };
    Some(first.min(end)..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(range: Range<u64>) -> Ranges {
        Ranges::Parts(Vec::from([range]))
    }

    fn parts(field: &str) -> Ranges {
        parse(Some(field), 112)
    }

    #[test]
    fn single_open_and_suffix_ranges_are_parsed() {
        assert_eq!(parts("bytes=0-9"), part(0..10));
        assert_eq!(parts("bytes=100-"), part(100..112));
        assert_eq!(parts("Bytes=-5"), part(107..112));
        assert_eq!(parts("bytes=-500"), part(0..112));
        assert_eq!(parts("bytes=100-99999999999999999999999"), part(100..112));
        assert_eq!(
            parts("bytes=0-3, ,8-9,500-"),
            Ranges::Parts(vec![0..4, 8..10])
        );
    }

    #[test]
    fn ranges_beyond_the_end_are_unsatisfiable() {
        for field in ["bytes=112-", "bytes=500-600", "bytes=-0", "bytes=112-,113-"] {
            assert_eq!(parts(field), Ranges::Unsatisfiable, "{field}");
        }
        assert_eq!(parse(Some("bytes=0-"), 0), Ranges::Unsatisfiable);
    }

    #[test]
    fn malformed_field_selects_the_whole() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5-4",
            "items=0-1",
            "bytes=+1-2",
        ] {
            assert_eq!(parts(field), Ranges::Whole, "{field}");
        }
        assert_eq!(parse(None, 5), Ranges::Whole);
    }

    #[test]
    fn overlapping_or_many_ranges_select_the_whole() {
        assert_eq!(parts("bytes=0-,0-"), Ranges::Whole);
        let many: Vec<String> = (0..17).map(|n| format!("{n}-{n}")).collect();
        assert_eq!(parts(&format!("bytes={}", many.join(","))), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn parsed_ranges_stay_within_the_length(field in "(bytes=)?[0-9,-]{0,20}", len: u64) {
            if let Ranges::Parts(parts) = parse(Some(&field), len) {
                prop_assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
                for part in parts {
                    prop_assert!(part.start < part.end && part.end <= len);
                }
            }
        }

        #[test]
        fn printed_range_parses_to_itself(start in 0u64..1000, more in 0u64..1000) {
            let field = format!("bytes={start}-{}", start + more);
            let range = start..start + more + 1;
            prop_assert_eq!(parse(Some(&field), 5000), Ranges::Parts(Vec::from([range])));
        }
    }
}
