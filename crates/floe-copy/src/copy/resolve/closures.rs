//! Closures that a source tells as a whole.

use floe_transfer::Error;

use super::Resolver;

impl Resolver<'_> {
    /// Adds the closures of the frontier, if the only source knows them, and the target wants them
    /// or the source saves round trips by them.
    pub(super) fn add_closures(&mut self) -> Result<(), Error> {
        let [source] = &*self.copy.sources.list else {
            return Ok(());
        };
        let wants_closures = self.copy.target.facts().wants_whole_closures;
        let tells_closures = source.facts().tells_closures_in_one_request;
        if self.frontier.is_empty() || !(wants_closures || tells_closures) {
            return Ok(());
        }
        self.asked_for_closures |= tells_closures;
        if let Some(closures) = source.closures(&self.frontier)? {
            self.frontier.extend(closures);
            self.is_closed = true;
        }
        Ok(())
    }

    /// Adds the closures of the new references, unless the source was asked for closures before: a
    /// daemon tells only with its first reply that it is another floe.
    pub(super) fn add_closures_of_references(&mut self) -> Result<(), Error> {
        let mut sources = self.copy.sources.list.iter();
        if self.asked_for_closures
            || !sources.any(|source| source.facts().tells_closures_in_one_request)
        {
            return Ok(());
        }
        let seen = &self.seen;
        self.frontier.retain(|path| !seen.contains(path));
        self.add_closures()
    }
}
