//! The text of `/metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// One scrape.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) text: String,
    /// The values by name with labels.
    pub(super) samples: BTreeMap<String, f64>,
}

impl Scrape {
    pub(super) fn parse(text: &str) -> Scrape {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Scrape {
            samples: samples.collect(),
            text: text.to_owned(),
        }
    }

    /// Returns the value of a sample, by its name with labels.
    #[track_caller]
    pub(super) fn value(&self, sample: &str) -> f64 {
        let value = self.samples.get(sample).copied();
        value.unwrap_or_else(|| panic!("no {sample}: {}", self.text))
    }

    /// Returns the number of responses with a route and a status.
    pub(super) fn responses(&self, route: &str, status: u16) -> f64 {
        let sample = format!("floe_http_requests_total{{route=\"{route}\",status=\"{status}\"}}");
        self.samples.get(&sample).copied().unwrap_or(0.0)
    }

    /// Returns the names of all metrics.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let types = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.split(' ').next().unwrap()).collect()
    }
}
