//! Paths that only a thread of a process uses, or that the system names with spaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_testkit::{Scratch, find_tool, nixes, ran_in_pid_namespace, run, scratch, wait_until};

use crate::support::floe;

/// Uses the file or directory of its second argument in the way of its first one, and then creates
/// the file of its third one.
const USER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char **words;

static void started(void) { close(open(words[3], O_CREAT | O_WRONLY, 0600)); }

static int use(void) {
    const char *way = words[1], *place = words[2];
    if (!strcmp(way, "descriptor"))
        return unshare(CLONE_FILES) || open(place, O_RDONLY) < 0;
    if (!strcmp(way, "directory")) return unshare(CLONE_FS) || chdir(place);
    int file = open(place, O_RDONLY);
    int failed = file < 0 || mmap(0, 1, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED;
    return failed || close(file);
}

static void *run(void *first) {
    if (!strcmp(words[1], "ended")) pthread_join(*(pthread_t *)first, 0);
    if (use()) _exit(1);
    started();
    for (;;) pause();
}

int main(int count, char **arguments) {
    static pthread_t first, other;
    words = arguments;
    first = pthread_self();
    if (count != 4 || pthread_create(&other, 0, run, &first)) return 1;
    if (!strcmp(words[1], "ended")) pthread_exit(0);
    for (;;) pause();
}
"#;

/// A store in a directory of its own: the links of processes name the real places of files.
struct Places {
    scratch: Scratch,
    uri: String,
    path: PathBuf,
    user: PathBuf,
}

fn places() -> Option<Places> {
    let cc = find_tool("cc", "g++")?;
    let nix = nixes().into_iter().next()?;
    let scratch = scratch();
    let source = scratch.join("user.c");
    fs::write(&source, USER).unwrap();
    let user = scratch.join("user");
    run(Command::new(cc)
        .arg("-pthread")
        .arg("-o")
        .args([&user, &source]))
    .expect(0);
    let place = |name: &str| scratch.join(name).display().to_string();
    let (dir, state, log) = (place("store"), place("state"), place("log"));
    let uri = format!("local?store={dir}&state={state}&log={log}");
    let files = scratch.join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a file"), place("")).unwrap();
    let mut add = nix.command("nix-store", ["--store", &uri, "--add"]);
    let path = run(add.arg(&files)).expect(0).stdout.trim().into();
    Some(Places {
        scratch,
        uri,
        path,
        user,
    })
}

impl Places {
    fn start(&self, way: &str, place: &Path) -> User {
        let started = self.scratch.join(way);
        let mut user = Command::new(&self.user);
        user.arg(way).arg(place).arg(&started);
        let mut user = User(user.stdin(Stdio::null()).spawn().unwrap());
        wait_until("the thread uses the path", || {
            assert_eq!(user.0.try_wait().unwrap(), None);
            started.exists()
        });
        user
    }

    /// Returns the roots of the path, which processes alone may be.
    fn roots(&self) -> Vec<String> {
        let printed = run(&mut floe(["gc", "--print-roots", "--store", &self.uri])).expect(0);
        let line_end = format!(" -> {}", self.path.display());
        let roots = printed
            .stdout
            .lines()
            .filter_map(|line| line.strip_suffix(&line_end));
        roots.map(str::to_owned).collect()
    }
}

struct User(Child);

impl Drop for User {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn use_by_one_thread_keeps_a_path() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(places) = places() else { return };
    let file = places.path.join("a file");
    for (way, place, name) in [
        ("descriptor", &file, "fd/"),
        ("directory", &places.path, "cwd"),
        ("ended", &file, "maps"),
        ("mapped", &file, "maps"),
    ] {
        assert_eq!(places.roots(), [""; 0], "{way}");
        let user = places.start(way, place);
        let process = user.0.id();
        let roots = places.roots();
        let [root] = &*roots else {
            panic!("{way}: {roots:?}");
        };
        let of_process = root.strip_prefix(&format!("/proc/{process}/"));
        let of_thread = of_process.and_then(|root| root.strip_prefix("task/"));
        assert_eq!(of_thread.is_some(), way != "mapped", "{way}: {root}");
        assert!(root.contains(name), "{way}: {root}");
        let why = ["roots", "--store", &places.uri, "--why"];
        let why = run(floe(why).arg(&places.path)).expect(0);
        assert!(
            why.stdout.contains(&format!("process {process} ")),
            "{}",
            why.stdout
        );
        run(&mut floe(["gc", "--store", &places.uri])).expect(0);
        assert!(file.exists(), "{way}");
    }
    run(&mut floe(["gc", "--store", &places.uri])).expect(0);
    assert!(!file.exists());
}
