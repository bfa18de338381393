//! The report as a picture: a bar for each mean, with its standard deviation. The same report
//! always gives the same bytes.

use std::fmt::Write as _;

use super::{Comparison, Report, Row};

const WIDTH: f64 = 800.0;
/// For names at the left and figures at the right of the bars.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 130.0;
const LINE: f64 = 20.0;
const HEAD: f64 = 26.0;
const TOP: f64 = 40.0;

const BASE: &str = "#7f8c8d";
const OTHER: &str = "#2e6f9e";
const RED: &str = "#c0392b";

impl Report {
    /// A picture of 800 points width. Each row has a scale of its own.
    pub fn svg(&self) -> String {
        let lines: usize = self.rows.iter().map(|row| row.measurements.len()).sum();
        let height = TOP + HEAD * self.rows.len() as f64 + LINE * lines as f64 + 14.0;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"22\" font-size=\"15\">{}: mean seconds ± sd</text>\n",
            escape(&self.title)
        );
        let mut y = TOP;
        for row in &self.rows {
            y = draw(&mut text, row, y);
        }
        text + "</svg>\n"
    }
}

/// Draws a row from `y` downwards; where it ends.
fn draw(text: &mut String, row: &Row, mut y: f64) -> f64 {
    let all: Vec<Option<Comparison>> = (0..row.measurements.len())
        .map(|i| row.compare(i))
        .collect();
    let ends = all
        .iter()
        .flatten()
        .map(|it| it.seconds.mean + it.seconds.sd);
    let longest = ends.fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / longest;
    let name = escape(&row.name);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"{:.1}\" font-weight=\"bold\">{name}</text>",
        y + HEAD * 0.7
    );
    y += HEAD;
    for (index, (name, compared)) in row
        .measurements
        .iter()
        .map(|(name, _)| name)
        .zip(&all)
        .enumerate()
    {
        let base = y + LINE * 0.7;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escape(name)
        );
        match compared {
            Some(compared) => bar(text, y, scale, (index == 0, compared)),
            None => {
                let _ = writeln!(
                    text,
                    "<text x=\"{LEFT}\" y=\"{base:.1}\" fill=\"{RED}\">no figures</text>"
                );
            }
        }
        y += LINE;
    }
    y
}

fn bar(text: &mut String, y: f64, scale: f64, (is_base, compared): (bool, &Comparison)) {
    let seconds = &compared.seconds;
    let width = seconds.mean * scale;
    let colour = if is_base { BASE } else { OTHER };
    let middle = y + LINE / 2.0;
    let (low, high) = (
        LEFT + (seconds.mean - seconds.sd).max(0.0) * scale,
        LEFT + (seconds.mean + seconds.sd) * scale,
    );
    let ratio = compared
        .ratio
        .map_or_else(String::new, |ratio| format!(" ({:.2})", ratio.value));
    let _ = writeln!(
        text,
        "<rect x=\"{LEFT:.1}\" y=\"{5:.1}\" width=\"{width:.1}\" height=\"{6:.1}\" \
         fill=\"{colour}\"/>\n\
         <path d=\"M{low:.1} {middle:.1}H{high:.1}\
         M{low:.1} {0:.1}V{1:.1}M{high:.1} {0:.1}V{1:.1}\" \
         stroke=\"black\"/>\n\
         <text x=\"{2:.1}\" y=\"{3:.1}\">{4:.3} s{ratio}</text>",
        middle - 4.0,
        middle + 4.0,
        high + 6.0,
        y + LINE * 0.7,
        seconds.mean,
        y + 3.0,
        LINE - 6.0,
    );
}

/// Text as it may stand between the tags of XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn every_variant_has_a_bar_with_its_spread_or_says_that_it_has_none() {
        let picture = report().svg();
        assert_eq!(picture, report().svg());
        assert_eq!(picture.matches("<rect").count(), 1 + 2);
        assert_eq!(picture.matches("<path").count(), 2);
        assert_eq!(picture.matches("no figures").count(), 1);
        assert!(picture.contains("a &lt; b"), "{picture}");
        assert!(picture.contains("0.500 s (0.50)"), "{picture}");
    }
}
