//! The texts of `floe run` and `floe shell`.

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::Path;

pub(crate) const NO_COMMAND: &str = "cannot start a shell: the command is empty";

pub(crate) fn no_path(text: &str) -> String {
    format!("cannot run {text:?}: it names no path; give a store path, or a link such as ./result")
}

pub(crate) fn not_a_local_store(store: impl Display) -> String {
    format!(
        "cannot run programs of {store}: it is a binary cache; name a store with --root or --store"
    )
}

pub(crate) fn vanished(texts: &[String]) -> String {
    let texts = texts.join(" ");
    format!("cannot run {texts}: a collection deleted it after it was installed; run floe again")
}

pub(crate) fn cannot_run(program: &OsStr, error: &std::io::Error) -> String {
    let shown = Path::new(program).display();
    let is_name = !program.as_encoded_bytes().contains(&b'/');
    let fix = match error.kind() {
        std::io::ErrorKind::NotFound if is_name => {
            "; no directory of PATH and no path of the command line has it"
        }
        std::io::ErrorKind::NotFound => {
            "; the file or the interpreter that its first line names is missing"
        }
        std::io::ErrorKind::PermissionDenied => "; the file must be executable",
        _ => "",
    };
    format!("cannot run {shown}: {error}{fix}")
}

pub(crate) fn not_protected(error: impl Display) -> String {
    format!("the program's paths are not protected from a collection while it runs: {error}")
}

pub(crate) fn no_directory(directory: &Path, error: impl Display) -> String {
    format!(
        "cannot run a program in {}: the mounted store hides this directory ({error}); change to \
         another one",
        directory.display()
    )
}

pub(crate) fn other_name(path: &str, found: &str) -> String {
    format!("cannot run {path}: the store has this hash part under the name {found}")
}

// The main program

pub(crate) fn missing_files(path: &str) -> String {
    format!(
        "cannot run {path}: its files are missing; fetch them again by floe verify --repair, for \
         the same store"
    )
}

pub(crate) fn unreadable_programs(directory: &Path) -> String {
    format!("cannot list the programs in {}", directory.display())
}

pub(crate) fn no_programs(path: &str) -> String {
    format!(
        "cannot run {path}: it has no directory bin with programs; name one of its files, as in \
         floe run {path}/DIRECTORY/PROGRAM"
    )
}

pub(crate) fn no_such_program(path: &str, name: &str, programs: &[String]) -> String {
    format!(
        "cannot run {name} of {path}: there is no such program; {}",
        named(programs)
    )
}

pub(crate) fn several_programs(path: &str, programs: &[String]) -> String {
    format!(
        "cannot choose a program of {path}: none has its name; use --program NAME; {}",
        named(programs)
    )
}

fn named(programs: &[String]) -> String {
    let shown = programs.iter().take(NAMES_MAX).map(String::as_str);
    let shown: Vec<&str> = shown.collect();
    let more = match programs.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match &*shown {
        [] => "its directory bin has no programs".into(),
        names => format!("its programs are {}{more}", names.join(", ")),
    }
}

const NAMES_MAX: usize = 20;

// Namespaces and mounts

const INSTEAD: &str = "run floe as root, or install into /nix/store";

pub(crate) fn no_user_namespace(error: impl Display, remedy: Option<&str>) -> String {
    let fix = match remedy {
        Some(command) => format!("allow them as root by {command:?}, {INSTEAD}"),
        None => INSTEAD.to_owned(),
    };
    format!("cannot mount the store: the system forbids user namespaces ({error}); {fix}")
}

pub(crate) fn no_user_map(file: &str, error: impl Display) -> String {
    format!(
        "cannot mount the store: the system forbids user namespaces (cannot write {file}: \
         {error}); {INSTEAD}"
    )
}

pub(crate) fn no_mounts(error: rustix::io::Errno) -> String {
    match error {
        // The kernel changes mount points only.
        rustix::io::Errno::INVAL => format!("cannot mount the store: {CHROOT}"),
        _ => format!(
            "cannot mount the store: the system forbids mounts in a namespace ({error}); {INSTEAD}"
        ),
    }
}

const CHROOT: &str = "the root directory is not a mount point, as in a chroot; first mount the \
                      directory of the chroot onto itself (mount --bind DIR DIR), or install into \
                      /nix/store";

pub(crate) fn no_mount(place: &Path, error: rustix::io::Errno) -> String {
    let place = place.display();
    let fix = match error {
        rustix::io::Errno::NOSYS => "floe run needs Linux 5.2 or newer",
        _ => INSTEAD,
    };
    format!("cannot mount the store: {place}: {error}; {fix}")
}

pub(crate) fn hidden_in_path(store_dir: &Path, place: &Path, directory: &Path) -> String {
    let (store_dir, place) = (store_dir.display(), place.display());
    format!(
        "the program sees the store in {place} as {store_dir} and not the one of the system, which \
         PATH names ({})",
        directory.display()
    )
}

pub(crate) fn hidden_directory(store_dir: &Path, place: &Path, directory: &Path) -> String {
    let (store_dir, place) = (store_dir.display(), place.display());
    format!(
        "the program sees the store in {place} as {store_dir}, and the working directory {} is the \
         one there",
        directory.display()
    )
}
