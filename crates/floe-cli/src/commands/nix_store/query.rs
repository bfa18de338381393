//! `nix-store --query`: facts of paths, in the order and in the form of Nix.

mod graph;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{anyhow, bail};
use floe_format::{Derivation, PathInfo, StorePath};
use floe_store::{StoreError, StoreReader, references_first};

use super::args::NixStoreArgs;
use super::paths::{Paths, not_valid};
use super::query_args::QueryArgs;
use crate::messages::escaped;
use crate::stdout::print;
use crate::store_choice::LocalStore;

/// A store with the paths that a query names.
struct Query<'a> {
    args: &'a QueryArgs,
    store: &'a LocalStore,
    reader: StoreReader,
    paths: Vec<StorePath>,
}

pub(super) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let paths = Paths::read(args, &store)?.into_paths()?;
    let query = Query {
        args: &args.queries,
        reader: store.open()?,
        store: &store,
        paths,
    };
    let args = query.args;
    if args.requisites || args.references || args.referrers || args.referrers_closure {
        query.print_related()
    } else if args.deriver {
        query.print_derivers()
    } else if args.valid_derivers {
        query.print_valid_derivers()
    } else if let Some(name) = &args.binding {
        query.print_bindings(name)
    } else if args.hash || args.size {
        query.print_contents()
    } else if args.tree {
        graph::print_trees(&query)
    } else if args.graph {
        graph::print_graph(&query)
    } else if args.resolve {
        query.paths.iter().try_for_each(|path| query.print(path))
    } else if args.roots {
        query.print_roots()
    } else {
        let outputs = query
            .paths
            .iter()
            .map(|path| query.with_outputs(path, true));
        let outputs = outputs.collect::<anyhow::Result<Vec<_>>>()?;
        outputs
            .iter()
            .flatten()
            .try_for_each(|path| query.print(path))
    }
}

impl Query<'_> {
    fn print(&self, path: &StorePath) -> anyhow::Result<()> {
        print(self.full(path))
    }

    fn full(&self, path: &StorePath) -> String {
        self.store.layout.store_dir.full_path(path)
    }

    /// Returns what is registered about a path.
    fn info(&self, path: &StorePath) -> anyhow::Result<PathInfo> {
        let info = self.reader.path_info(path)?;
        info.ok_or_else(|| not_valid(&self.full(path)))
    }

    /// Returns a path, or the outputs of a derivation.
    fn with_outputs(
        &self,
        path: &StorePath,
        use_output: bool,
    ) -> anyhow::Result<BTreeSet<StorePath>> {
        if !use_output || !path.is_derivation() {
            return Ok([path.clone()].into());
        }
        let outputs = self.derivation(path)?;
        let outputs = outputs.output_paths(
            &self.store.layout.store_dir,
            Derivation::name_from_path(path)?,
        );
        let known = outputs.into_values().map(|path| {
            path.ok_or_else(|| {
                anyhow!("cannot use an output of a derivation whose path only a build can tell")
            })
        });
        known.collect()
    }

    fn derivation(&self, path: &StorePath) -> anyhow::Result<Derivation> {
        self.info(path)?;
        Ok(self.reader.derivation(path)?)
    }

    /// Returns the named paths, with outputs in place of derivations if that is wanted.
    fn used(&self) -> anyhow::Result<BTreeSet<StorePath>> {
        let mut used = BTreeSet::new();
        for path in &self.paths {
            used.extend(self.with_outputs(path, self.args.use_output)?);
        }
        Ok(used)
    }

    fn print_related(&self) -> anyhow::Result<()> {
        let used = self.used()?;
        let mut found = BTreeSet::new();
        if self.args.requisites {
            for path in &used {
                self.info(path)?;
            }
            if !self.args.include_outputs {
                let roots: Vec<StorePath> = used.into_iter().collect();
                return self.print_sorted(&self.reader.closure_references(&roots)?);
            }
            found = self.reader.full_closure(used, true)?;
        } else if self.args.references {
            for path in &used {
                found.extend(self.info(path)?.references);
            }
        } else if self.args.referrers {
            for path in &used {
                found.extend(self.reader.referrers(path)?);
            }
        } else {
            found = self.reader.referrers_closure(used, &|_| Ok(Vec::new()))?;
        }
        self.print_sorted_paths(found)
    }

    /// Prints paths with these references, references first.
    fn print_sorted(
        &self,
        references: &BTreeMap<StorePath, BTreeSet<StorePath>>,
    ) -> anyhow::Result<()> {
        let sorted = references_first(references);
        let lines: Vec<String> = sorted.iter().map(|path| self.full(path)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        print(lines.join("\n"))
    }

    /// Prints paths that need not be valid. Those that are not have no references.
    fn print_sorted_paths(&self, paths: BTreeSet<StorePath>) -> anyhow::Result<()> {
        let mut references = BTreeMap::new();
        for path in paths {
            let info = self.reader.path_info(&path)?;
            references.insert(path, info.map(|info| info.references).unwrap_or_default());
        }
        self.print_sorted(&references)
    }

    fn print_derivers(&self) -> anyhow::Result<()> {
        for path in &self.paths {
            match self.info(path)?.deriver {
                Some(deriver) => self.print(&deriver)?,
                None => print("unknown-deriver")?,
            }
        }
        Ok(())
    }

    fn print_valid_derivers(&self) -> anyhow::Result<()> {
        let mut derivers = BTreeSet::new();
        for path in &self.paths {
            derivers.extend(self.reader.valid_derivers(path)?);
        }
        self.print_sorted_paths(derivers)
    }

    fn print_bindings(&self, name: &str) -> anyhow::Result<()> {
        for path in &self.paths {
            let path = if path.is_derivation() {
                path.clone()
            } else {
                let deriver = self.info(path)?.deriver;
                deriver.ok_or_else(|| {
                    anyhow!(
                        "cannot find the derivation of {}: it is not known",
                        self.full(path)
                    )
                })?
            };
            let derivation = self.derivation(&path)?;
            let Some(value) = derivation.env.get(name.as_bytes()) else {
                bail!(
                    "cannot print {name:?}: the derivation {} has no variable of this name",
                    self.full(&path)
                );
            };
            print(String::from_utf8_lossy(value))?;
        }
        Ok(())
    }

    fn print_contents(&self) -> anyhow::Result<()> {
        for path in &self.paths {
            for path in self.with_outputs(path, self.args.use_output)? {
                let info = self.info(&path)?;
                if self.args.hash {
                    print(info.nar_hash.to_nix32())?;
                } else {
                    print(info.nar_size)?;
                }
            }
        }
        Ok(())
    }

    fn print_roots(&self) -> anyhow::Result<()> {
        let settings = self.store.settings.gc_settings(&*self.store.config);
        let related = |path: &StorePath| -> Result<Vec<StorePath>, StoreError> {
            let mut found = Vec::new();
            if settings.keep_outputs {
                found.extend(self.reader.valid_derivers(path)?);
            }
            if settings.keep_derivations && path.is_derivation() {
                for output in self.reader.derivation_outputs(path)? {
                    if self.reader.is_valid(&output)? {
                        found.push(output);
                    }
                }
            }
            Ok(found)
        };
        let kept = self.reader.referrers_closure(self.used()?, &related)?;
        let roots = self.reader.find_roots(settings.runtime_roots)?.roots;
        for root in roots.iter().filter(|root| kept.contains(&root.path)) {
            let place = escaped(&root.place);
            print(format_args!("{place} -> {}", self.full(&root.path)))?;
        }
        Ok(())
    }
}
