//! From roots to the part of their closure that is missing in the target.
//!
//! 1. new paths become temporary roots of the target, which is then asked what it lacks;
//! 2. a path that the target has is not followed: a store holds closures, never parts of them;
//! 3. for the others a source is asked, as many at once as it takes, in the order of the
//!    sources until one has the path and is trusted with it;
//! 4. the references of what was found are new paths.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use floe_format::content_address::Method;
use floe_format::store_path::is_hash_part;
use floe_format::{Compression, NarInfo, StoreDir, StorePath};
use floe_store::StoreReader;

use super::{Item, Mover, TargetKind};
use crate::cache::Answer;
use crate::error::Error;
use crate::report::Event;

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// A path by its name.
    Path(StorePath),
    /// A path by its hash part alone.
    HashPart(String),
}

impl Root {
    /// Parses a full store path (or a file inside one), a base name or a hash part.
    pub fn parse(text: &str, store_dir: &StoreDir) -> Result<Root, Error> {
        if is_hash_part(text) {
            return Ok(Root::HashPart(text.to_owned()));
        }
        let parsed = if text.starts_with('/') {
            let prefix = format!("{}/", store_dir.as_str());
            let base_name = text
                .strip_prefix(&prefix)
                .and_then(|rest| rest.split('/').next());
            base_name.map_or_else(|| store_dir.parse(text), StorePath::parse)
        } else {
            StorePath::parse(text)
        };
        parsed
            .map(Root::Path)
            .map_err(|error| Error::NotAStorePath {
                text: text.to_owned(),
                reason: error.to_string(),
                store_dir: store_dir.as_str().to_owned(),
            })
    }

    /// The path that is meant in a local store: a hash part stands for the valid path that has it.
    pub fn find_in(self, store: &StoreReader) -> Result<StorePath, Error> {
        let part = match self {
            Root::Path(path) => return Ok(path),
            Root::HashPart(part) => part,
        };
        let found = store.path_of_hash_part(&part)?;
        found.ok_or_else(|| Error::NotFound {
            path: part,
            sources: vec![store.layout().real_store.display().to_string()],
        })
    }

    pub(crate) fn hash_part(&self) -> &str {
        match self {
            Root::Path(path) => path.hash_part(),
            Root::HashPart(part) => part,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Root::Path(path) => path.to_string(),
            Root::HashPart(part) => part.clone(),
        }
    }
}

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

/// A question to a source, under way.
struct Question {
    wanted: Root,
    source: usize,
    /// Which root it answers, if it is one that was asked for by hash part.
    root: Option<usize>,
    /// What the sources before said, if they did not just lack it.
    error: Option<Error>,
}

struct Resolver<'a> {
    mover: &'a Mover<'a>,
    sender: mpsc::Sender<(Question, Answer)>,
    pending: usize,
    seen: HashSet<StorePath>,
    items: BTreeMap<StorePath, Item>,
    failures: Vec<Error>,
    unavailable: BTreeSet<StorePath>,
    roots: Vec<Option<StorePath>>,
    /// Found and not yet followed.
    fresh: Vec<StorePath>,
}

/// Explores the closures of `roots`.
pub(crate) fn resolve(mover: &Mover<'_>, roots: &[Root]) -> Result<Resolved, Error> {
    let (sender, receiver) = mpsc::channel();
    let mut resolver = Resolver {
        mover,
        sender,
        pending: 0,
        seen: HashSet::new(),
        items: BTreeMap::new(),
        failures: Vec::new(),
        unavailable: BTreeSet::new(),
        roots: vec![None; roots.len()],
        fresh: Vec::new(),
    };
    resolver.ask_for_roots(roots)?;
    resolver.follow_fresh()?;
    while resolver.pending > 0 {
        mover.check_cancelled()?;
        match receiver.recv_timeout(CANCEL_POLL) {
            Ok((question, answer)) => resolver.take(question, answer),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
        }
        // Whatever else has arrived meanwhile shares one question to the database.
        while let Ok((question, answer)) = receiver.try_recv() {
            resolver.take(question, answer);
        }
        resolver.follow_fresh()?;
        let (known, pending) = (resolver.items.len(), resolver.pending);
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
                    self.fresh.push(path);
                }
                None => self.ask(Question {
                    wanted: root.clone(),
                    source: 0,
                    root: Some(number),
                    error: None,
                }),
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
                let wanted = Root::Path(path);
                self.ask(Question {
                    wanted,
                    source: 0,
                    root: None,
                    error: None,
                });
            }
        }
        Ok(())
    }

    fn ask(&mut self, question: Question) {
        let sources = &self.mover.sources.list;
        match sources.get(question.source) {
            Some(source) => {
                self.pending += 1;
                let part = question.wanted.hash_part().to_owned();
                source.ask(&part, question, &self.sender);
            }
            None => {
                if let Root::Path(path) = &question.wanted {
                    self.unavailable.insert(path.clone());
                }
                let sources = sources.iter().map(|source| source.name()).collect();
                let path = question.wanted.text();
                let error = question.error.unwrap_or(Error::NotFound { path, sources });
                self.failures.push(error);
            }
        }
    }

    fn take(&mut self, question: Question, answer: Answer) {
        self.pending -= 1;
        let accepted = answer.and_then(|found| match found {
            Some(narinfo) => self.accept(&question, narinfo).map(Some),
            None => Ok(None),
        });
        match accepted {
            Ok(Some(item)) => {
                let path = item.narinfo.info.path.clone();
                if let Some(number) = question.root {
                    self.roots[number] = Some(path.clone());
                    // It may be there under its name, or be somebody else's reference too.
                    self.fresh.push(path.clone());
                }
                self.fresh
                    .extend(item.narinfo.info.references.iter().cloned());
                self.items.insert(path, item);
            }
            Ok(None) => self.ask(Question {
                source: question.source + 1,
                ..question
            }),
            // The next source may have a better answer; the first error is the one to show.
            Err(error) => self.ask(Question {
                source: question.source + 1,
                error: question.error.or(Some(error)),
                ..question
            }),
        }
    }

    /// Checks all that can be known of a path before its contents arrive.
    fn accept(&self, question: &Question, narinfo: NarInfo) -> Result<Item, Error> {
        let source = &self.mover.sources.list[question.source];
        let dir = self.mover.target.store_dir();
        let info = &narinfo.info;
        let is_wanted = match &question.wanted {
            Root::Path(path) => *path == info.path,
            Root::HashPart(part) => part == info.path.hash_part(),
        };
        if !is_wanted {
            return Err(Error::WrongPath {
                url: format!("{}/{}.narinfo", source.name(), question.wanted.hash_part()),
                found: info.path.clone(),
                wanted: question.wanted.text(),
            });
        }
        let path = || info.path.clone();
        if let Compression::Unsupported(name) = narinfo.compression {
            return Err(Error::UnsupportedCompression {
                path: path(),
                name: name.to_string(),
            });
        }
        let is_content_addressed = match (&info.ca, info.content_address_holds(dir)) {
            (Some(ca), Some(false)) => {
                let (source_name, ca) = (source.name(), ca.to_string());
                return Err(Error::FalseContentAddress {
                    path: path(),
                    source_name,
                    ca,
                });
            }
            (Some(ca), _) if ca.method == Method::Git => {
                return Err(Error::GitAddress { path: path() });
            }
            (_, holds) => holds == Some(true),
        };
        let needs_signature = self.mover.options.check_signatures
            && !self.mover.target.is_cache()
            && !is_content_addressed;
        let keys = &self.mover.options.trusted_keys;
        if needs_signature && !info.is_signed_by(dir, keys) {
            return Err(Error::Untrusted {
                path: path(),
                source_name: source.name(),
                signed_by: info
                    .signatures
                    .iter()
                    .map(|s| s.key_name().to_owned())
                    .collect(),
                trusted: keys.names().map(str::to_owned).collect(),
            });
        }
        Ok(Item {
            narinfo,
            source: question.source,
        })
    }
}

/// More than twice the largest closures known; beyond it a source invents paths.
pub(crate) const CLOSURE_MAX: usize = 1_000_000;

/// How soon a raised flag is noticed while nothing arrives.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(100);
