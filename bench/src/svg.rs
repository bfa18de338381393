//! Rows as a svg: a bar for each, as long as floe is fast beside nginx. The same rows always
//! give the same bytes.

use std::fmt::Write as _;

use floe_bench::report::svg::escape;

use super::figures::{NGINX, Row, Verdict};

const WIDTH: f64 = 800.0;
/// For the names at the left, and the figures behind the bars.
const LEFT: f64 = 340.0;
const RIGHT: f64 = 60.0;
const LINE: f64 = 22.0;
const TOP: f64 = 56.0;
/// A row beyond this would press all others to the left; its bar is cut, its figure is not.
const RATIO_MAX: f64 = 3.0;
/// The line of nginx is never at the very edge.
const RATIO_MIN: f64 = 1.25;

const GREEN: &str = "#2e8b57";
const RED: &str = "#c0392b";
const GREY: &str = "#7f8c8d";

pub(super) fn svg(title: &str, rows: &[Row]) -> String {
    let speeds: Vec<Option<f64>> = rows
        .iter()
        .map(|row| row.ratio(NGINX).map(|ratio| ratio.speed))
        .collect();
    let longest = speeds.iter().flatten().copied().fold(RATIO_MIN, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / longest.min(RATIO_MAX);
    let height = TOP + LINE * rows.len() as f64 + 12.0;

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"15\">{}</text>\n\
         <text x=\"10\" y=\"40\" fill=\"{GREY}\">speed as a multiple of nginx; green meets its \
         aim, red misses it, grey has none or lacks its rival</text>\n",
        escape(title)
    );
    // Below the bars and their figures, which it would cross out.
    let one = LEFT + scale;
    let _ = writeln!(
        text,
        "<line x1=\"{one:.1}\" y1=\"{:.1}\" x2=\"{one:.1}\" y2=\"{:.1}\" stroke=\"black\" \
         stroke-dasharray=\"4 3\"/>",
        TOP - 4.0,
        height - 8.0
    );
    for (at, (row, speed)) in rows.iter().zip(&speeds).enumerate() {
        bar(&mut text, TOP + LINE * at as f64, scale, (row, *speed));
    }
    text + "</svg>\n"
}

fn bar(text: &mut String, y: f64, scale: f64, (row, speed): (&Row, Option<f64>)) {
    let base = y + LINE * 0.65;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>",
        LEFT - 8.0,
        escape(&row.name)
    );
    let Some(speed) = speed else {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{base:.1}\" fill=\"{GREY}\">not run</text>",
            LEFT + 4.0
        );
        return;
    };
    let colour = match row.verdict() {
        Verdict::Met => GREEN,
        Verdict::Missed => RED,
        Verdict::NoAim | Verdict::NotMeasured => GREY,
    };
    let width = speed.min(RATIO_MAX) * scale;
    let _ = writeln!(
        text,
        "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
         fill=\"{colour}\"/>",
        y + 3.0,
        LINE - 6.0
    );
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{base:.1}\" stroke=\"white\" stroke-width=\"4\" \
         paint-order=\"stroke\">{speed:.2}</text>",
        LEFT + width + 5.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::row;
    use crate::figures::{Aim, FLOE, Speed};

    fn rows() -> Vec<Row> {
        let aim = Aim {
            speed: Some(Speed::AtLeast(1.1)),
            cpu: None,
        };
        let of = |floe| row(aim, &[(FLOE, floe), (NGINX, Some((100, 1.0)))]);
        vec![
            of(Some((120, 1.0))),
            of(Some((50, 1.0))),
            of(Some((900, 1.0))),
            of(None),
        ]
    }

    #[test]
    fn the_same_rows_give_the_same_picture() {
        assert_eq!(svg("a", &rows()), svg("a", &rows()));
    }

    #[test]
    fn every_row_has_a_bar_or_says_that_it_has_none() {
        let svg = svg("a < b", &rows());
        let count = |part: &str| svg.matches(part).count();
        assert_eq!(count("<rect"), 1 + 3);
        assert_eq!(count("not run"), 1);
        assert_eq!((count(GREEN), count(RED)), (2, 1));
        assert!(svg.contains("a &lt; b"));
    }

    #[test]
    fn a_bar_is_cut_before_the_edge_and_keeps_its_figure() {
        let svg = svg("a", &rows());
        assert!(svg.contains(">9.00<"), "{svg}");
        assert!(svg.contains(&format!("width=\"{:.1}\"", WIDTH - LEFT - RIGHT)));
    }
}
