//! A collector that removes a GC root of floe, because it has found the link of an earlier root
//! under the same name.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{corpus, find_tool, nixes, ran_in_pid_namespace, run, scratch, wait_until};

use super::install;

/// Makes each removal of a file in `gcroots/auto` wait for another file. A removal is one of three
/// functions, depending on the version of Nix.
const PAUSED_REMOVALS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void pause_for(const char *path) {
    if (!strstr(path, "/gcroots/auto/")) return;
    int reached = open(getenv("FLOE_TEST_REACHED"), O_CREAT | O_WRONLY, 0600);
    if (reached >= 0) close(reached);
    while (access(getenv("FLOE_TEST_CONTINUE"), F_OK)) usleep(1000);
}

int unlink(const char *path) {
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    pause_for(path);
    return real(path);
}

int remove(const char *path) {
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "remove");
    pause_for(path);
    return real(path);
}

int unlinkat(int directory, const char *path, int flags) {
    int (*real)(int, const char *, int) =
        (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    pause_for(path);
    return real(directory, path, flags);
}
"#;

/// Compiles the functions into a library that can be preloaded.
fn compile(cc: &Path, directory: &Path) -> String {
    let source = directory.join("paused.c");
    fs::write(&source, PAUSED_REMOVALS).unwrap();
    let library = directory.join("paused.so");
    let mut command = Command::new(cc);
    command.args(["-shared", "-fPIC", "-o"]).arg(&library);
    run(command.arg(&source).arg("-ldl")).expect(0);
    library.display().to_string()
}

#[test]
fn root_survives_collector_that_removes_link_of_earlier_root() {
    if ran_in_pid_namespace() {
        return;
    }
    let (Some(corpus), Some(cc)) = (corpus("jq"), find_tool("cc", "g++")) else {
        return;
    };
    for nix in nixes() {
        let scratch = scratch();
        let library = compile(&cc, scratch.path());
        let (root, link) = (scratch.join("root"), scratch.join("result"));
        let install = || {
            let mut command = install(&corpus, &root);
            command.arg("--out-link").arg(&link);
            run(&mut command).expect(0);
        };
        install();
        fs::remove_file(&link).unwrap();
        let delete = ["--delete", "--ignore-liveness"].map(String::from);
        nix.store(&root, delete.iter().chain(&corpus.paths));
        let [reached, go_on] = ["reached", "continue"].map(|name| scratch.join(name));
        let mut collector = nix.command("nix-store", ["--store"]);
        collector.arg(&root).arg("--gc");
        collector.env("LD_PRELOAD", &library);
        collector.env("FLOE_TEST_REACHED", &reached);
        collector.env("FLOE_TEST_CONTINUE", &go_on);
        let collector = collector.stdout(Stdio::null()).stderr(Stdio::null());
        let mut collector = collector.spawn().unwrap();
        wait_until("the collector removes no link", || reached.exists());
        install();
        fs::write(&go_on, "").unwrap();
        wait_until("the collector hangs", || {
            collector.try_wait().unwrap().is_some()
        });
        assert!(collector.wait().unwrap().success());
        // This collector reads the roots as they are now.
        nix.store(&root, ["--gc"]);
        nix.verify(&root, corpus.paths.len());
        fs::remove_file(&link).unwrap();
        nix.store(&root, ["--gc"]);
        let left = fs::read_dir(root.join("nix/var/nix/gcroots/auto")).unwrap();
        assert_eq!(left.count(), 0, "{}", nix.version);
    }
}
