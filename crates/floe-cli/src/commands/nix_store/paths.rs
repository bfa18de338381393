//! The paths that a user names.

use std::io::{IsTerminal as _, stdin};

use anyhow::anyhow;
use floe_format::StorePath;
use floe_transfer::PathSpec;

use super::args::NixStoreArgs;
use crate::path_lines::read_stdin;
use crate::store_choice::LocalStore;

/// Paths, each perhaps with the names of outputs.
pub(super) struct Paths(Vec<(StorePath, String)>);

impl Paths {
    /// Reads the paths of the command line, or of standard input. Follows links into the store.
    ///
    /// Errors: an argument is no path of the store.
    pub(super) fn read(args: &NixStoreArgs, store: &LocalStore) -> anyhow::Result<Paths> {
        let mut texts = args.paths.clone();
        if args.stdin && !stdin().is_terminal() {
            let lines = read_stdin()?;
            texts.extend(
                lines
                    .iter()
                    .flat_map(|line| line.split_whitespace())
                    .map(str::to_owned),
            );
        }
        let split = texts.iter().map(|text| match text.split_once('!') {
            Some((path, outputs)) => (path.to_owned(), format!("!{outputs}")),
            None => (text.clone(), String::new()),
        });
        let (paths, outputs): (Vec<String>, Vec<String>) = split.unzip();
        let followed = store.settings.follow_links(&paths, &[&*store.config])?;
        let parsed = followed.iter().zip(outputs).map(|(text, outputs)| {
            match PathSpec::parse(text, &store.layout.store_dir)? {
                PathSpec::Path(path) => Ok((path, outputs)),
                _ => Err(anyhow!("cannot use {text}: it is not a whole store path")),
            }
        });
        Ok(Paths(parsed.collect::<anyhow::Result<_>>()?))
    }

    /// Returns the paths, which name no outputs.
    ///
    /// Errors: one of them names outputs.
    pub(super) fn into_paths(self) -> anyhow::Result<Vec<StorePath>> {
        let paths = self.0.into_iter().map(|(path, outputs)| {
            if outputs.is_empty() {
                Ok(path)
            } else {
                Err(anyhow!(
                    "cannot use {path}{outputs}: only --realise takes outputs"
                ))
            }
        });
        paths.collect()
    }

    /// Returns the paths with the names of their outputs: empty, or `!OUTPUT,…`.
    pub(super) fn into_wanted(self) -> Vec<(StorePath, String)> {
        self.0
    }
}

/// The error about a path that is not valid, in Nix's words.
pub(super) fn not_valid(path: &str) -> anyhow::Error {
    anyhow!("path '{path}' is not valid")
}
