//! The table of counts that the command prints.

use std::collections::BTreeMap;

use super::counts::{Counts, with_commas};

/// Returns a table of counts beside the committed ones.
pub(super) fn table(recorded: &Counts, counted: &BTreeMap<String, u64>) -> String {
    let mut text = format!(
        "{:<20} {:>15} {:>15} {:>10}",
        "workload", "instructions", "committed", "change"
    );
    for (name, count) in counted {
        let old = recorded.of(name);
        let committed = old.map(with_commas).unwrap_or_default();
        let change = old.map(|old| change(old, *count)).unwrap_or_default();
        let count = with_commas(*count);
        text += &format!("\n{name:<20} {count:>15} {committed:>15} {change:>10}");
    }
    text
}

/// Returns the change in percent.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are below 2^53, and the table rounds"
)]
fn change(old: u64, new: u64) -> String {
    let (old, new) = (old as f64, new as f64);
    format!("{:+.2} %", (new - old) / old * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_changes_in_percent() {
        let mut recorded = Counts::default();
        recorded.record(&[("hash".to_owned(), 2_000_000)].into(), None);
        let counted = [("hash".to_owned(), 2_050_000), ("new".to_owned(), 7)].into();
        let table = table(&recorded, &counted);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["hash", "2,050,000", "2,000,000", "+2.50", "%"]);
        assert_eq!(rows[2], ["new", "7"]);
    }
}
