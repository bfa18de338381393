//! Horizontal bar charts in SVG. The same chart always gives the same bytes.

/// A chart of 800 points width.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// A second line that explains the bars; may be empty.
    pub note: String,
    /// Points reserved for the labels on the left.
    pub label_width: f64,
    /// Draws a dashed line at 1 and cuts longer bars at this value, so that one long bar does not
    /// flatten all others.
    pub cut_at: Option<f64>,
    /// Groups of bars, each with its own scale.
    pub groups: Vec<Group>,
}

/// Bars that share a scale.
#[derive(Clone, Debug)]
pub struct Group {
    /// A heading above the bars; may be empty.
    pub heading: String,
    /// The bars from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar with its label.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Text on the left.
    pub label: String,
    /// Length of the bar and half the length of its error whisker; `None` draws no bar.
    pub value: Option<(f64, f64)>,
    /// Text behind the bar, or instead of it.
    pub text: String,
    /// Colour of the bar.
    pub colour: Colour,
}

/// Colour of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// A measured value.
    Blue,
    /// An aim that is met.
    Green,
    /// An aim that is missed, or a failure.
    Red,
    /// A reference, or a value without an aim.
    Grey,
}

impl Colour {
    fn hex(self) -> &'static str {
        match self {
            Colour::Blue => "#2e6f9e",
            Colour::Green => "#2e8b57",
            Colour::Red => "#c0392b",
            Colour::Grey => "#7f8c8d",
        }
    }
}

const WIDTH: f64 = 800.0;
/// For the texts behind the bars.
const RIGHT: f64 = 130.0;
const LINE: f64 = 20.0;
const HEADING: f64 = 26.0;
const TOP: f64 = 40.0;
const NOTE: f64 = 16.0;
const BOTTOM: f64 = 14.0;
/// The reference line never stands at the very edge.
const CUT_SCALE_MIN: f64 = 1.25;

impl Chart {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let top = TOP + NOTE * f64::from(!self.note.is_empty());
        let height = top + BOTTOM + self.groups.iter().map(Group::height).sum::<f64>();
        let (title, note, grey) = (escape(&self.title), escape(&self.note), Colour::Grey.hex());
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"22\" font-size=\"15\">{title}</text>\n"
        );
        if !note.is_empty() {
            text += &format!("<text x=\"10\" y=\"42\" fill=\"{grey}\">{note}</text>\n");
        }
        let mut y = top;
        for group in &self.groups {
            self.draw_group(&mut text, group, y);
            y += group.height();
        }
        text + "</svg>\n"
    }

    fn draw_group(&self, text: &mut String, group: &Group, mut y: f64) {
        let scale = (WIDTH - self.label_width - RIGHT) / self.longest(group);
        let heading = escape(&group.heading);
        if !heading.is_empty() {
            let base = y + HEADING * 0.7;
            *text +=
                &format!("<text x=\"10\" y=\"{base:.1}\" font-weight=\"bold\">{heading}</text>\n");
            y += HEADING;
        }
        if self.cut_at.is_some() {
            // Draw the line first, so that it does not cross out bars and texts.
            let (x, end) = (self.label_width + scale, y + LINE * group.bars.len() as f64);
            let dashes = "stroke=\"black\" stroke-dasharray=\"4 3\"";
            *text += &format!("<path d=\"M{x:.1} {y:.1}V{end:.1}\" {dashes}/>\n");
        }
        for bar in &group.bars {
            self.draw_bar(text, bar, (y, scale));
            y += LINE;
        }
    }

    /// The value that gets the full width.
    fn longest(&self, group: &Group) -> f64 {
        let ends = group.bars.iter().filter_map(|bar| bar.value);
        let ends = ends.map(|(value, spread)| value + spread);
        match self.cut_at {
            Some(cut) => ends.fold(CUT_SCALE_MIN, f64::max).min(cut),
            None => ends.fold(f64::MIN_POSITIVE, f64::max),
        }
    }

    fn draw_bar(&self, text: &mut String, bar: &Bar, (y, scale): (f64, f64)) {
        let (left, base) = (self.label_width, y + LINE * 0.7);
        let (label, words, colour) = (escape(&bar.label), escape(&bar.text), bar.colour.hex());
        let x = left - 8.0;
        *text +=
            &format!("<text x=\"{x:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{label}</text>\n");
        let Some((value, spread)) = bar.value else {
            *text +=
                &format!("<text x=\"{left}\" y=\"{base:.1}\" fill=\"{colour}\">{words}</text>\n");
            return;
        };
        let shown = value.min(self.cut_at.unwrap_or(f64::INFINITY));
        let (top, width, height) = (y + 3.0, shown * scale, LINE - 6.0);
        *text += &format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>\n"
        );
        let end = left + (shown + spread) * scale;
        if spread > 0.0 {
            let low = left + (value - spread).max(0.0) * scale;
            let middle = y + LINE / 2.0;
            let (up, down) = (middle - 4.0, middle + 4.0);
            *text += &format!(
                "<path d=\"M{low:.1} {middle:.1}H{end:.1}M{low:.1} {up:.1}V{down:.1}\
                 M{end:.1} {up:.1}V{down:.1}\" stroke=\"black\"/>\n"
            );
        }
        let x = end + 6.0;
        let halo = "stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\"";
        *text += &format!("<text x=\"{x:.1}\" y=\"{base:.1}\" {halo}>{words}</text>\n");
    }
}

impl Group {
    fn height(&self) -> f64 {
        HEADING * f64::from(!self.heading.is_empty()) + LINE * self.bars.len() as f64
    }
}

/// Text with the special characters of XML escaped.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: Option<f64>, colour: Colour) -> Bar {
        Bar {
            label: "a < b".into(),
            value: value.map(|value| (value, 0.0)),
            text: value.map_or("not run".into(), |value| format!("{value:.2}")),
            colour,
        }
    }

    fn chart() -> Chart {
        Chart {
            title: "floe & nginx".into(),
            note: String::new(),
            label_width: 340.0,
            cut_at: Some(3.0),
            groups: vec![Group {
                heading: String::new(),
                bars: vec![
                    bar(Some(1.2), Colour::Green),
                    bar(Some(9.0), Colour::Green),
                    bar(Some(0.5), Colour::Red),
                    bar(None, Colour::Grey),
                ],
            }],
        }
    }

    #[test]
    fn same_chart_gives_same_bytes() {
        assert_eq!(chart().svg(), chart().svg());
    }

    #[test]
    fn every_bar_is_drawn_or_explained() {
        let svg = chart().svg();
        let count = |part: &str| svg.matches(part).count();
        assert_eq!(count("<rect"), 1 + 3);
        assert_eq!(count("not run"), 1);
        let colours = [Colour::Green, Colour::Red].map(|colour| count(colour.hex()));
        assert_eq!(colours, [2, 1]);
        assert!(svg.contains("a &lt; b") && svg.contains("floe &amp; nginx"));
    }

    #[test]
    fn long_bar_is_cut_and_keeps_its_figure() {
        let svg = chart().svg();
        assert!(svg.contains(">9.00<"), "{svg}");
        let full = WIDTH - chart().label_width - RIGHT;
        assert!(svg.contains(&format!("width=\"{full:.1}\"")), "{svg}");
    }
}
