//! The names of paths as arguments: those of paths that `floe list` shows, else of any valid path.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::bail;
use floe_format::drv_name::name_and_version;
use floe_format::{HashPart, StorePath};
use floe_store::{StoreError, StoreLayout, StoreReader};

use crate::exit::UsageError;
use crate::links::{StoreNames, check_exists, existing_file};
use crate::root_links::link_path;

/// Replaces links into a store by the paths that they name, and names of paths by these paths.
/// Other arguments stay as they are.
///
/// Errors: no path or several paths have a name; those of the store.
pub(crate) fn follow(layout: &StoreLayout, arguments: &[String]) -> anyhow::Result<Vec<String>> {
    resolve_all(layout, follow_links(layout, arguments)?)
}

/// Replaces links into a store by the paths that they name.
///
/// Errors: an argument names a file that does not exist.
pub(crate) fn follow_links(
    layout: &StoreLayout,
    arguments: &[String],
) -> Result<Vec<String>, UsageError> {
    let followed = StoreNames::from(layout).follow(arguments);
    for text in &followed {
        check_exists(text, &layout.store_dir)?;
    }
    Ok(followed)
}

/// Replaces names of paths by the paths. Other arguments stay as they are, and also all of them if
/// there is no store.
///
/// Errors: no path or several paths have a name; those of the store.
pub(crate) fn resolve_all(layout: &StoreLayout, texts: Vec<String>) -> anyhow::Result<Vec<String>> {
    let resolved = resolve(layout, texts)?;
    if let Some(name) = resolved.iter().find(|text| is_name(text))
        && StoreReader::open(layout.clone()).is_ok()
    {
        bail!(
            "cannot use {name}: the store in {} has no path of this name; floe list --all shows \
             the names of all paths",
            layout.real_store_dir.display()
        );
    }
    Ok(resolved)
}

/// Replaces names of paths, also before `/` and a file in the path. Arguments that name no path of
/// the store stay as they are, and also all of them if there is no store.
///
/// Errors: several paths have a name; those of the store.
pub(crate) fn resolve(layout: &StoreLayout, texts: Vec<String>) -> anyhow::Result<Vec<String>> {
    if !texts.iter().any(|text| is_name(split_file(text).0)) {
        return Ok(texts);
    }
    let store = match StoreReader::open(layout.clone()) {
        Err(StoreError::NoStore { .. } | StoreError::NoTables { .. }) => {
            return Ok(as_files(texts));
        }
        store => store?,
    };
    let resolved = texts.into_iter().map(|text| {
        let (name, file) = split_file(&text);
        let found = if is_name(name) {
            find(&store, name)?
        } else {
            None
        };
        if found.is_none() && is_name(name) && !file.is_empty() && !Path::new(&text).exists() {
            bail!(
                "cannot use {text}: there is no such file, and the store in {} has no path of the \
                 name {name}",
                layout.real_store_dir.display()
            );
        }
        Ok(match found {
            Some(path) => format!("{}{file}", layout.store_dir.full_path(&path)),
            None => existing_file(&text).unwrap_or(text),
        })
    });
    resolved.collect()
}

/// Replaces names as [`resolve`] does. A name that several paths have stays as it is, too.
///
/// Errors: those of the store.
pub(crate) fn resolve_unambiguous(
    layout: &StoreLayout,
    texts: Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let resolved = texts.into_iter().map(|text| {
        let only = resolve(layout, vec![text.clone()]);
        match only {
            Ok(mut only) => Ok(only.pop().unwrap_or(text)),
            Err(error) if error.is::<UsageError>() => Ok(text),
            Err(error) => Err(error),
        }
    });
    resolved.collect()
}

/// Whether a user may mean a path with this name: with or without the version. The derivation and
/// the sources of a package have its whole name only.
pub(crate) fn has_name(path: &StorePath, text: &str) -> bool {
    let name = path.name();
    let is_source = SOURCES.iter().any(|end| name.ends_with(end));
    name == text || !is_source && name_and_version(name).0 == text
}

/// The ends of the names of derivations and of sources.
const SOURCES: [&str; 6] = [".drv", ".tar.gz", ".tar.xz", ".tar.bz2", ".zip", ".patch"];

/// Returns the error for a name that several paths have.
pub(crate) fn ambiguous(
    action: &str,
    name: &str,
    paths: &BTreeSet<&StorePath>,
    layout: &StoreLayout,
) -> UsageError {
    let shown = paths.iter().take(SHOWN_MAX);
    let shown: Vec<String> = shown.map(|path| layout.store_dir.full_path(path)).collect();
    UsageError(format!(
        "cannot {action} {name}: several paths have this name; give one of {}{}",
        shown.join(", "),
        if paths.len() > SHOWN_MAX { ", …" } else { "" }
    ))
}

/// Replaces bare names of files in the working directory by their paths, so that errors do not take
/// them for packages.
pub(crate) fn as_files(texts: Vec<String>) -> Vec<String> {
    let texts = texts.into_iter();
    texts
        .map(|text| existing_file(&text).unwrap_or(text))
        .collect()
}

/// Splits an argument into the name and the file in the path, which begins with `/`.
fn split_file(text: &str) -> (&str, &str) {
    text.split_at(text.find('/').unwrap_or(text.len()))
}

/// Whether a text can only be the name of a path.
fn is_name(text: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._?=".contains(&byte);
    !text.is_empty()
        && !text.starts_with(['-', '.'])
        && text.bytes().all(is_name_byte)
        && StorePath::parse(text).is_err()
        && HashPart::parse(text).is_none()
}

fn find(store: &StoreReader, name: &str) -> anyhow::Result<Option<StorePath>> {
    let links = store.find_links()?.roots;
    let links = links.iter().filter(|root| link_path(&root.place).is_some());
    let kept: BTreeSet<&StorePath> = links.map(|root| &root.path).collect();
    if let Some(path) = only(kept.into_iter(), name, store)? {
        return Ok(Some(path));
    }
    let all = store.valid_paths()?;
    only(all.iter(), name, store)
}

/// Returns the only path with a name.
fn only<'a>(
    paths: impl Iterator<Item = &'a StorePath>,
    name: &str,
    store: &StoreReader,
) -> anyhow::Result<Option<StorePath>> {
    let named: BTreeSet<&StorePath> = paths.filter(|path| has_name(path, name)).collect();
    if named.len() > 1 {
        bail!(ambiguous("use", name, &named, store.layout()));
    }
    Ok(named.into_iter().next().cloned())
}

/// The number of paths in an error.
const SHOWN_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_other_arguments() {
        for name in ["jq", "jq-1.6", "libc6-2.36-9+deb12u13", "a?b=c"] {
            assert!(is_name(name), "{name}");
        }
        let hash_part = "0".repeat(32);
        for other in [
            "",
            "-",
            ".",
            "./jq",
            "/nix/store/jq",
            "nixpkgs#jq",
            "s3:x",
            &hash_part,
            &format!("{hash_part}-jq"),
        ] {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    fn version_may_be_left_out() {
        let path = StorePath::parse(&format!("{}-jq-1.6", "0".repeat(32))).unwrap();
        for (text, expected) in [
            ("jq", true),
            ("jq-1.6", true),
            ("jq-1", false),
            ("j", false),
        ] {
            assert_eq!(has_name(&path, text), expected, "{text}");
        }
        let derivation = StorePath::parse(&format!("{}-jq-1.6.drv", "0".repeat(32))).unwrap();
        assert!(!has_name(&derivation, "jq") && has_name(&derivation, "jq-1.6.drv"));
    }
}
