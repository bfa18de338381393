//! The closures that tests and benchmarks copy, and the newest Nix. The scripts in bench/corpus
//! make them once, and again when a script changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::system::{find_command, is_root, variable};
use crate::workspace::target_directory;

/// For every run; they take seconds to make.
const ALWAYS: &[&str] = &["jq", "curl"];
/// For `--full`; they take minutes to make.
const FULL: &[&str] = &["firefox-esr"];

/// The file that holds the script by which its directory was made.
const STAMP: &str = "made-by";

/// The corpora and the Nix for the tests.
pub struct Corpora {
    /// Contains one directory per corpus.
    pub directory: PathBuf,
    /// The directory whose `bin` contains the newest Nix.
    pub newer_nix: Option<PathBuf>,
}

/// The directory of the corpora: FLOE_CORPORA, or the one below the target directory.
pub fn directory(root: &Path) -> PathBuf {
    match variable("FLOE_CORPORA") {
        Some(given) => root.join(given),
        None => target_directory(root).join("corpora"),
    }
}

/// The directory of a complete corpus by one of its names.
pub fn find(root: &Path, names: &[&str]) -> Option<PathBuf> {
    find_in(&directory(root), names)
}

fn find_in(directory: &Path, names: &[&str]) -> Option<PathBuf> {
    let mut places = names.iter().map(|name| directory.join(name));
    places.find(|place| place.join("stats.json").exists())
}

/// The directory whose `bin` contains the newest Nix, if it was unpacked.
pub fn newer_nix(root: &Path) -> Option<PathBuf> {
    [directory(root), target_directory(root)]
        .into_iter()
        .map(|parent| parent.join("newer-nix"))
        .find(|place| place.join("bin/nix").exists())
}

/// Makes what does not exist yet. A failure is added to `missing` as `name: reason`.
pub fn prepare(root: &Path, full: bool, missing: &mut Vec<String>) -> Corpora {
    let directory = directory(root);
    let names = ALWAYS.iter().chain(if full { FULL } else { &[] });
    for name in names {
        let made = match variable("FLOE_CORPORA") {
            Some(_) => require_given(&directory, name),
            None => make_corpus(root, &directory, name),
        };
        if let Err(reason) = made {
            missing.push(format!("corpus {name}: {reason}"));
        }
    }
    let existing = newer_nix(root);
    // A Nix in FLOE_CORPORA is used as it is; our own is made again when its script changed.
    let is_given = existing
        .as_ref()
        .is_some_and(|place| place.starts_with(&directory));
    let newer_nix = if full && !is_given {
        match make_newer_nix(root) {
            Ok(place) => Some(place),
            Err(reason) => {
                missing.push(format!("newer-nix: {reason}"));
                None
            }
        }
    } else {
        existing
    };
    Corpora {
        directory,
        newer_nix,
    }
}

/// Looks for a corpus that the developer keeps elsewhere. Its name may lack the suffix of Debian's
/// package.
fn require_given(directory: &Path, name: &str) -> Result<(), String> {
    let short = name.strip_suffix("-esr").unwrap_or(name);
    match find_in(directory, &[name, short]) {
        Some(_) => Ok(()),
        None => Err(format!("not in FLOE_CORPORA={}", directory.display())),
    }
}

fn make_corpus(root: &Path, directory: &Path, package: &str) -> Result<(), String> {
    let script = root.join("bench/corpus/make-corpus");
    let place = directory.join(package);
    if is_current(&script, &place, "stats.json") {
        return Ok(());
    }
    if find_command("nix-build").is_none() {
        return Err("needs nix-bin".into());
    }
    if !is_root() {
        return Err("needs root, or FLOE_CORPORA with corpora that were made before".into());
    }
    println!("making the corpus {package} in {}", place.display());
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let mut command = Command::new(&script);
    command
        .args(["--package", package, "--caches", "none,zstd,xz", "--dest"])
        .arg(&place);
    run(&mut command)?;
    write_stamp(&script, &place)
}

fn make_newer_nix(root: &Path) -> Result<PathBuf, String> {
    let script = root.join("bench/corpus/newer-nix");
    let place = target_directory(root).join("newer-nix");
    if !is_current(&script, &place, "bin/nix") {
        println!("unpacking the newest Nix in {}", place.display());
        run(Command::new(&script).arg(&place))?;
        write_stamp(&script, &place)?;
    }
    Ok(place)
}

/// Whether `place` contains `last_file`, which its script makes last, and was made by this version
/// of the script.
fn is_current(script: &Path, place: &Path, last_file: &str) -> bool {
    let is_same = match (fs::read(script), fs::read(place.join(STAMP))) {
        (Ok(script), Ok(stamp)) => script == stamp,
        _ => false,
    };
    is_same && place.join(last_file).exists()
}

fn write_stamp(script: &Path, place: &Path) -> Result<(), String> {
    let copied = fs::copy(script, place.join(STAMP));
    copied.map(|_| ()).map_err(|error| error.to_string())
}

/// Runs a script, with its stderr on the terminal and without its stdout.
fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let name = command.get_program().to_string_lossy().into_owned();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}; see its stderr above")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty directory for one test below the target directory.
    fn scratch(test: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let directory = target_directory(&root).join("xtask-tests").join(test);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn corpus_is_current_if_complete_and_made_by_this_script() {
        let directory = scratch("current");
        let script = directory.join("script");
        let place = directory.join("jq");
        fs::write(&script, "first").unwrap();
        fs::create_dir(&place).unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
        write_stamp(&script, &place).unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
        fs::write(place.join("stats.json"), "{}").unwrap();
        assert!(is_current(&script, &place, "stats.json"));
        fs::write(&script, "second").unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
    }

    #[test]
    fn given_corpus_may_have_the_short_name() {
        let directory = scratch("given");
        for (made, name, expected) in [
            ("firefox", "firefox-esr", true),
            ("jq", "jq", true),
            ("firefox-nightly", "curl", false),
        ] {
            fs::create_dir_all(directory.join(made)).unwrap();
            fs::write(directory.join(made).join("stats.json"), "{}").unwrap();
            assert_eq!(require_given(&directory, name).is_ok(), expected, "{name}");
        }
    }

    #[test]
    fn failed_or_missing_script_is_named() {
        let failed = run(Command::new("false").arg("x")).unwrap_err();
        assert!(failed.starts_with("false: exit status: 1"), "{failed}");
        let missing = run(&mut Command::new("no-such-script")).unwrap_err();
        assert!(missing.contains("no-such-script"), "{missing}");
    }
}
