//! The store paths that running processes use: their programs, working directories, open files,
//! mapped files and environments. The rules are Nix's (gc.cc, `findRuntimeRoots`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use floe_format::StorePath;

use super::root_place::{Candidate, RootPlace, store_path_of_name};
use super::unreadable::Unreadable;
use crate::disk::StoreLayout;

/// The texts that name the store directory: the one in paths, and the real place of a store
/// elsewhere, which Nix does not look for.
struct Dirs(Vec<Vec<u8>>);

impl Dirs {
    fn of(layout: &StoreLayout) -> Dirs {
        let mut dirs = vec![layout.store_dir.as_str().as_bytes().to_vec()];
        let real = layout.real_store_dir.as_os_str().as_bytes().to_vec();
        if !dirs.contains(&real) {
            dirs.push(real);
        }
        // Links of processes lead to the real place.
        let resolved = fs::canonicalize(&layout.real_store_dir).unwrap_or_default();
        let resolved = resolved.as_os_str().as_bytes().to_vec();
        if !resolved.is_empty() && !dirs.contains(&resolved) {
            dirs.push(resolved);
        }
        Dirs(dirs)
    }

    /// Returns the text after a store directory that it begins with.
    fn strip<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        let mut dirs = self.0.iter();
        dirs.find_map(|dir| text.strip_prefix(&**dir)?.strip_prefix(b"/"))
    }

    /// Returns the first name below a store directory.
    fn name_in_store<'a>(&self, path: &'a Path) -> Option<&'a [u8]> {
        let inside = self.strip(path.as_os_str().as_bytes())?;
        inside.split(|byte| *byte == b'/').next()
    }
}

/// Whether processes of other users may use the paths of a store. Those of a user's own store are
/// seldom of use to others.
fn others_may_use(layout: &StoreLayout) -> bool {
    let user = rustix::process::geteuid();
    let owner = fs::metadata(&layout.real_store_dir).map(|found| found.uid());
    user.is_root() || owner.map_or(true, |owner| owner != user.as_raw())
}

/// Returns the store paths that processes use.
pub(super) fn roots(layout: &StoreLayout, unreadable: &mut Vec<Unreadable>) -> Vec<Candidate> {
    let dirs = &Dirs::of(layout);
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
    for process in examine_all(dirs, &processes) {
        found.extend(process.found);
        denied += usize::from(process.is_denied);
    }
    if denied > 0 && others_may_use(layout) {
        unreadable.push(Unreadable::Processes(denied));
    }
    for file in ["modprobe", "fbsplash", "poweroff_cmd"] {
        let file = proc.join("sys/kernel").join(file);
        if let Ok(text) = fs::read(&file) {
            found.extend(in_text(dirs, text.trim_ascii_end(), &file));
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

fn examine_all(dirs: &Dirs, processes: &[PathBuf]) -> Vec<Examined> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = processes.len().div_ceil(threads).max(1);
    // The number of this process in the PID namespace of `/proc`.
    let own = fs::read_link("/proc/self").ok();
    let own_name = own.as_deref().and_then(Path::file_name);
    let examine_share = &|share: &[PathBuf]| -> Vec<Examined> {
        let examined = share.iter().map(|process| examine(dirs, process, own_name));
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
///
/// Each thread may have a working directory and open files of its own. The program, the mapped
/// files and the environment are those of all threads, but the system shows none of them for a
/// thread that has ended, which the first one may have.
fn examine(dirs: &Dirs, process: &Path, own_name: Option<&OsStr>) -> Examined {
    let mut examined = Examined::default();
    let threads = threads_of(process);
    for thread in &threads {
        examined.add_link(dirs, thread.join("cwd"));
        examined.add_descriptors(dirs, &thread.join("fd"));
    }
    let running = threads.iter().find(|thread| is_running(thread));
    let Some(running) = running else {
        return examined;
    };
    examined.add_link(dirs, running.join("exe"));
    let maps = running.join("maps");
    examined.add(fs::read(&maps), |text| {
        let files = text.split(|byte| *byte == b'\n').filter_map(mapped_file);
        let found = files.filter_map(|file| in_link(dirs, file, &maps));
        found.collect::<Vec<_>>()
    });
    // The environment of this process keeps nothing: `sudo floe delete PATH` has the command line
    // in the variable SUDO_COMMAND.
    let is_own = own_name.is_some() && process.file_name() == own_name;
    if !is_own {
        let environment = running.join("environ");
        examined.add(fs::read(&environment), |text| {
            in_environment(dirs, &text, &environment)
        });
    }
    examined
}

/// Returns the directories of the threads of a process. The first thread is the process itself,
/// whose places have the names that Nix prints.
fn threads_of(process: &Path) -> Vec<PathBuf> {
    let mut threads = vec![process.to_path_buf()];
    let listed = fs::read_dir(process.join("task")).into_iter().flatten();
    let names = listed.flatten().map(|entry| entry.file_name());
    let others = names.filter(|name| process.file_name() != Some(name));
    threads.extend(others.map(|name| process.join("task").join(name)));
    threads
}

/// Whether a thread has not ended, as far as this user may know.
fn is_running(thread: &Path) -> bool {
    match fs::read_link(thread.join("exe")) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
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

    fn add_link(&mut self, dirs: &Dirs, link: PathBuf) {
        self.add(fs::read_link(&link), |target| in_link(dirs, &target, &link));
    }

    fn add_descriptors(&mut self, dirs: &Dirs, directory: &Path) {
        self.add(fs::read_dir(directory), |entries| {
            let links = entries.flatten().map(|entry| entry.path());
            let found = links.filter_map(|link| {
                let target = fs::read_link(&link).ok()?;
                in_link(dirs, &target, &link)
            });
            found.collect::<Vec<_>>()
        });
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
fn in_link(dirs: &Dirs, target: &Path, place: &Path) -> Option<Candidate> {
    Some(Candidate {
        place: RootPlace::Process(place.to_path_buf()),
        path: store_path_of_name(dirs.name_in_store(target)?)?,
    })
}

/// Returns the file of a line of `maps`: the sixth column, which may contain spaces.
fn mapped_file(line: &[u8]) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..5 {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        rest = rest[end..].trim_ascii_start();
    }
    let is_file = rest.starts_with(b"/");
    is_file.then(|| Path::new(OsStr::from_bytes(rest)))
}

/// Returns the store paths whose names stand anywhere in a text.
fn in_environment(dirs: &Dirs, text: &[u8], place: &Path) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'/') {
        rest = &rest[at..];
        let Some(inside) = dirs.strip(rest) else {
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
fn in_text(dirs: &Dirs, text: &[u8], place: &Path) -> Option<Candidate> {
    in_link(dirs, Path::new(OsStr::from_bytes(text)), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> Dirs {
        Dirs(vec![b"/nix/store".to_vec(), b"/real/store".to_vec()])
    }

    fn name(part: char) -> String {
        format!("{}-x", part.to_string().repeat(32))
    }

    #[test]
    fn environment_names_paths_anywhere() {
        let dirs = dirs();
        let text = format!(
            "A=/nix/store/{}/bin:/nix/store/{}\0B=x/nix/store//nix/store/{};/nix/store/short-x",
            name('a'),
            name('b'),
            name('c')
        ) + &format!(" /real/store/{}/bin /other/store/{}", name('d'), name('f'));
        let found = in_environment(&dirs, text.as_bytes(), Path::new("/proc/1/environ"));
        let names: Vec<_> = found.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(names, ['a', 'b', 'c', 'd'].map(name));
    }

    #[test]
    fn maps_name_files_with_and_without_spaces() {
        let file = |line: &str| mapped_file(line.as_bytes()).map(|it| it.display().to_string());
        let line = |file: &str| format!("00400000-00401000 r-xp 00000000 08:02 173521 {file}");
        for name in [
            "/nix/store/x/lib.so",
            "/nix/store/x/a lib.so",
            "/x/lib (deleted)",
        ] {
            assert_eq!(file(&line(&format!("   {name}"))).as_deref(), Some(name));
        }
        for none in ["", "[heap]", "anon_inode:[perf_event]"] {
            assert_eq!(file(&line(none)), None, "{none}");
        }
    }

    #[test]
    fn deleted_files_in_a_path_still_name_it() {
        let dirs = dirs();
        let path = |text: String| {
            let name = dirs.name_in_store(Path::new(&text))?;
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
