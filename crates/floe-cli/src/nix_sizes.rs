//! Sizes as the newest Nix prints them for people (`renderSize`).

/// Returns a size such as `0.1 KiB` or `1.5 GiB`. Nix has no smaller unit than KiB.
pub(crate) fn render_size(bytes: u64) -> String {
    let (mut unit, mut left) = (0, bytes);
    while left > STEP && unit < UNITS.len() {
        unit += 1;
        left /= STEP;
    }
    let unit = unit.max(1);
    let size = (1..=unit).fold(bytes as f64, |size, _| size / STEP as f64);
    format!("{size:.1} {}iB", UNITS[unit - 1])
}

/// The ratio of two units.
const STEP: u64 = 1024;

const UNITS: [char; 8] = ['K', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit_after_the_point() {
        for (bytes, text) in [
            (0, "0.0 KiB"),
            (120, "0.1 KiB"),
            (1024, "1.0 KiB"),
            // Nix counts whole units.
            (1024 * 1024, "1024.0 KiB"),
            (1025 * 1024, "1.0 MiB"),
            (3 * 1024 * 1024 * 1024 / 2, "1.5 GiB"),
            (2 << 60, "2.0 EiB"),
        ] {
            assert_eq!(render_size(bytes), text, "{bytes}");
        }
    }
}
