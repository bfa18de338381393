//! Searches and checks of the name sources.

use floe_names::{FoundPackages, NameError, check_source};

use super::PackageNames;
use super::fetcher::Fetcher;

impl PackageNames<'_> {
    /// Searches the sources that can list their packages for names with all words.
    ///
    /// Errors: a source does not reply.
    pub(crate) fn search(&self, words: &[String]) -> Result<FoundPackages, NameError> {
        let kept = (&self.memory, self.options.ttl);
        floe_names::search(&self.sources, words, kept, &Fetcher::new(self))
    }

    /// Asks each source now, and returns what it replies.
    pub(crate) fn check_sources(&self, name: &str) -> Vec<(String, Result<String, NameError>)> {
        let fetcher = Fetcher::new(self);
        let results = self.sources.iter().map(|source| {
            let result = check_source(source, name, (&self.memory, &fetcher));
            (source.to_string(), result)
        });
        results.collect()
    }
}
