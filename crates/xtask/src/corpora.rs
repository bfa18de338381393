//! The closures that the tests move, and the newest Nix: made once, by the scripts in
//! bench/corpus, and made again when their script changed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::system::{find, is_root};

/// For every run: seconds to make.
const ALWAYS: &[&str] = &["jq", "curl"];
/// For `--full`: minutes to make.
const FULL: &[&str] = &["firefox-esr"];

/// Holds the script by which its directory was made.
const STAMP: &str = "made-by";

/// Where the tests find them.
pub struct Corpora {
    /// With a directory for each.
    pub directory: PathBuf,
    /// The directory whose `bin` has the newest Nix.
    pub newer_nix: Option<PathBuf>,
}

/// What could not be had is added to `missing` as `name: why`.
pub fn prepare(root: &Path, target: &Path, full: bool, missing: &mut Vec<String>) -> Corpora {
    let wanted = ALWAYS.iter().chain(if full { FULL } else { &[] });
    let given = env::var_os("FLOE_CORPORA").filter(|given| !given.is_empty());
    let directory = match given {
        Some(given) => {
            let given = root.join(given);
            let absent = wanted.filter(|name| !is_given(&given, name));
            missing.extend(
                absent
                    .map(|name| format!("corpus {name}: not in FLOE_CORPORA={}", given.display())),
            );
            given
        }
        None => {
            let directory = target.join("corpora");
            for name in wanted {
                if let Err(why) = make_corpus(root, &directory, name) {
                    missing.push(format!("corpus {name}: {why}"));
                }
            }
            directory
        }
    };
    let newer_nix = [directory.join("newer-nix"), target.join("newer-nix")]
        .into_iter()
        .find(|dir| dir.join("bin/nix").exists());
    let newer_nix = match newer_nix {
        // What was brought along is taken as it is; our own is made again with a new script.
        Some(dir) if dir.starts_with(&directory) || !full => Some(dir),
        _ if full => match make_newer_nix(root, target) {
            Ok(dir) => Some(dir),
            Err(why) => {
                missing.push(format!("newer-nix: {why}"));
                None
            }
        },
        _ => None,
    };
    Corpora {
        directory,
        newer_nix,
    }
}

/// A corpus that a developer keeps elsewhere; the suffix that tells Debian's kind may be left out.
fn is_given(directory: &Path, name: &str) -> bool {
    let short = name.strip_suffix("-esr").unwrap_or(name);
    [name, short]
        .iter()
        .any(|name| directory.join(name).join("stats.json").exists())
}

fn make_corpus(root: &Path, directory: &Path, package: &str) -> Result<(), String> {
    let script = root.join("bench/corpus/make-corpus");
    let place = directory.join(package);
    if is_current(&script, &place, "stats.json") {
        return Ok(());
    }
    if find("nix-build").is_none() {
        return Err("needs nix-bin".into());
    }
    if !is_root() {
        return Err("needs root to be made (or FLOE_CORPORA, where it was made before)".into());
    }
    println!("making the corpus {package} in {}", place.display());
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let mut command = Command::new(&script);
    command
        .args(["--package", package, "--caches", "none,zstd,xz", "--dest"])
        .arg(&place);
    run(&mut command)?;
    stamp(&script, &place)
}

fn make_newer_nix(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let script = root.join("bench/corpus/newer-nix");
    let place = target.join("newer-nix");
    if !is_current(&script, &place, "bin/nix") {
        println!("unpacking the newest Nix in {}", place.display());
        run(Command::new(&script).arg(&place))?;
        stamp(&script, &place)?;
    }
    Ok(place)
}

/// Whether `place` holds `witness`, which its script makes last, and was made by this very script.
fn is_current(script: &Path, place: &Path, witness: &str) -> bool {
    let same = match (fs::read(script), fs::read(place.join(STAMP))) {
        (Ok(script), Ok(stamp)) => script == stamp,
        _ => false,
    };
    same && place.join(witness).exists()
}

fn stamp(script: &Path, place: &Path) -> Result<(), String> {
    fs::copy(script, place.join(STAMP))
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// The scripts' results go to files; what they have to say goes to stderr.
fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let name = command.get_program().to_string_lossy().into_owned();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}; its own words are above")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::target_directory;

    /// A directory for one test, below cargo's own output; empty at the start.
    fn scratch(test: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let directory = target_directory(&root).join("xtask-tests").join(test);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_corpus_is_current_until_its_script_changes_or_it_is_incomplete() {
        let directory = scratch("current");
        let script = directory.join("script");
        let place = directory.join("jq");
        fs::write(&script, "first").unwrap();
        fs::create_dir(&place).unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
        stamp(&script, &place).unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
        fs::write(place.join("stats.json"), "{}").unwrap();
        assert!(is_current(&script, &place, "stats.json"));
        fs::write(&script, "second").unwrap();
        assert!(!is_current(&script, &place, "stats.json"));
    }

    #[test]
    fn a_given_corpus_may_have_the_short_name() {
        let directory = scratch("given");
        for (made, asked, expected) in [
            ("firefox", "firefox-esr", true),
            ("jq", "jq", true),
            ("firefox-nightly", "curl", false),
        ] {
            fs::create_dir_all(directory.join(made)).unwrap();
            fs::write(directory.join(made).join("stats.json"), "{}").unwrap();
            assert_eq!(is_given(&directory, asked), expected, "{asked}");
        }
    }

    #[test]
    fn a_script_that_fails_or_is_absent_is_named() {
        let failed = run(Command::new("false").arg("x")).unwrap_err();
        assert!(failed.starts_with("false: exit status: 1"), "{failed}");
        assert!(
            run(&mut Command::new("no-such-script"))
                .unwrap_err()
                .contains("no-such-script")
        );
    }
}
