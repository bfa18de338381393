//! From roots to the part of their closure that is missing in the target.
//!
//! 1. new paths become temporary roots of the target, which is then asked what it lacks;
//! 2. a path that the target has is not followed: a store holds closures, never parts of them;
//! 3. for the others a source is asked, as many at once as it takes, in the order of the
//!    sources until one has the path and is trusted with it; a source that says nothing is passed
//!    over until it speaks;
//! 4. the references of what was found are new paths.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use floe_format::StorePath;

use super::accept::accept;
use super::{Item, Mover, TargetKind};
use crate::cache::{Answer, Belief};
use crate::cancel::CANCEL_POLL;
use crate::error::Error;
use crate::path_spec::{CLOSURE_MAX, Root};
use crate::report::Event;

/// What is to be moved.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The roots by their names, as far as they were found.
    pub(crate) roots: Vec<StorePath>,
    pub(crate) items: Vec<Item>,
    pub(crate) failures: Vec<Error>,
    /// Paths that the target lacks and no source gives.
    pub(crate) unavailable: BTreeSet<StorePath>,
}

/// A path that is looked for.
struct Wanted {
    root: Root,
    /// Which root it is, if it is one that was asked for by hash part.
    number: Option<usize>,
    /// Somebody named this very path, and may know that it is there by now.
    is_named: bool,
    /// What became of it at each source.
    asked: Vec<Asked>,
    /// What the first source said that did not just lack it.
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    NotYet,
    Waiting,
    Answered,
}

/// How a source has been.
struct Heard {
    /// Since when something was asked of it and nothing came.
    since: Instant,
    waiting: usize,
}

/// Which path was asked for, and of which source.
type Tag = (usize, usize);

struct Resolver<'a> {
    mover: &'a Mover<'a>,
    sender: mpsc::Sender<(Tag, Answer)>,
    wanted: HashMap<usize, Wanted>,
    next_wanted: usize,
    heard: Vec<Heard>,
    seen: HashSet<StorePath>,
    items: BTreeMap<StorePath, Item>,
    failures: Vec<Error>,
    unavailable: BTreeSet<StorePath>,
    roots: Vec<Option<StorePath>>,
    /// Found and not yet followed.
    fresh: Vec<StorePath>,
    /// Those among them that a user has named.
    named: HashSet<StorePath>,
}

/// Explores the closures of `roots`.
pub(crate) fn resolve(mover: &Mover<'_>, roots: &[Root]) -> Result<Resolved, Error> {
    let (sender, receiver) = mpsc::channel();
    let heard = || Heard {
        since: Instant::now(),
        waiting: 0,
    };
    let mut resolver = Resolver {
        mover,
        sender,
        wanted: HashMap::new(),
        next_wanted: 0,
        heard: mover.sources.list.iter().map(|_| heard()).collect(),
        seen: HashSet::new(),
        items: BTreeMap::new(),
        failures: Vec::new(),
        unavailable: BTreeSet::new(),
        roots: vec![None; roots.len()],
        fresh: Vec::new(),
        named: HashSet::new(),
    };
    resolver.ask_for_roots(roots)?;
    resolver.follow_fresh()?;
    while !resolver.wanted.is_empty() {
        mover.check_cancelled()?;
        match receiver.recv_timeout(CANCEL_POLL) {
            Ok((tag, answer)) => resolver.take(tag, answer),
            Err(RecvTimeoutError::Timeout) => resolver.pass_over_the_silent(),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
        }
        // Whatever else has arrived meanwhile shares one question to the database.
        while let Ok((tag, answer)) = receiver.try_recv() {
            resolver.take(tag, answer);
        }
        resolver.follow_fresh()?;
        let (known, pending) = (resolver.items.len(), resolver.wanted.len());
        mover.reporter.event(Event::Resolving { known, pending });
    }
    Ok(Resolved {
        roots: resolver.roots.into_iter().flatten().collect(),
        items: resolver.items.into_values().collect(),
        failures: resolver.failures,
        unavailable: resolver.unavailable,
    })
}

impl Resolver<'_> {
    fn ask_for_roots(&mut self, roots: &[Root]) -> Result<(), Error> {
        for (number, root) in roots.iter().enumerate() {
            let known = match (root, &self.mover.target.0) {
                (Root::Path(path), _) => Some(path.clone()),
                (Root::HashPart(part), TargetKind::Store(store)) => {
                    store.path_of_hash_part(part)?
                }
                (Root::HashPart(part), TargetKind::Preview(preview)) => {
                    preview.path_of_hash_part(part)?
                }
                (Root::HashPart(_), TargetKind::Cache(_)) => None,
            };
            match known {
                Some(path) => {
                    self.roots[number] = Some(path.clone());
                    self.named.insert(path.clone());
                    self.fresh.push(path);
                }
                None => self.want(root.clone(), Some(number)),
            }
        }
        Ok(())
    }

    /// Asks the target which of the fresh paths it lacks, and the sources for those.
    fn follow_fresh(&mut self) -> Result<(), Error> {
        let fresh: BTreeSet<StorePath> = std::mem::take(&mut self.fresh).into_iter().collect();
        let fresh: Vec<StorePath> = fresh
            .into_iter()
            .filter(|path| self.seen.insert(path.clone()))
            .collect();
        if self.seen.len() > CLOSURE_MAX {
            return Err(Error::ClosureTooLarge { limit: CLOSURE_MAX });
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let missing = self.mover.target.missing(&fresh)?;
        for path in fresh
            .iter()
            .filter(|path| missing.binary_search(path).is_err())
        {
            // Asked for by its hash part and found, and there already under its name.
            self.items.remove(path);
        }
        for path in missing {
            // A root that was asked for by its hash part has been found already.
            if !self.items.contains_key(&path) {
                self.want(Root::Path(path), None);
            }
        }
        Ok(())
    }

    fn want(&mut self, root: Root, number: Option<usize>) {
        let is_named = match &root {
            Root::Path(path) => self.named.contains(path),
            Root::HashPart(_) => true,
        };
        let (sources, dir) = (&self.mover.sources.list, self.mover.target.store_dir());
        let asked = sources.iter().map(|source| match source.is_for(dir) {
            true => Asked::NotYet,
            // It has nothing that could stand in the target.
            false => Asked::Answered,
        });
        let wanted = Wanted {
            asked: asked.collect(),
            root,
            number,
            is_named,
            error: None,
        };
        let text = &wanted.root.text();
        self.mover.reporter.event(Event::Asked { wanted: text });
        let id = self.next_wanted;
        self.next_wanted += 1;
        self.wanted.insert(id, wanted);
        self.ask_next(id);
    }

    /// Asks one more source, those that are silent at last; gives the path up when all have
    /// answered.
    fn ask_next(&mut self, id: usize) {
        let Some(wanted) = self.wanted.get_mut(&id) else {
            return;
        };
        let heard = &self.heard;
        let not_yet = |source: &usize| wanted.asked[*source] == Asked::NotYet;
        let mut left = (0..heard.len()).filter(not_yet);
        let first = left.clone().find(|source| !heard[*source].is_silent());
        match first.or_else(|| left.next()) {
            Some(source) => {
                let belief = match wanted.is_named {
                    true => Belief::Presence,
                    false => Belief::All,
                };
                self.ask((id, source), belief);
            }
            None if wanted.asked.contains(&Asked::Waiting) => {}
            None => self.give_up(id),
        }
    }

    fn ask(&mut self, (id, source): Tag, belief: Belief) {
        let Some(wanted) = self.wanted.get_mut(&id) else {
            return;
        };
        wanted.asked[source] = Asked::Waiting;
        let heard = &mut self.heard[source];
        if heard.waiting == 0 {
            heard.since = Instant::now();
        }
        heard.waiting += 1;
        let part = wanted.root.hash_part();
        self.mover.sources.list[source].ask(part, belief, (id, source), &self.sender);
    }

    fn give_up(&mut self, id: usize) {
        let Some(wanted) = self.wanted.remove(&id) else {
            return;
        };
        if let Root::Path(path) = &wanted.root {
            self.unavailable.insert(path.clone());
        }
        let sources = self.mover.sources.list.iter();
        let sources = sources.map(|source| source.name()).collect();
        let path = wanted.root.text();
        let error = wanted.error.unwrap_or(Error::NotFound { path, sources });
        self.failures.push(error);
    }

    /// Asks others for what a source is asked for that has said nothing for a while.
    fn pass_over_the_silent(&mut self) {
        if !self.heard.iter().any(Heard::is_silent) {
            return;
        }
        let is_stuck = |wanted: &Wanted| {
            let mut asked = wanted.asked.iter().zip(&self.heard);
            asked.all(|(asked, heard)| *asked != Asked::Waiting || heard.is_silent())
                && wanted.asked.contains(&Asked::NotYet)
        };
        let stuck = self.wanted.iter().filter(|(_, wanted)| is_stuck(wanted));
        let stuck: Vec<usize> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            self.ask_next(id);
        }
    }

    fn take(&mut self, (id, source): Tag, answer: Answer) {
        let heard = &mut self.heard[source];
        heard.since = Instant::now();
        heard.waiting -= 1;
        // Another source may have been faster.
        let Some(wanted) = self.wanted.get_mut(&id) else {
            return;
        };
        wanted.asked[source] = Asked::Answered;
        let mut is_remembered = false;
        let accepted = answer.and_then(|found| match found {
            Some(told) => {
                is_remembered = told.is_remembered;
                accept(self.mover, source, &wanted.root, told.narinfo).map(Some)
            }
            None => Ok(None),
        });
        match accepted {
            Ok(Some(item)) => self.found(id, item),
            Ok(None) => self.ask_next(id),
            // Since then somebody may have signed it. Asked now, it is remembered no more.
            Err(_) if is_remembered => self.ask((id, source), Belief::Nothing),
            // The next source may have a better answer; the first error is the one to show.
            Err(error) => {
                wanted.error.get_or_insert(error);
                self.ask_next(id);
            }
        }
    }

    fn found(&mut self, id: usize, item: Item) {
        let path = item.narinfo.info.path.clone();
        self.mover.reporter.event(Event::Resolved {
            path: &path,
            nar_size: item.narinfo.info.nar_size,
            download_size: item.narinfo.file_size,
        });
        let number = self.wanted.remove(&id).and_then(|wanted| wanted.number);
        if let Some(number) = number {
            self.roots[number] = Some(path.clone());
            // It may be there under its name, or be somebody else's reference too.
            self.fresh.push(path.clone());
        }
        let references = item.narinfo.info.references.iter();
        self.fresh.extend(references.cloned());
        self.items.insert(path, item);
    }
}

impl Heard {
    fn is_silent(&self) -> bool {
        self.waiting > 0 && self.since.elapsed() > SILENCE
    }
}

/// How long a source may say nothing before others are asked for the same: longer than any answer
/// takes that is still on its way, and short beside the time after which a request has failed.
const SILENCE: Duration = Duration::from_secs(2);
