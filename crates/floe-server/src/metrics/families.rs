//! Metrics with their descriptions, as the crate `prometheus` encodes them.

use prometheus::TextEncoder;
use prometheus::proto::{
    self, Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType,
};

/// The names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Metrics in the order of their output.
#[derive(Debug, Default)]
pub(super) struct Families {
    list: Vec<MetricFamily>,
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
        let samples = samples.into_iter().map(|(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(value);
            let mut metric = labelled(labels);
            metric.set_counter(counter);
            metric
        });
        let samples = samples.collect();
        self.add(name, help, (MetricType::COUNTER, samples));
    }

    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = labelled(labels);
            metric.set_gauge(gauge);
            metric
        });
        let samples = samples.collect();
        self.add(name, help, (MetricType::GAUGE, samples));
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        let samples = samples.into_iter().map(|(labels, histogram)| {
            let mut metric = labelled(labels);
            metric.set_histogram(encode(histogram));
            metric
        });
        let samples = samples.collect();
        self.add(name, help, (MetricType::HISTOGRAM, samples));
    }

    pub(super) fn single_counter(&mut self, name: &str, help: &str, value: f64) {
        self.counter(name, help, [(Labels::new(), value)]);
    }

    pub(super) fn single_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, [(Labels::new(), value)]);
    }

    /// Returns the metrics as text.
    pub(super) fn text(&self) -> String {
        // The encoder refuses only metrics without a name or without samples, which `add` leaves
        // out.
        TextEncoder::new()
            .encode_to_string(&self.list)
            .unwrap_or_default()
    }

    fn add(&mut self, name: &str, help: &str, (kind, samples): (MetricType, Vec<Metric>)) {
        if samples.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        family.set_metric(samples);
        self.list.push(family);
    }
}

fn labelled(labels: Labels) -> Metric {
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.into());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::default();
    metric.set_label(pairs.collect());
    metric
}

fn encode(histogram: Histogram) -> proto::Histogram {
    let buckets = histogram.buckets.into_iter().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut encoded = proto::Histogram::default();
    encoded.set_bucket(buckets.collect());
    encoded.set_sample_count(histogram.count);
    encoded.set_sample_sum(histogram.sum);
    encoded
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
        assert_eq!(families.text(), expected);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut families = Families::default();
        let labels = vec![("name", "a\"\\\n".into())];
        families.gauge("gauge", "A label.", [(labels, 0.5)]);
        let text = families.text();
        assert!(
            text.ends_with("gauge{name=\"a\\\"\\\\\\n\"} 0.5\n"),
            "{text}"
        );
    }
}
