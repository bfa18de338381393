//! Systems that forbid namespaces, and machines without `/nix/store`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_testkit::{NOBODY_UID, find_tool, run, skip};

use super::programs;

#[test]
fn forbidden_user_namespaces_are_an_error_with_the_remedy() {
    let Some(programs) = programs() else { return };
    let command = programs.run_tool(&[]);
    let Some(as_user) = programs.as_nobody(&command) else {
        return;
    };
    let Some(unshare) = find_tool("unshare", "util-linux") else {
        return;
    };
    // The limit counts in a user namespace of its own, so other tests do not notice.
    // A process that starts after the users are mapped has the rights of root there.
    let script = "read ready; exec sh -c \
                  'echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"' sh \"$@\"";
    let mut limited = Command::new(unshare);
    limited.args(["--user", "sh", "-c", script, "sh"]);
    limited.arg(as_user.get_program()).args(as_user.get_args());
    limited.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn().unwrap();
    let process = format!("/proc/{}", child.id());
    let own = fs::read_link("/proc/self/ns/user").unwrap();
    floe_testkit::wait_until("there is a user namespace", || {
        fs::read_link(format!("{process}/ns/user")).is_ok_and(|it| it != own)
    });
    for file in ["uid_map", "gid_map"] {
        let map = format!("0 0 {}\n", NOBODY_UID + 1);
        fs::write(format!("{process}/{file}"), map).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"ready\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in [
        "forbids user namespaces",
        "sysctl -w user.max_user_namespaces",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

/// A machine without Nix: the mount point does not exist, and only a new root can have it.
#[test]
fn machine_without_store_directory_gets_one_for_the_program() {
    let Some(programs) = programs() else { return };
    if !rustix::process::geteuid().is_root() {
        skip("unshare", "only root may mount");
        return;
    }
    let Some(unshare) = find_tool("unshare", "util-linux") else {
        return;
    };
    let tool = programs.run_tool(&["7", "a b"]);
    // A new root has all entries of the old one except `/nix`.
    let script = "set -e; new=$1; shift; mount -t tmpfs tmpfs \"$new\"; cd \"$new\"; mkdir old; \
         for entry in /*; do name=${entry#/}; \
         if [ \"$name\" = nix ]; then continue; \
         elif [ -L \"$entry\" ]; then cp -a \"$entry\" \"$name\"; \
         elif [ -d \"$entry\" ]; then mkdir -p \"$name\"; mount --rbind \"$entry\" \"$name\"; fi; \
         done; \
         pivot_root . old; cd \"$directory\"; ls / > \"$entries\"; exec \"$@\"";
    let [new, entries] = ["new", "entries"].map(|name| programs.scratch.join(name));
    fs::create_dir(&new).unwrap();
    for command in [Some(&tool), programs.as_nobody(&tool).as_ref()] {
        let Some(command) = command else { return };
        let mut without = Command::new(&unshare);
        without.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        without
            .arg(&new)
            .arg(command.get_program())
            .args(command.get_args());
        without.env("HOME", "/some/where").env("entries", &entries);
        without.env("directory", programs.scratch.path());
        let ran = run(&mut without).expect(7);
        let before = fs::read_to_string(&entries).unwrap();
        assert!(!before.lines().any(|name| name == "nix"), "{before}");
        let user = if Path::new(command.get_program()).ends_with("setpriv") {
            NOBODY_UID
        } else {
            0
        };
        programs.assert_seen(&ran.stdout, user);
    }
}

#[test]
fn hidden_store_of_the_system_is_named() {
    let Some(programs) = programs() else { return };
    if !Path::new("/nix/store").is_dir() {
        skip("nix-bin", "there is no /nix/store");
        return;
    }
    let mut command = programs.run_tool(&[]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("/nix/store/x/bin:{path}"));
    let ran = run(&mut command).expect(0);
    let named = "not the one of the system, which PATH names (/nix/store/x/bin)";
    assert!(ran.stderr.contains(named), "{}", ran.stderr);
    command.env("PATH", path).current_dir("/nix/store");
    let ran = run(&mut command).expect(0);
    let other = format!("directory {} is the one there", "/nix/store");
    assert!(ran.stderr.contains(&other), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("directory: /nix/store\n"),
        "{}",
        ran.stdout
    );
    // A directory that only the hidden store has.
    let hidden = fs::read_dir("/nix/store").unwrap().flatten();
    let is_path = |path: &PathBuf| path.is_dir() && !path.ends_with(".links");
    let hidden = hidden.map(|entry| entry.path()).find(is_path);
    let Some(hidden) = hidden else { return };
    run(command.current_dir(&hidden))
        .expect(1)
        .stderr_contains("the mounted store hides this directory");
}
