//! Numbers of bytes as users read them.

use std::fmt;

/// Bytes with two or three digits and a binary unit: `812 B`, `1.2 GiB`, `195 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut amount = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        // 999.5 would get four digits.
        while amount >= 999.5
            && let Some(larger) = units.next()
        {
            (amount, unit) = (amount / 1024.0, larger);
        }
        let digits = usize::from(amount < 9.95 && unit != "B");
        f.pad(&format!("{amount:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_three_digits() {
        let texts = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (204_472_320, "195 MiB"),
            (1_288_490_189, "1.2 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in texts {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
