//! The values that a shell completes: paths, names and generations of the store that the command
//! line names. Nothing is printed here, because the user is typing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use floe_config::{Config, Environment, ProcessUser, StoreAccess, StoreChoice};
use floe_store::{Profile, StoreLayout, StoreReader};

/// Completes files, and the valid paths of the store behind its store directory.
pub(crate) fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = PathCompleter::any().complete(current);
    candidates.extend(store_paths(current).unwrap_or_default());
    candidates
}

/// Completes files, and the names of the paths that links and profiles keep.
pub(crate) fn kept_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = names(current).unwrap_or_default();
    candidates.extend(PathCompleter::any().complete(current));
    candidates
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
    words.iter().enumerate().find_map(|(number, word)| {
        let text = word.to_str()?;
        let with_value = |name: &&&str| text.strip_prefix(**name)?.strip_prefix('=').map(|_| ());
        if names.contains(&text) {
            return words.get(number + 1).cloned();
        }
        names.iter().find(|name| with_value(name).is_some())?;
        text.split_once('=').map(|(_, value)| value.into())
    })
}

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
