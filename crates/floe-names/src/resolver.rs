//! Asks the sources for names, in their order.

mod choice;
mod files;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use floe_format::{Hash, StoreDir, StorePath};
use floe_transfer::Error;

use crate::access::Access;
use crate::error::NameError;
use crate::hydra;
use crate::list::{self, ListUri};
use crate::memory::NameMemory;
use crate::name_spec::NameSpec;
use crate::package::{Origin, PinFacts, QueryResult, SourceError, SourceReply, Unusable};
use crate::pins::{self, PinPolicy};
use crate::source_uri::{NameSource, NameSourceUri};
use files::{ask_file, ask_lock};

/// A name with its store path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedName {
    /// The name.
    pub name: NameSpec,
    /// The path.
    pub path: StorePath,
    /// The source without credentials.
    pub source: String,
    /// The alias of the source.
    pub alias: Option<String>,
    /// When the source was asked, in seconds since 1970.
    pub resolved_at: u64,
    /// When the package was built, in seconds since 1970, if the source tells it.
    pub built_at: Option<u64>,
    /// Where the reply comes from.
    pub origin: Origin,
    /// The sources that disagree, if they were asked.
    pub notes: Vec<String>,
    /// The number of the build, if the source numbers its builds.
    pub build: Option<u64>,
    /// The facts of the pin, if a cache has pinned the path.
    pub pin: Option<PinFacts>,
    /// The NAR hash that the path must have, if a lock file names it.
    pub nar_hash: Option<Hash>,
}

/// How names are resolved.
#[derive(Clone, Debug)]
pub struct ResolveOptions {
    /// The store directory that the paths must have.
    pub store_dir: StoreDir,
    /// How long a remembered name is used without asking its source.
    pub ttl: Duration,
    /// Whether all sources are asked, to note those that disagree with the first one.
    pub compares: bool,
    /// The caches that are asked for the paths of lists, if they are not the usual ones.
    pub caches: String,
    /// The demands on pins.
    pub pins: PinPolicy,
}

/// The sources of names, in their order.
pub struct Resolver<'a> {
    sources: &'a [NameSource],
    options: ResolveOptions,
    access: &'a dyn Access,
}

impl<'a> Resolver<'a> {
    /// Makes a resolver that asks the sources through `access`.
    pub fn new(
        sources: &'a [NameSource],
        options: ResolveOptions,
        access: &'a dyn Access,
    ) -> Resolver<'a> {
        Resolver {
            sources,
            options,
            access,
        }
    }

    /// Resolves names, and remembers the replies. Each source is asked for all names at once.
    ///
    /// Errors: [`NameError`] of the first name that cannot be resolved.
    pub fn resolve(
        &self,
        names: &[NameSpec],
        memory: &mut NameMemory,
    ) -> Result<Vec<ResolvedName>, NameError> {
        for name in names {
            self.check_alias(name)?;
        }
        let asked = self.ask_all(names, memory);
        // The replies for one name are remembered although another name fails.
        memory.save();
        let saved = memory.pins.save();
        let mut all = asked?;
        if let (Err(error), Some(pinned)) = (saved, all.iter_mut().find(|it| it.pin.is_some())) {
            pinned.notes.push(format!(
                "cannot remember the serial numbers of pins: {error}; an older pin would be \
                 accepted later"
            ));
        }
        Ok(all)
    }

    /// Asks the sources in their order for the names that none has had before.
    fn ask_all(
        &self,
        names: &[NameSpec],
        memory: &mut NameMemory,
    ) -> Result<Vec<ResolvedName>, NameError> {
        let mut found: Vec<Option<ResolvedName>> = names.iter().map(|_| None).collect();
        // A later source may have the version that an earlier one lacks.
        let mut other_versions: Vec<Option<NameError>> = names.iter().map(|_| None).collect();
        for source in self.sources {
            let is_wanted = |number: &usize| {
                let alias = &names[*number].source;
                alias.is_none() || *alias == source.alias || source.is_lock()
            };
            let asked = (0..names.len()).filter(is_wanted);
            let asked: Vec<usize> = asked
                .filter(|number| self.options.compares || found[*number].is_none())
                .collect();
            if asked.is_empty() {
                continue;
            }
            let specs: Vec<&NameSpec> = asked.iter().map(|number| &names[*number]).collect();
            for (number, reply) in asked.into_iter().zip(self.ask(source, &specs, memory)) {
                let name = &names[number];
                match (&mut found[number], reply) {
                    (_, Ok(None)) => {}
                    (Some(first), Ok(Some(reply))) => {
                        let other = choice::choose(name, &reply.candidate, &self.options);
                        note_difference(first, source, other);
                    }
                    // The user has a path. Another source is asked only for a comparison.
                    (Some(_), Err(_)) => {}
                    (empty, Ok(Some(reply))) => {
                        let has_version = source.is_lock()
                            || choice::check_version(name, &reply.candidate).is_ok();
                        match self.resolved(name, source, reply) {
                            Err(error) if !has_version => other_versions[number] = Some(error),
                            resolved => *empty = Some(resolved?),
                        }
                    }
                    (None, Err(error)) => return Err(named(name, source, error)),
                }
            }
        }
        let all = names.iter().zip(found).zip(other_versions);
        let all = all.map(|((name, found), other_version)| {
            found.ok_or_else(|| other_version.unwrap_or_else(|| self.not_found(name)))
        });
        all.collect()
    }

    /// Returns the path that the first source with the name had when it was asked last. A file is
    /// read again. Sends nothing.
    ///
    /// Returns `None` also if a source must be asked, so that [`Resolver::resolve`] reports its
    /// error: another source does not count then.
    pub fn remembered(&self, name: &NameSpec, memory: &NameMemory) -> Option<ResolvedName> {
        for source in self.sources {
            if name.source.is_some() && name.source != source.alias && !source.is_lock() {
                continue;
            }
            let Some(reply) = self.remembered_reply(name, source, memory).ok()? else {
                continue;
            };
            let has_version =
                source.is_lock() || choice::check_version(name, &reply.candidate).is_ok();
            match self.resolved(name, source, reply) {
                // A later source may have the version.
                Err(_) if !has_version => {}
                resolved => return resolved.ok(),
            }
        }
        None
    }

    /// Returns the reply of a source without asking it over the network; `None` if it did not have
    /// the name.
    fn remembered_reply(
        &self,
        name: &NameSpec,
        source: &NameSource,
        memory: &NameMemory,
    ) -> QueryResult {
        match &source.uri {
            NameSourceUri::File(path) => ask_file(path, &[name]).pop().unwrap_or(Ok(None)),
            NameSourceUri::Lock(path) => ask_lock(path, &[name]).pop().unwrap_or(Ok(None)),
            NameSourceUri::Pins(uri) => {
                pins::seen_reply(uri, &name.name, (&memory.pins, &self.options.pins))
            }
            NameSourceUri::Hydra(_) | NameSourceUri::List(_) => {
                let query_name = query_name(source, name);
                let remembered = memory.find(&self.memory_key(source), &query_name);
                Ok(remembered.map(|remembered| SourceReply {
                    candidate: remembered.candidate.clone(),
                    resolved_at: remembered.resolved_at,
                    origin: Origin::Remembered,
                }))
            }
        }
    }

    /// Returns the path of an earlier successful build, for a cache that has deleted the newest
    /// one. Returns `None` if the source has none.
    ///
    /// Errors: as [`Resolver::resolve`].
    pub fn earlier(&self, resolved: &ResolvedName) -> Result<Option<ResolvedName>, NameError> {
        let mut sources = self.sources.iter();
        let source = sources.find(|source| source.uri.to_string() == resolved.source);
        let (Some(source), Some(id)) = (source, resolved.build) else {
            return Ok(None);
        };
        let NameSourceUri::Hydra(uri) = &source.uri else {
            return Ok(None);
        };
        let name = &resolved.name;
        let before = hydra::query_before(uri, &name.name, id, self.access);
        let before = before.map_err(|error| named(name, source, error))?;
        before
            .map(|candidate| self.resolved(name, source, candidate.into()))
            .transpose()
    }

    /// Asks a source for some names.
    fn ask(
        &self,
        source: &NameSource,
        specs: &[&NameSpec],
        memory: &mut NameMemory,
    ) -> Vec<QueryResult> {
        match &source.uri {
            NameSourceUri::File(path) => ask_file(path, specs),
            NameSourceUri::Hydra(uri) => {
                let query = |names: &[&str]| hydra::query(uri, names, self.access);
                self.ask_or_remember(source, specs, memory, query)
            }
            NameSourceUri::Lock(path) => ask_lock(path, specs),
            NameSourceUri::Pins(uri) => {
                let names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
                let demands = (&mut memory.pins, &self.options.pins);
                pins::query(uri, &names, demands, self.access)
            }
            NameSourceUri::List(uri) => {
                let kept = (memory.directory().map(Path::to_owned), self.options.ttl);
                let mut systems = std::mem::take(&mut memory.systems);
                let query = |names: &[&str]| {
                    let kept = (kept.0.as_deref(), kept.1);
                    list::query_all((uri, kept), names, (self.access, &mut systems))
                };
                let replies = self.ask_or_remember(source, specs, memory, query);
                memory.systems = systems;
                replies
            }
        }
    }

    /// Returns remembered replies that are new enough, and queries the others.
    fn ask_or_remember(
        &self,
        source: &NameSource,
        specs: &[&NameSpec],
        memory: &mut NameMemory,
        query: impl FnOnce(&[&str]) -> Vec<QueryResult>,
    ) -> Vec<QueryResult> {
        let key = &self.memory_key(source);
        let ttl = match &source.uri {
            // A file is read again.
            NameSourceUri::List(ListUri::File(_)) => Duration::ZERO,
            _ => self.options.ttl,
        };
        let query_names: Vec<String> = specs.iter().map(|it| query_name(source, it)).collect();
        let fresh = |name: &str| {
            let remembered = memory.find(key, name)?;
            let is_fresh = remembered.is_newer_than(ttl);
            is_fresh.then(|| SourceReply {
                candidate: remembered.candidate.clone(),
                resolved_at: remembered.resolved_at,
                origin: Origin::Remembered,
            })
        };
        let mut replies: BTreeMap<&str, QueryResult> = BTreeMap::new();
        let mut unknown: Vec<&str> = Vec::new();
        for name in query_names.iter().map(String::as_str) {
            if replies.contains_key(name) || unknown.contains(&name) {
                continue;
            }
            match fresh(name) {
                Some(reply) => {
                    replies.insert(name, Ok(Some(reply)));
                }
                None => unknown.push(name),
            }
        }
        if !unknown.is_empty() {
            for (name, queried) in unknown.iter().zip(query(&unknown)) {
                replies.insert(name, self.remember(key, name, memory, queried));
            }
        }
        let replies = query_names
            .iter()
            .map(|name| replies.get(&**name).cloned().unwrap_or(Ok(None)));
        replies.collect()
    }

    /// Remembers a reply. If the source does not reply, returns the remembered one.
    fn remember(
        &self,
        key: &str,
        name: &str,
        memory: &mut NameMemory,
        queried: QueryResult,
    ) -> QueryResult {
        let cause = match queried {
            Ok(Some(reply)) => {
                memory.insert(key, name, &reply);
                return Ok(Some(reply));
            }
            Ok(None) => return Ok(None),
            Err(error) => error,
        };
        let reason = match &cause {
            SourceError::Fetch(error) if matches!(**error, Error::Cancelled) => return Err(cause),
            SourceError::Fetch(error) => error.to_string(),
            SourceError::Reply { place, reason } => format!("cannot read {place}: {reason}"),
            _ => return Err(cause),
        };
        match memory.find(key, name) {
            Some(remembered) => Ok(Some(SourceReply {
                candidate: remembered.candidate.clone(),
                resolved_at: remembered.resolved_at,
                origin: Origin::Offline(reason),
            })),
            None => Err(cause),
        }
    }

    /// Makes a name with its path out of a reply.
    fn resolved(
        &self,
        name: &NameSpec,
        source: &NameSource,
        reply: SourceReply,
    ) -> Result<ResolvedName, NameError> {
        let nar_hash = reply.candidate.nar_hash.as_deref();
        let nar_hash = nar_hash.and_then(|hash| Hash::parse_any(hash, None).ok());
        let chosen = if source.is_lock() {
            // The name stands in the file as it is, with its output and its version.
            choice::path(&reply.candidate, &self.options)
        } else {
            choice::choose(name, &reply.candidate, &self.options)
        };
        let path = chosen.map_err(|error| named(name, source, SourceError::Unusable(error)))?;
        Ok(ResolvedName {
            name: name.clone(),
            path,
            source: source.uri.to_string(),
            alias: source.alias.clone(),
            resolved_at: reply.resolved_at,
            built_at: reply.candidate.built_at,
            origin: reply.origin,
            notes: Vec::new(),
            build: reply.candidate.build,
            pin: reply.candidate.pin,
            nar_hash,
        })
    }

    /// Checks that there is a source with the alias of a name.
    fn check_alias(&self, name: &NameSpec) -> Result<(), NameError> {
        let Some(alias) = &name.source else {
            return Ok(());
        };
        let aliases = self.sources.iter();
        let aliases: Vec<&str> = aliases.filter_map(|it| it.alias.as_deref()).collect();
        // A lock file has names of sources that need not be configured here.
        if aliases.contains(&&**alias) || self.sources.iter().any(NameSource::is_lock) {
            return Ok(());
        }
        let known = match &*aliases {
            [] => "no source has a name; add one with --names or the setting names".into(),
            aliases => format!("there are {}", aliases.join(", ")),
        };
        Err(NameError::UnknownSource {
            name: name.to_string(),
            alias: alias.clone(),
            known,
        })
    }

    /// Returns the key of a source among the remembered names: a machine may share them with one of
    /// another system, and the caches choose between the versions of a list.
    fn memory_key(&self, source: &NameSource) -> String {
        let uri = &source.uri;
        match uri {
            NameSourceUri::Hydra(hydra) => format!("{uri} {}", hydra.system()),
            _ => format!("{uri} {} {}", hydra::machine_system(), self.options.caches),
        }
    }

    fn not_found(&self, name: &NameSpec) -> NameError {
        let asked = self.sources.iter();
        let is_asked = |source: &&NameSource| {
            name.source.is_none() || name.source == source.alias || source.is_lock()
        };
        let asked = asked.filter(is_asked);
        let asked: Vec<String> = asked.map(|source| source.uri.to_string()).collect();
        let reason = match &*asked {
            [] => "there is no name source; add one with --names or the setting names, or give a \
                   store path"
                .into(),
            asked => {
                let verb = if asked.len() == 1 { "has" } else { "have" };
                format!("{} {verb} no package of this name", asked.join(" and "))
            }
        };
        NameError::NotFound {
            name: name.to_string(),
            reason,
        }
    }
}

/// Returns the text by which a source is queried for a name: a list has several versions.
fn query_name(source: &NameSource, name: &NameSpec) -> String {
    match (&source.uri, &name.version) {
        (NameSourceUri::List(_), Some(version)) => format!("{}@{version}", name.name),
        _ => name.name.clone(),
    }
}

/// Notes that another source has another path.
fn note_difference(
    first: &mut ResolvedName,
    source: &NameSource,
    other: Result<StorePath, Unusable>,
) {
    if let Ok(other) = other
        && other != first.path
    {
        let note = format!("{} has {other}, and the first source counts", source.uri);
        first.notes.push(note);
    }
}

/// Makes the error of a source that was asked for no name.
pub(crate) fn unreadable(source: &NameSource, error: SourceError) -> NameError {
    match error {
        SourceError::Fetch(cause) => NameError::SourceAway {
            source_name: source.uri.to_string(),
            cause,
        },
        SourceError::Reply { place, reason } => NameError::Reply { place, reason },
        SourceError::Unusable(Unusable(reason)) | SourceError::Untrusted(reason) => {
            NameError::Reply {
                place: source.uri.to_string(),
                reason,
            }
        }
    }
}

fn named(name: &NameSpec, source: &NameSource, error: SourceError) -> NameError {
    match error {
        SourceError::Fetch(cause) => NameError::Unreachable {
            name: name.to_string(),
            cause,
        },
        SourceError::Reply { place, reason } => NameError::Reply { place, reason },
        SourceError::Untrusted(reason) => NameError::Untrusted {
            name: name.to_string(),
            source_name: source.uri.to_string(),
            reason,
        },
        SourceError::Unusable(Unusable(reason)) => NameError::Unusable {
            name: name.to_string(),
            source_name: source.uri.to_string(),
            reason,
        },
    }
}

#[cfg(test)]
mod tests;
