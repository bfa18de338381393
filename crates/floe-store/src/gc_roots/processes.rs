//! The store paths that running processes use: their programs, working directories, open files,
//! mapped files and environments. The rules are Nix's (gc.cc, `findRuntimeRoots`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use floe_format::{StoreDir, StorePath};

use super::root_place::{Candidate, RootPlace, name_in_store, store_path_of_name};
use super::unreadable::Unreadable;

/// Returns the store paths that processes use.
pub(super) fn roots(dir: &StoreDir, unreadable: &mut Vec<Unreadable>) -> Vec<Candidate> {
    let proc = Path::new("/proc");
    let Ok(processes) = process_directories(proc) else {
        unreadable.push(Unreadable::NoProc);
        return Vec::new();
    };
    if processes.is_empty() {
        unreadable.push(Unreadable::NoProc);
    }
    if hides_processes() {
        unreadable.push(Unreadable::HiddenProcesses);
    }
    let mut found = Vec::new();
    let mut denied = 0;
    for process in examine_all(dir, &processes) {
        found.extend(process.found);
        denied += usize::from(process.is_denied);
    }
    if denied > 0 {
        unreadable.push(Unreadable::Processes(denied));
    }
    for file in ["modprobe", "fbsplash", "poweroff_cmd"] {
        let file = proc.join("sys/kernel").join(file);
        if let Ok(text) = fs::read(&file) {
            found.extend(in_text(dir, text.trim_ascii_end(), &file));
        }
    }
    found
}

/// The roots of one process.
#[derive(Default)]
struct Examined {
    found: Vec<Candidate>,
    /// Whether this user may not read all of its files.
    is_denied: bool,
}

fn examine_all(dir: &StoreDir, processes: &[PathBuf]) -> Vec<Examined> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = processes.len().div_ceil(threads).max(1);
    // The number of this process in the PID namespace of `/proc`.
    let own = fs::read_link("/proc/self").ok();
    let own_name = own.as_deref().and_then(Path::file_name);
    let examine_share = &|share: &[PathBuf]| -> Vec<Examined> {
        let examined = share.iter().map(|process| examine(dir, process, own_name));
        examined.collect()
    };
    thread::scope(|scope| {
        let shares = processes.chunks(share);
        let mut examined = Vec::new();
        let mut running = Vec::new();
        for share in shares {
            let examine = move || examine_share(share);
            match thread::Builder::new().spawn_scoped(scope, examine) {
                Ok(thread) => running.push(thread),
                // The system allows no further thread.
                Err(_) => examined.extend(examine_share(share)),
            }
        }
        for thread in running {
            // A panic of a thread goes on in this one.
            let share = thread.join();
            examined.extend(share.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        examined
    })
}

/// Examines a process, which may end meanwhile.
fn examine(dir: &StoreDir, process: &Path, own_name: Option<&OsStr>) -> Examined {
    let mut examined = Examined::default();
    let is_own = own_name.is_some() && process.file_name() == own_name;
    for name in ["exe", "cwd"] {
        let link = process.join(name);
        examined.add(fs::read_link(&link), |target| in_link(dir, &target, &link));
    }
    let descriptors = fs::read_dir(process.join("fd"));
    examined.add(descriptors, |entries| {
        let links = entries.flatten().map(|entry| entry.path());
        let found = links.filter_map(|link| {
            let target = fs::read_link(&link).ok()?;
            in_link(dir, &target, &link)
        });
        found.collect::<Vec<_>>()
    });
    let maps = process.join("maps");
    examined.add(fs::read(&maps), |text| {
        let files = text.split(|byte| *byte == b'\n').filter_map(mapped_file);
        let found = files.filter_map(|file| in_link(dir, file, &maps));
        found.collect::<Vec<_>>()
    });
    // The environment of this process keeps nothing: `sudo floe delete PATH` has the command line
    // in the variable SUDO_COMMAND.
    if !is_own {
        let environment = process.join("environ");
        examined.add(fs::read(&environment), |text| {
            in_environment(dir, &text, &environment)
        });
    }
    examined
}

impl Examined {
    fn add<T, I: IntoIterator<Item = Candidate>>(
        &mut self,
        read: io::Result<T>,
        find: impl FnOnce(T) -> I,
    ) {
        match read {
            Ok(read) => self.found.extend(find(read)),
            Err(error) => self.is_denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
}

fn process_directories(proc: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        if entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

/// Whether `/proc` shows this user only its own processes.
fn hides_processes() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_hidden = |line: &str| {
        let (before, after) = line.split_once(" - ").unwrap_or((line, ""));
        let place = before.split(' ').nth(4);
        let is_hiding = [
            "hidepid=2",
            "hidepid=4",
            "hidepid=invisible",
            "hidepid=ptraceable",
        ];
        place == Some("/proc")
            && after.starts_with("proc ")
            && is_hiding.iter().any(|option| after.contains(option))
    };
    !rustix::process::geteuid().is_root() && mounts.lines().any(is_hidden)
}

/// Returns the root of a file in the store. Of a deleted file, the system adds text to the name.
fn in_link(dir: &StoreDir, target: &Path, place: &Path) -> Option<Candidate> {
    Some(Candidate {
        place: RootPlace::Process(place.to_path_buf()),
        path: store_path_of_name(name_in_store(dir, target)?)?,
    })
}

/// Returns the file of a line of `maps`: the sixth column, if it has no spaces.
fn mapped_file(line: &[u8]) -> Option<&Path> {
    let mut columns = line
        .split(u8::is_ascii_whitespace)
        .filter(|it| !it.is_empty());
    let file = columns.nth(5)?;
    let is_file = file.starts_with(b"/") && columns.next().is_none();
    is_file.then(|| Path::new(OsStr::from_bytes(file)))
}

/// Returns the store paths whose names stand anywhere in a text.
fn in_environment(dir: &StoreDir, text: &[u8], place: &Path) -> Vec<Candidate> {
    let prefix = format!("{dir}/");
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'/') {
        rest = &rest[at..];
        let Some(inside) = rest.strip_prefix(prefix.as_bytes()) else {
            rest = &rest[1..];
            continue;
        };
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._?=".contains(byte);
        let end = inside.iter().position(|byte| !is_name(byte));
        let (name, after) = inside.split_at(end.unwrap_or(inside.len()));
        let path = str::from_utf8(name)
            .ok()
            .and_then(|name| StorePath::parse(name).ok());
        found.extend(path.map(|path| Candidate {
            place: RootPlace::Process(place.to_path_buf()),
            path,
        }));
        rest = after;
    }
    found
}

/// Returns the root of a file whose text is the name of a program.
fn in_text(dir: &StoreDir, text: &[u8], place: &Path) -> Option<Candidate> {
    in_link(dir, Path::new(OsStr::from_bytes(text)), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(part: char) -> String {
        format!("{}-x", part.to_string().repeat(32))
    }

    #[test]
    fn environment_names_paths_anywhere() {
        let dir = StoreDir::default();
        let text = format!(
            "A=/nix/store/{}/bin:/nix/store/{}\0B=x/nix/store//nix/store/{};/nix/store/short-x",
            name('a'),
            name('b'),
            name('c')
        );
        let found = in_environment(&dir, text.as_bytes(), Path::new("/proc/1/environ"));
        let names: Vec<_> = found.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(names, ['a', 'b', 'c'].map(name));
    }

    #[test]
    fn maps_name_files_without_spaces_only() {
        let file = |line: &str| mapped_file(line.as_bytes()).map(|it| it.display().to_string());
        let line = |file: &str| format!("00400000-00401000 r-xp 00000000 08:02 173521 {file}");
        assert_eq!(
            file(&line("   /nix/store/x/lib.so")).as_deref(),
            Some("/nix/store/x/lib.so")
        );
        for none in ["", "[heap]", "/x/lib.so (deleted)"] {
            assert_eq!(file(&line(none)), None, "{none}");
        }
    }

    #[test]
    fn deleted_files_in_a_path_still_name_it() {
        let dir = StoreDir::default();
        let path = |text: String| {
            let name = name_in_store(&dir, Path::new(&text))?;
            store_path_of_name(name).map(|path| path.to_string())
        };
        let (a, inside) = (
            name('a'),
            format!("/nix/store/{}/bin/x (deleted)", name('a')),
        );
        assert_eq!(path(inside), Some(a.clone()));
        assert_eq!(path(format!("/nix/store/{a} (deleted)")), None);
        assert_eq!(path(format!("/nix/storeage/{a}")), None);
    }
}
