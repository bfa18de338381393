//! Describes to a user how a process uses a path. The text of the place, such as
//! `/proc/1/environ`, is the one that Nix prints.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::root_place::RootPlace;

impl RootPlace {
    /// Describes how a process uses a path, whose text is `full_path`: a phrase such as
    /// `environment variable PATH of process 1 (init)`. Reads `/proc`, so it may tell less after
    /// the end of the process. Returns `None` for a place that belongs to no process of `/proc`.
    pub fn describe_use(&self, full_path: &str) -> Option<String> {
        match self {
            RootPlace::Link(_) => None,
            RootPlace::Temporary(process) => {
                let process = named_process(&process.to_string());
                Some(format!("temporary root of {process}"))
            }
            RootPlace::Process(place) => describe(place, full_path),
        }
    }
}

fn describe(place: &Path, full_path: &str) -> Option<String> {
    let inside = place.strip_prefix("/proc").ok()?;
    let names: Vec<&str> = inside.iter().filter_map(OsStr::to_str).collect();
    let (process, file) = match names.as_slice() {
        [process, "task", _, file @ ..] | [process, file @ ..] => (process, file),
        [] => return None,
    };
    process.parse::<u32>().ok()?;
    let process = named_process(process);
    Some(match file {
        ["exe"] => format!("program of {process}"),
        ["cwd"] => format!("working directory of {process}"),
        ["maps"] => format!("file mapped by {process}"),
        ["environ"] => match variable(place, full_path) {
            Some(name) => format!("environment variable {name} of {process}"),
            None => format!("environment of {process}"),
        },
        ["fd", _] => match fs::read_link(place) {
            Ok(target) => format!("file {} open in {process}", target.display()),
            Err(_) => format!("file open in {process}"),
        },
        _ => return None,
    })
}

/// Returns the text for a process, with the name of its program if the process still runs.
fn named_process(process: &str) -> String {
    let name = fs::read(Path::new("/proc").join(process).join("comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
    if name.is_empty() {
        format!("process {process}")
    } else {
        format!("process {process} ({name})")
    }
}

/// Returns the name of the first environment variable that names the path.
fn variable(environment: &Path, full_path: &str) -> Option<String> {
    let text = fs::read(environment).ok()?;
    let mut variables = text.split(|byte| *byte == 0);
    let names_path = |text: &&[u8]| {
        let mut parts = text.windows(full_path.len());
        parts.any(|part| part == full_path.as_bytes())
    };
    let found = variables.find(names_path)?;
    let name = found.split(|byte| *byte == b'=').next()?;
    Some(OsStr::from_bytes(name).to_string_lossy().into_owned())
}
