//! What a source knows of paths, and of all that they need.

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use floe_format::{NarInfo, StorePath};

use super::{Answer, Belief, Source};
use crate::cancel::{CANCEL_POLL, Cancel};
use crate::error::Error;
use crate::path_spec::{CLOSURE_MAX, Root};

impl Source {
    /// The narinfos of `roots` and, if asked for, of their closures, in the order of their paths.
    /// As many questions are under way as the connection takes. What was remembered of the roots
    /// does not count: whoever names a path wants to know what is so now.
    ///
    /// Errors: [`Error::NotFound`] for the first path that the source does not have, those of its
    /// answers, [`Error::ClosureTooLarge`], [`Error::Cancelled`].
    pub fn look_up_all(
        &self,
        roots: &[Root],
        recursive: bool,
        cancel: &Cancel,
    ) -> Result<BTreeMap<StorePath, NarInfo>, Error> {
        let (sender, answers) = channel();
        let mut walk = Walk {
            source: self,
            sender,
            seen: HashSet::new(),
            pending: 0,
        };
        let mut found = BTreeMap::new();
        for root in roots {
            walk.ask(root.clone(), Belief::Nothing)?;
        }
        while walk.pending > 0 {
            let (root, answer) = match answers.recv_timeout(CANCEL_POLL) {
                Ok(answered) => answered,
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => continue,
                Err(_) => return Err(Error::Cancelled),
            };
            walk.pending -= 1;
            let narinfo = walk.check(&root, answer)?;
            if recursive {
                for path in &narinfo.info.references {
                    walk.ask(Root::Path(path.clone()), Belief::Presence)?;
                }
            }
            found.insert(narinfo.info.path.clone(), narinfo);
        }
        Ok(found)
    }
}

struct Walk<'a> {
    source: &'a Source,
    sender: Sender<(Root, Answer)>,
    /// The hash parts that were asked for.
    seen: HashSet<String>,
    pending: usize,
}

impl Walk<'_> {
    fn ask(&mut self, root: Root, belief: Belief) -> Result<(), Error> {
        let part = root.hash_part().to_owned();
        if !self.seen.insert(part.clone()) {
            return Ok(());
        }
        if self.seen.len() > CLOSURE_MAX {
            return Err(Error::ClosureTooLarge { limit: CLOSURE_MAX });
        }
        self.pending += 1;
        self.source.ask(&part, belief, root, &self.sender);
        Ok(())
    }

    fn check(&self, root: &Root, answer: Answer) -> Result<NarInfo, Error> {
        let is_wanted = |narinfo: &NarInfo| match root {
            Root::Path(path) => *path == narinfo.info.path,
            Root::HashPart(_) => true,
        };
        let narinfo = answer?.map(|told| told.narinfo);
        narinfo.filter(is_wanted).ok_or_else(|| Error::NotFound {
            path: root.text(),
            sources: vec![self.source.name()],
        })
    }
}
