//! Metrics with their descriptions, in the text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

/// The names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Metrics in the order of their output.
#[derive(Debug, Default)]
pub(super) struct Families {
    text: String,
}

/// A histogram with cumulative counts.
#[derive(Debug)]
pub(super) struct Histogram {
    /// The bounds, and how many values are at most as large.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Families {
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.family(name, help, "counter", samples, |families, labels, value| {
            families.sample(name, labels, value);
        });
    }

    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.family(name, help, "gauge", samples, |families, labels, value| {
            families.sample(name, labels, value);
        });
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        self.family(
            name,
            help,
            "histogram",
            samples,
            |families, labels, value| {
                let bounds = value.buckets.iter();
                let bounds = bounds.map(|(bound, count)| (bound.to_string(), *count));
                for (bound, count) in bounds.chain([("+Inf".to_owned(), value.count)]) {
                    let mut labels = labels.clone();
                    labels.push(("le", bound));
                    families.sample(&format!("{name}_bucket"), &labels, count);
                }
                families.sample(&format!("{name}_sum"), labels, value.sum);
                families.sample(&format!("{name}_count"), labels, value.count);
            },
        );
    }

    pub(super) fn single_counter(&mut self, name: &str, help: &str, value: f64) {
        self.counter(name, help, [(Labels::new(), value)]);
    }

    pub(super) fn single_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, [(Labels::new(), value)]);
    }

    /// Returns the metrics as text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds the samples of a metric after its description. A metric without samples is left out.
    fn family<T>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl IntoIterator<Item = (Labels, T)>,
        add: impl Fn(&mut Families, &Labels, T),
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing into a text cannot fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in samples {
            add(self, &labels, value);
        }
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: impl std::fmt::Display) {
        self.text.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            let separator = if number == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            let value = value.replace('\n', "\\n");
            let _ = write!(self.text, "{separator}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_without_samples_is_left_out() {
        let mut families = Families::default();
        families.gauge("none", "No samples.", []);
        families.single_counter("one_total", "One \\ sample.", 1.0);
        let expected = "# HELP one_total One \\\\ sample.\n# TYPE one_total counter\none_total 1\n";
        assert_eq!(families.into_text(), expected);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut families = Families::default();
        let labels = vec![("name", "a\"\\\n".into())];
        families.gauge("gauge", "A label.", [(labels, 0.5)]);
        let text = families.into_text();
        assert!(
            text.ends_with("gauge{name=\"a\\\"\\\\\\n\"} 0.5\n"),
            "{text}"
        );
    }

    #[test]
    fn histogram_has_buckets_sum_and_count() {
        let mut families = Families::default();
        let labels: Labels = vec![("route", "nar".into())];
        let histogram = Histogram {
            buckets: vec![(0.005, 1), (1.0, 3)],
            count: 4,
            sum: 2.5,
        };
        families.histogram("time", "A time.", [(labels, histogram)]);
        let expected = "# HELP time A time.\n# TYPE time histogram\n\
            time_bucket{route=\"nar\",le=\"0.005\"} 1\ntime_bucket{route=\"nar\",le=\"1\"} 3\n\
            time_bucket{route=\"nar\",le=\"+Inf\"} 4\ntime_sum{route=\"nar\"} 2.5\n\
            time_count{route=\"nar\"} 4\n";
        assert_eq!(families.into_text(), expected);
    }
}
