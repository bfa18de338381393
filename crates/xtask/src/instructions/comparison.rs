//! Compares counts with the committed ones.

/// A larger change in either direction is shown, and a record of it needs a reason. The counts of
/// two runs differ by less than a thousandth.
const SHOWN_PERCENT: u128 = 2;

/// A larger change fails. A new version of a compiler usually changes less.
const FAILED_PERCENT: u128 = 10;

/// The relation of a count to the committed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// They differ by at most 2 %.
    Same,
    /// They differ by more than 2 %, and at most 10 %.
    Changed,
    /// They differ by more than 10 %. A lower count fails, too: otherwise the next rise to the old
    /// count would stay hidden.
    Failed,
    /// There is no committed count.
    New,
}

impl Comparison {
    pub(super) fn of(recorded: Option<u64>, count: u64) -> Comparison {
        let Some(recorded) = recorded else {
            return Comparison::New;
        };
        let difference = u128::from(recorded.abs_diff(count)) * 100;
        let is_above = |percent: u128| difference > u128::from(recorded) * percent;
        if is_above(FAILED_PERCENT) {
            Comparison::Failed
        } else if is_above(SHOWN_PERCENT) {
            Comparison::Changed
        } else {
            Comparison::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_above_2_and_fail_above_10_percent() {
        for (count, expected) in [
            (0, Comparison::Failed),
            (8_999, Comparison::Failed),
            (9_000, Comparison::Changed),
            (9_799, Comparison::Changed),
            (9_800, Comparison::Same),
            (10_000, Comparison::Same),
            (10_200, Comparison::Same),
            (10_201, Comparison::Changed),
            (11_000, Comparison::Changed),
            (11_001, Comparison::Failed),
            (u64::MAX, Comparison::Failed),
        ] {
            assert_eq!(Comparison::of(Some(10_000), count), expected, "{count}");
        }
        assert_eq!(Comparison::of(None, 1), Comparison::New);
        assert_eq!(Comparison::of(Some(0), 1), Comparison::Failed);
    }
}
