//! The values that a shell completes: paths, names and generations of the store that the command
//! line names. Nothing is printed here, because the user is typing.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Command, ValueHint};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use floe_config::{Config, Environment, ProcessUser, StoreAccess, StoreChoice};
use floe_store::{Profile, StoreLayout, StoreReader};

use crate::root_links::link_path;

/// Adds the completion of the values of options to all commands.
pub(crate) fn with_values(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let complete: fn(&OsStr) -> Vec<CompletionCandidate> = match arg.get_long() {
            Some("root") => directories,
            Some("store" | "to" | "from" | "reuse" | "skip-upstream") => stores,
            Some("option") => settings,
            _ if arg.get_value_hint() != ValueHint::Unknown => places,
            _ => return arg,
        };
        // clap prefers this to a hint.
        arg.add(ArgValueCompleter::new(complete))
    });
    command.mut_subcommands(with_values)
}

/// Completes files, the names of valid paths, and the valid paths behind the store directory.
pub(crate) fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = files(&PathCompleter::any(), current);
    candidates.extend(store_paths(current).unwrap_or_default());
    candidates.extend(valid_names(current).unwrap_or_default());
    candidates
}

/// Completes the links that `floe list` shows, and the names of the paths that they keep.
pub(crate) fn kept_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = names(current).unwrap_or_default();
    candidates.extend(links(current).unwrap_or_default());
    candidates
}

/// Completes directories, also behind `~/`.
fn directories(current: &OsStr) -> Vec<CompletionCandidate> {
    files(&PathCompleter::dir(), current)
}

/// Completes files, also behind `~/`.
fn places(current: &OsStr) -> Vec<CompletionCandidate> {
    files(&PathCompleter::any(), current)
}

/// Completes directories, and the beginnings of store URIs.
fn stores(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = starting_with(current, STORE_URIS.iter().copied());
    candidates.extend(directories(current));
    candidates
}

/// Completes the names of settings after `--option`, and nothing after such a name.
fn settings(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = words();
    let before = words
        .len()
        .checked_sub(2)
        .and_then(|index| words.get(index));
    if before.is_none_or(|word| word != "--option") {
        return Vec::new();
    }
    let Ok(mut config) = Config::load(&environment(), &[]) else {
        return Vec::new();
    };
    let entries = config.entries();
    starting_with(current, entries.iter().map(|entry| entry.name))
}

fn starting_with<'a>(
    current: &OsStr,
    texts: impl Iterator<Item = &'a str>,
) -> Vec<CompletionCandidate> {
    let start = current.to_str().unwrap_or_default();
    let matching = texts.filter(|text| text.starts_with(start));
    matching.map(CompletionCandidate::new).collect()
}

/// Completes files. The scripts of the shells do not expand `~`.
fn files(completer: &PathCompleter, current: &OsStr) -> Vec<CompletionCandidate> {
    let below = current.to_str().and_then(|text| text.strip_prefix("~/"));
    let home = environment().home().map(Path::to_owned);
    let (Some(below), Some(home)) = (below, home) else {
        return completer.complete(current);
    };
    let found = completer.complete(home.join(below).as_os_str()).into_iter();
    let found = found.filter_map(|candidate| {
        let below = Path::new(candidate.get_value()).strip_prefix(&home).ok()?;
        // `strip_prefix` drops the slash at the end of a directory.
        let mut value = OsString::from("~/");
        value.push(below);
        if candidate.get_value().as_encoded_bytes().ends_with(b"/") {
            value.push("/");
        }
        Some(CompletionCandidate::new(value))
    });
    found.collect()
}

/// Replaces `~/` at the beginning of the value of an option.
fn expand_home(value: OsString) -> OsString {
    let text = value.to_str();
    let below = text.and_then(|text| text.strip_prefix('~'));
    let below = below.filter(|below| below.is_empty() || below.starts_with('/'));
    match (below, environment().home()) {
        (Some(below), Some(home)) => home.join(below.trim_start_matches('/')).into(),
        _ => value,
    }
}

/// Completes the generations of the profile on the command line.
pub(crate) fn generations(current: &OsStr) -> Vec<CompletionCandidate> {
    numbers(current).unwrap_or_default()
}

fn store_paths(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let store = store()?;
    let dir = &store.layout().store_dir;
    let text = current.to_str()?;
    if !text.starts_with(dir.as_str()) {
        return None;
    }
    let paths = store.valid_paths().ok()?.into_iter();
    let paths = paths.map(|path| dir.full_path(&path));
    let matching = paths.filter(|path| path.starts_with(text));
    Some(
        matching
            .take(CANDIDATES_MAX)
            .map(CompletionCandidate::new)
            .collect(),
    )
}

fn names(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let text = current.to_str()?;
    let roots = store()?.find_links().ok()?.roots;
    let names = roots.iter().map(|root| root.path.name());
    let mut names: Vec<&str> = names.filter(|name| name.starts_with(text)).collect();
    names.sort_unstable();
    names.dedup();
    let names = names.into_iter().take(CANDIDATES_MAX);
    Some(names.map(CompletionCandidate::new).collect())
}

/// The names of valid paths. A name that several paths have would be ambiguous.
fn valid_names(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let text = current.to_str().filter(|text| !text.contains('/'))?;
    if text.is_empty() {
        return names(current);
    }
    let paths = store()?.valid_paths().ok()?;
    let mut counts = BTreeMap::<&str, usize>::new();
    for path in &paths {
        if path.name().starts_with(text) {
            *counts.entry(path.name()).or_default() += 1;
        }
    }
    let unique = counts.into_iter().filter(|(_, count)| *count == 1);
    let names = unique.map(|(name, _)| CompletionCandidate::new(name));
    Some(names.take(CANDIDATES_MAX).collect())
}

/// The links to roots, as the user has begun to write them.
fn links(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let text = current.to_str()?;
    let home = environment().home().map(Path::to_owned);
    let directory = env::current_dir().ok();
    let roots = store()?.find_links().ok()?.roots;
    let links = roots.iter().filter_map(|root| link_path(&root.place));
    let shown = links.filter_map(|link| {
        let below = |base: &Option<PathBuf>| link.strip_prefix(base.as_ref()?).ok();
        match text.chars().next() {
            Some('/') => Some(link.clone()),
            Some('~') => Some(Path::new("~").join(below(&home)?)),
            Some('.') => Some(Path::new(".").join(below(&directory)?)),
            _ => Some(below(&directory)?.to_owned()),
        }
    });
    let shown = shown.filter_map(|link| link.to_str().map(str::to_owned));
    let matching = shown.filter(|link| link.starts_with(text));
    Some(
        matching
            .take(CANDIDATES_MAX)
            .map(CompletionCandidate::new)
            .collect(),
    )
}

fn numbers(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let text = current.to_str()?;
    let words = words();
    let profile = option(&words, &["--profile", "-p"]).map(PathBuf::from);
    let profile = profile.or_else(default_profile)?;
    let all = Profile::at(&profile).ok()?.generations().ok()?.all;
    let numbers = all.into_iter().map(|generation| {
        let target = generation.target.display().to_string();
        let number = CompletionCandidate::new(generation.number.to_string());
        number.help(Some(target.into()))
    });
    let is_matching = |it: &CompletionCandidate| {
        let value = it.get_value().to_str();
        value.is_some_and(|value| value.starts_with(text))
    };
    Some(numbers.filter(is_matching).collect())
}

/// The profile to which the link in the home directory leads.
fn default_profile() -> Option<PathBuf> {
    let environment = environment();
    let link = environment.home()?.join(".nix-profile");
    let target = std::fs::read_link(&link).ok();
    let target = target.map(|target| link.parent().unwrap_or(Path::new("/")).join(target));
    environment.profile().or(target)
}

/// Opens the store that the command line names.
fn store() -> Option<StoreReader> {
    let words = words();
    let environment = environment();
    let context = environment.uri_context(None).ok()?;
    let root = option(&words, &["--root"]);
    let uri = option(&words, &["--store", "--to"]);
    let uri = uri.as_deref().and_then(OsStr::to_str);
    let choice = StoreChoice::of_flags(root.as_deref().map(Path::new), uri);
    let store = match choice {
        StoreChoice::Root(_) => choice.resolve(&context).ok()?,
        StoreChoice::Uri(_) => {
            let config = Config::load(&environment, &[]).ok()?;
            let store = config.resolve_store(choice, StoreAccess::Read, &context);
            store.ok()?
        }
    };
    let layout: StoreLayout = store.layout()?.clone();
    StoreReader::open(layout).ok()
}

fn environment() -> Environment {
    Environment::new(env::vars_os(), ProcessUser::current())
}

/// The words of the command line that is being completed. They follow `--` in that of this
/// process.
fn words() -> Vec<OsString> {
    let words = env::args_os().skip_while(|word| word != "--");
    words.skip(1).collect()
}

/// Returns the value of an option, as `--root DIR` or `--root=DIR`.
fn option(words: &[OsString], names: &[&str]) -> Option<OsString> {
    let value = words.iter().enumerate().find_map(|(number, word)| {
        let text = word.to_str()?;
        let with_value = |name: &&&str| text.strip_prefix(**name)?.strip_prefix('=').map(|_| ());
        if names.contains(&text) {
            return words.get(number + 1).cloned();
        }
        names.iter().find(|name| with_value(name).is_some())?;
        text.split_once('=').map(|(_, value)| value.into())
    });
    value.map(expand_home)
}

/// The beginnings of store URIs.
const STORE_URIS: &[&str] = &[
    "auto",
    "daemon",
    "file://",
    "http://",
    "https://",
    "local",
    "s3://",
    "ssh://",
    "ssh-ng://",
    "unix://",
];

/// More would not fit on a screen.
const CANDIDATES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_both_forms() {
        let words = [
            "floe",
            "list",
            "--root",
            "/a",
            "--store=/b",
            "--profiles=x",
            "-p",
        ];
        let words = words.map(OsString::from);
        let value =
            |names: &[&str]| option(&words, names).and_then(|value| value.into_string().ok());
        assert_eq!(value(&["--root"]).as_deref(), Some("/a"));
        assert_eq!(value(&["--to", "--store"]).as_deref(), Some("/b"));
        assert_eq!(value(&["--profile", "-p"]), None);
    }
}
