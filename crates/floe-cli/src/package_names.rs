//! The names of packages as arguments: asks the name sources for their paths.

mod fetcher;
pub(crate) mod lock;
mod outcome;
mod search;
mod sources;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use floe_cache::{DocumentRequest, Fetched};
use floe_format::{HashPart, StoreDir, StorePath, TrustedKeys};
use floe_names::{
    NameError, NameMemory, NameSource, NameSpec, PinPolicy, ResolveOptions, ResolvedName, Resolver,
    SeenPins,
};
use floe_store::{StoreLayout, StoreReader};
use floe_transfer::{DerivedPath, StoreConfig};

use crate::args::NameArgs;
use crate::display::{Verbosity, is_verbose, warn};
use crate::exit::UsageError;
use crate::links::existing_file;
use crate::options::Settings;
use crate::path_names;
use fetcher::Fetcher;
use lock::check_valid_paths;
use outcome::print_name;
pub(crate) use outcome::{ago, to_json};

/// The name sources of a command.
pub(crate) struct PackageNames<'a> {
    pub(crate) settings: &'a Settings,
    sources: Vec<NameSource>,
    /// The caches of the command, if the user names them.
    caches: Vec<Arc<dyn StoreConfig>>,
    options: ResolveOptions,
    memory: NameMemory,
    is_forbidden: bool,
    /// Whether only the names of a lock file count.
    is_locked: bool,
    has_used_network: Cell<bool>,
}

/// Whether a name means a path of the store, or what a name source says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Store,
    Sources,
}

/// Finds an earlier path of a name.
pub(crate) type FindEarlier<'a> = dyn Fn(&ResolvedName) -> Option<ResolvedName> + 'a;

/// No source has the path of a name, and an earlier path of the name may be tried.
#[derive(Debug, thiserror::Error)]
#[error("cannot find the path of {}", earlier.name)]
pub(crate) struct MissingName {
    /// The number of the name among those of the copy.
    pub(crate) number: usize,
    pub(crate) earlier: ResolvedName,
}

/// Arguments with their names replaced by paths.
#[derive(Debug, Default)]
pub(crate) struct Resolution {
    pub(crate) texts: Vec<String>,
    pub(crate) names: Vec<ResolvedName>,
}

impl From<Vec<String>> for Resolution {
    /// Makes the resolution of arguments without names of packages.
    fn from(texts: Vec<String>) -> Resolution {
        let names = Vec::new();
        Resolution { texts, names }
    }
}

impl<'a> PackageNames<'a> {
    /// Reads the sources of the arguments, else those of the settings. `store_dir` is that of the
    /// store in question, if it is known. `refresh` tells whether remembered names are looked up
    /// again.
    ///
    /// Errors: a source has no valid description.
    pub(crate) fn new(
        settings: &'a Settings,
        args: &NameArgs,
        (store_dir, refresh): (Option<&StoreDir>, bool),
    ) -> anyhow::Result<PackageNames<'a>> {
        let store_dir = store_dir.or(settings.context.store_dir.as_ref());
        let config = &settings.config;
        let texts: Vec<&str> = match &args.names {
            Some(names) => names.split_whitespace().collect(),
            None => config.names.get().0.iter().map(String::as_str).collect(),
        };
        let lock = args.lock_source();
        let sources = texts.into_iter().filter(|_| !args.no_names && !args.locked);
        let sources = lock.as_deref().into_iter().chain(sources);
        let sources = sources.map(NameSource::parse);
        let ttl = if refresh {
            0
        } else {
            (*config.names_ttl.get()).into()
        };
        let file = config.cache_dir.as_ref();
        let mut memory = NameMemory::open(file.map(|directory| directory.join("names.json")));
        memory.pins = seen_pins(settings);
        Ok(PackageNames {
            settings,
            sources: sources.collect::<Result<_, _>>()?,
            caches: Vec::new(),
            options: ResolveOptions {
                store_dir: store_dir.cloned().unwrap_or_default(),
                ttl: Duration::from_secs(ttl),
                compares: is_verbose(Verbosity::Paths),
                caches: String::new(),
                pins: PinPolicy {
                    keys: config.trusted_keys(TrustedKeys::default()),
                    max_age: Some(*config.max_pin_age.get())
                        .filter(|seconds| *seconds > 0)
                        .map(|seconds| Duration::from_secs(seconds.into())),
                    allows_downgrade: args.allow_downgrade,
                    uses_seen: true,
                },
            },
            memory,
            is_forbidden: args.no_names,
            is_locked: args.locked,
            has_used_network: Cell::new(false),
        })
    }

    /// Reads again which pins this machine has seen. Those that cannot be saved stay.
    pub(crate) fn read_seen_pins(&mut self) {
        let pins = &mut self.memory.pins;
        if !pins.has_unsaved() || pins.save().is_ok() {
            *pins = seen_pins(self.settings);
        }
    }

    /// Sets the keys that may sign pins.
    pub(crate) fn set_keys(&mut self, keys: TrustedKeys) {
        self.options.pins.keys = keys;
    }

    /// Whether names are looked up or refused.
    pub(crate) fn are_enabled(&self) -> bool {
        self.is_forbidden || !self.sources.is_empty()
    }

    /// Replaces names of packages by the paths that the sources have, and prints them. Other
    /// arguments stay as they are.
    ///
    /// Errors: names are forbidden; a file has the name, too; a source does not know the name, or
    /// does not reply.
    pub(crate) fn resolve(
        &mut self,
        arguments: &[String],
        texts: Vec<String>,
    ) -> anyhow::Result<Resolution> {
        let names = self.names_among(arguments, &texts)?;
        if names.is_empty() {
            return Ok(texts.into());
        }
        let specs: Vec<NameSpec> = names.iter().map(|(_, spec)| spec.clone()).collect();
        let resolved = self.ask(&specs)?;
        Ok(self.replace(texts, names.into_iter().zip(resolved)))
    }

    /// Replaces names by paths: names of packages by those of the sources, and names of paths in a
    /// store by these paths. Other arguments stay as they are.
    ///
    /// Errors: as [`PackageNames::resolve`], and those of the store.
    pub(crate) fn find(
        &mut self,
        (arguments, mut texts): (&[String], Vec<String>),
        (layout, first): (&StoreLayout, First),
    ) -> anyhow::Result<Resolution> {
        if self.is_forbidden || !self.are_enabled() {
            texts = path_names::resolve(layout, texts)?;
            return self.resolve(arguments, texts);
        }
        if self.is_locked {
            let found = self.resolve(arguments, path_names::follow_links(layout, &texts)?)?;
            check_valid_paths(layout, &found.names)?;
            return Ok(found);
        }
        let found = self.find_unlocked((arguments, texts), (layout, first))?;
        check_valid_paths(layout, &found.names)?;
        Ok(found)
    }

    fn find_unlocked(
        &mut self,
        (arguments, mut texts): (&[String], Vec<String>),
        (layout, first): (&StoreLayout, First),
    ) -> anyhow::Result<Resolution> {
        texts = match first {
            First::Store => each(texts, |text| {
                if self.is_in_lock(&text) {
                    Ok(vec![existing_file(&text).unwrap_or(text)])
                } else {
                    path_names::resolve_unambiguous(layout, vec![text])
                }
            })?,
            First::Sources => each(texts, |text| match package_name(&text) {
                Some(_) => Ok(vec![existing_file(&text).unwrap_or(text)]),
                None => path_names::resolve(layout, vec![text]),
            })?,
        };
        loop {
            let error = match self.resolve(arguments, texts.clone()) {
                Err(error) => error,
                resolution => return resolution,
            };
            let is_away = match error.downcast_ref() {
                Some(NameError::NotFound { .. }) => false,
                Some(NameError::Unreachable { .. }) => true,
                _ => return Err(error),
            };
            // A source that is away is asked once: all names that the store has need it no more.
            let name = name_of(&error);
            let found = each(texts.clone(), |text| {
                if is_away || text == name {
                    path_names::resolve(layout, vec![text])
                } else {
                    Ok(vec![text])
                }
            })?;
            let is_found = |(text, found): (&String, &String)| *text == name && text != found;
            if !texts.iter().zip(&found).any(is_found) {
                return Err(error);
            }
            texts = found;
        }
    }

    /// Replaces the names whose remembered paths are valid in the store. Other arguments stay as
    /// they are.
    pub(crate) fn find_remembered(
        &self,
        layout: &StoreLayout,
        texts: Vec<String>,
    ) -> anyhow::Result<Vec<String>> {
        let is_any = texts.iter().any(|text| package_name(text).is_some());
        let store = match is_any.then(|| StoreReader::open(layout.clone())) {
            Some(Ok(store)) => store,
            _ => return Ok(texts),
        };
        let fetch = |_: Vec<DocumentRequest>| -> Fetched { Ok(Vec::new()) };
        let resolver = Resolver::new(&self.sources, self.options.clone(), &fetch);
        let found = texts.into_iter().map(|text| {
            // A file of this name is refused, however often the package was used before.
            let name = package_name(&text).filter(|_| existing_file(&text).is_none());
            let name = name.map(|name| self.with_source(name));
            let remembered = name.and_then(|name| resolver.remembered(&name, &self.memory));
            let Some(remembered) = remembered else {
                return Ok(text);
            };
            let is_valid = store.is_valid(&remembered.path)?;
            if !is_valid {
                return Ok(text);
            }
            check_valid_paths(layout, std::slice::from_ref(&remembered))?;
            if is_verbose(Verbosity::Paths) {
                print_name(&remembered, &self.options.store_dir);
            }
            Ok(layout.store_dir.full_path(&remembered.path))
        });
        found.collect()
    }

    /// Copies the paths of a resolution. If the sources of the copy lack the path of a name, copies
    /// again with that of an earlier build, as long as the name source has one. The copy gets the
    /// function that looks for it.
    ///
    /// Errors: those of the copy.
    pub(crate) fn copy_newest(
        &self,
        mut found: Resolution,
        copy: impl Fn(&Resolution, &FindEarlier<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Resolution> {
        for round in 0.. {
            let earlier = |name: &ResolvedName| {
                let earlier = (round < EARLIER_BUILDS_MAX).then(|| self.earlier(name));
                // If the source does not reply, the user gets the error of the copy.
                earlier?.ok()?
            };
            let error = match copy(&found, &earlier) {
                Ok(()) => break,
                Err(error) => error,
            };
            let MissingName { number, earlier } = error.downcast()?;
            let absent = found.names[number].path.clone();
            let dir = &self.options.store_dir;
            let [from, to] = [&absent, &earlier.path].map(|path| dir.full_path(path));
            warn(format_args!(
                "no source has {from}, the newest build of {}; using {to} of an earlier build",
                earlier.name
            ));
            for text in found.texts.iter_mut().filter(|text| **text == from) {
                text.clone_from(&to);
            }
            for name in found.names.iter_mut().filter(|name| name.path == absent) {
                let asked = name.name.clone();
                *name = ResolvedName {
                    name: asked,
                    ..earlier.clone()
                };
            }
        }
        Ok(found)
    }

    /// Returns an earlier path of a name.
    fn earlier(&self, name: &ResolvedName) -> Result<Option<ResolvedName>, NameError> {
        let fetcher = Fetcher::new(self);
        let resolver = Resolver::new(&self.sources, self.options.clone(), &fetcher);
        resolver.earlier(name)
    }

    /// Whether a source was asked over the network, for which threads have started.
    pub(crate) fn has_used_network(&self) -> bool {
        self.has_used_network.get()
    }

    /// Asks the sources for names.
    ///
    /// Errors: that of the first name that cannot be found.
    pub(crate) fn ask(&mut self, specs: &[NameSpec]) -> Result<Vec<ResolvedName>, NameError> {
        let mut memory = std::mem::take(&mut self.memory);
        let fetcher = Fetcher::new(self);
        let resolver = Resolver::new(&self.sources, self.options.clone(), &fetcher);
        let resolved = resolver.resolve(specs, &mut memory);
        drop(fetcher);
        self.memory = memory;
        resolved
    }

    /// Returns the names among some texts with their positions. `arguments` are the texts as the
    /// user wrote them.
    fn names_among(
        &self,
        arguments: &[String],
        texts: &[String],
    ) -> anyhow::Result<Vec<(usize, NameSpec)>> {
        let mut names = Vec::new();
        for (number, text) in texts.iter().enumerate().filter(|_| self.are_enabled()) {
            let argument = arguments.get(number).unwrap_or(text);
            let Some(name) = package_name(argument) else {
                continue;
            };
            let is_file = *text == format!("./{argument}");
            if !is_file && text != argument {
                // It is a link, or a path of the store has this name.
                continue;
            }
            if self.is_forbidden {
                bail!(UsageError(format!(
                    "cannot use {argument}: --no-names forbids names of packages; give a store path"
                )));
            }
            if is_file {
                let package = match self.sources.iter().find_map(|it| it.alias.as_ref()) {
                    Some(alias) => format!("{alias}#{argument}"),
                    None => format!("{argument}^out"),
                };
                bail!(UsageError(format!(
                    "cannot use {argument}: it is a file here and may be a package; write \
                     ./{argument} for the file, or {package} for the package"
                )));
            }
            names.push((number, self.with_source(name)));
        }
        Ok(names)
    }

    /// Reads the spelling of nix-env, `nixpkgs.hello`, as `nixpkgs#hello`.
    fn with_source(&self, name: NameSpec) -> NameSpec {
        let mut aliases = self.sources.iter().filter_map(|it| it.alias.as_deref());
        match name.name.split_once('.') {
            Some((first, rest)) if name.source.is_none() && aliases.any(|it| it == first) => {
                NameSpec {
                    source: Some(first.to_owned()),
                    name: rest.to_owned(),
                    ..name
                }
            }
            _ => name,
        }
    }

    fn replace(
        &self,
        mut texts: Vec<String>,
        found: impl Iterator<Item = ((usize, NameSpec), ResolvedName)>,
    ) -> Resolution {
        let mut names = Vec::new();
        for ((number, _), name) in found {
            print_name(&name, &self.options.store_dir);
            texts[number] = self.options.store_dir.full_path(&name.path);
            names.push(name);
        }
        Resolution { texts, names }
    }
}

/// Reads the pins that this machine has seen.
pub(crate) fn seen_pins(settings: &Settings) -> SeenPins {
    let directory = settings.config.state_dir.as_ref();
    SeenPins::open(directory.map(|directory| directory.join("pins.json")))
}

/// Returns the name of a package that a text is, unless it is a path or a hash part.
pub(crate) fn package_name(text: &str) -> Option<NameSpec> {
    let is_path = StorePath::parse(text).is_ok()
        || HashPart::parse(text).is_some()
        || DerivedPath::is_one(text);
    (!is_path).then(|| NameSpec::parse(text).ok()).flatten()
}

/// Returns the name that an error is about.
fn name_of(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(NameError::NotFound { name, .. } | NameError::Unreachable { name, .. }) => {
            name.clone()
        }
        _ => String::new(),
    }
}

/// Replaces each text by the only result for it.
fn each(
    texts: Vec<String>,
    replace: impl Fn(String) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    let replaced = texts.into_iter().map(replace);
    let replaced: Vec<Vec<String>> = replaced.collect::<anyhow::Result<_>>()?;
    Ok(replaced.into_iter().flatten().collect())
}

/// How many earlier builds are tried.
const EARLIER_BUILDS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_installables_of_other_flakes_are_no_names() {
        let hash_part = "0".repeat(32);
        for text in [
            "/nix/store/x",
            "./jq",
            "github:NixOS/nixpkgs#jq",
            ".#jq",
            &hash_part,
            &format!("{hash_part}-jq"),
        ] {
            assert_eq!(package_name(text), None, "{text}");
        }
        assert!(package_name("nixpkgs#jq").is_some());
    }
}
