//! `floe run` and `floe shell`: programs of a store below another root, as root and as a user.

mod collectors;
mod missing_locks;
mod namespaces;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_testkit::{
    NOBODY_UID, Nix, Scratch, copy_program, nixes, run, scratch, setpriv_to_nobody, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::floe;

/// A store with programs, which Nix has made.
struct Programs {
    scratch: Scratch,
    /// The root directory of the store.
    root: PathBuf,
    /// A path with one program, a script whose interpreter is in `shell`.
    tool: String,
    /// A path with two programs.
    shell: String,
    nix: Nix,
}

/// Makes a store. The script prints what it sees, waits for the file that `WAIT` names, and exits
/// with the code of its first argument. With `CLOSES`, it becomes a shell without the script and
/// without any descriptor of floe, and waits.
fn programs() -> Option<Programs> {
    let nix = nixes().into_iter().next()?;
    let scratch = scratch();
    let root = scratch.join("root");
    let shell = scratch.join("shell-1");
    fs::create_dir_all(shell.join("bin")).unwrap();
    for name in ["sh", "other"] {
        copy_program(Path::new("/bin/sh"), &shell.join("bin").join(name));
    }
    let shell = add(&nix, &root, &shell);
    let tool = scratch.join("tool-1.0");
    // Each test has its own path: a collector keeps a path that any process of the machine uses.
    let script = format!(
        "#!{shell}/bin/sh\n\
         # {}\n\
         echo \"arguments: $*\"\n\
         echo \"directory: $(pwd)\"\n\
         echo \"home: $HOME\"\n\
         echo \"user: $(id -u)\"\n\
         echo \"store: $(ls /nix/store)\"\n\
         if [ -n \"$CLOSES\" ]; then exec {shell}/bin/sh -c '{WAIT_FOR_END}' {CLOSED}; fi\n\
         trap 'echo terminated; exit 9' TERM\n\
         if [ -n \"$STARTED\" ]; then : > \"$STARTED\"; fi\n\
         while [ -n \"$WAIT\" ] && [ ! -e \"$WAIT\" ]; do sleep 0.05; done\n\
         exit \"${{1:-0}}\"\n",
        scratch.path().display()
    );
    write_program(&tool.join("bin/tool"), &script);
    let tool = add(&nix, &root, &tool);
    Some(Programs {
        scratch,
        root,
        tool,
        shell,
        nix,
    })
}

/// Tells the test that the program has started, and waits for the end that the test chooses.
const WAIT_FOR_END: &str = ": > \"$STARTED\"; while [ ! -e \"$WAIT\" ]; do sleep 0.05; done";

/// Closes all descriptors that a shell can name. The shell opens its script at a higher one.
const CLOSED: &str = "3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";

fn write_program(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn add(nix: &Nix, root: &Path, directory: &Path) -> String {
    let added = nix.store(root, ["--add".as_ref(), directory.as_os_str()]);
    added.trim().to_owned()
}

impl Programs {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = floe(arguments);
        command.current_dir(self.scratch.path());
        command
    }

    /// `floe run --root ROOT TOOL -- ARGUMENTS`.
    fn run_tool(&self, arguments: &[&str]) -> Command {
        let root = self.root.display().to_string();
        let own = ["run", "--root", &root, &self.tool, "--"];
        self.command(&[&own[..], arguments].concat())
    }

    /// Returns the same command as the user `nobody`, and gives the store to this user. Returns
    /// `None` if this process cannot switch to another user.
    fn as_nobody(&self, command: &Command) -> Option<Command> {
        let mut as_user = setpriv_to_nobody()?;
        // The user may have no access to the build directory.
        let program = self.scratch.join("floe");
        if !program.exists() {
            copy_program(Path::new(command.get_program()), &program);
        }
        let chown_all = Command::new("chown")
            .args(["-R", "-h", &NOBODY_UID.to_string()])
            .arg(self.scratch.path())
            .status();
        assert!(chown_all.unwrap().success());
        chown(self.scratch.path(), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        as_user.arg(program).args(command.get_args());
        as_user.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        as_user
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        Some(as_user)
    }

    /// Asserts what the tool has printed.
    #[track_caller]
    fn assert_seen(&self, stdout: &str, user: u32) {
        let base_name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let directory = self.scratch.path().display();
        for line in [
            "arguments: 7 a b",
            &format!("directory: {directory}"),
            "home: /some/where",
            &format!("user: {user}"),
        ] {
            assert!(stdout.lines().any(|it| it == line), "{line}: {stdout}");
        }
        for path in [&self.tool, &self.shell] {
            assert!(stdout.contains(&base_name(path)), "{path}: {stdout}");
        }
    }
}

#[test]
fn program_sees_store_and_keeps_directory_user_and_exit_code() {
    let Some(programs) = programs() else { return };
    let mut command = programs.run_tool(&["7", "a b"]);
    command.env("HOME", "/some/where");
    let ran = run(&mut command).expect(7);
    programs.assert_seen(&ran.stdout, rustix::process::geteuid().as_raw());
    assert_eq!(ran.stderr, "");
    let Some(mut command) = programs.as_nobody(&command) else {
        return;
    };
    let ran = run(&mut command).expect(7);
    programs.assert_seen(&ran.stdout, NOBODY_UID);
    assert_eq!(ran.stderr, "");
}

#[test]
fn program_gets_the_signals() {
    let Some(programs) = programs() else { return };
    let started = programs.scratch.join("started");
    let mut command = programs.run_tool(&[]);
    command.env("WAIT", "/nowhere").env("STARTED", &started);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the program has started", || started.exists());
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9));
    assert!(String::from_utf8_lossy(&output.stdout).contains("terminated"));
}

#[test]
fn program_is_chosen_by_name_file_or_link() {
    let Some(programs) = programs() else { return };
    let root = programs.root.display().to_string();
    let link = programs.scratch.join("result");
    std::os::unix::fs::symlink(&programs.shell, &link).unwrap();
    let file = format!("{}/bin/sh", programs.shell);
    let inside = format!("{}/bin/other", link.display());
    let real = format!("{root}{file}");
    for chosen in [
        &["--program", "sh", &*programs.shell][..],
        &["--program", "other", "./result"],
        &[&file],
        &[&inside],
        &[&real],
    ] {
        let arguments = [&["run", "--root", &root], chosen, &["--", "-c", "exit 3"]].concat();
        run(&mut programs.command(&arguments)).expect(3);
    }
    let refused = [
        (&["./result"][..], 2, "its programs are other, sh"),
        (
            &["--program", "x", "./result"],
            2,
            "its programs are other, sh",
        ),
        (&["./absent"], 2, "there is no such file"),
    ];
    for (arguments, _, message) in refused {
        let arguments = [&["run", "--root", &root], arguments].concat();
        let ran = run(&mut programs.command(&arguments));
        assert_ne!(ran.code, Some(0));
        assert!(ran.stderr.contains(message), "{message}: {}", ran.stderr);
    }
}

#[test]
fn missing_interpreter_is_named() {
    let Some(programs) = programs() else { return };
    let broken = programs.scratch.join("broken-1");
    write_program(&broken.join("bin/broken"), "#!/nix/store/absent/bin/sh\n");
    let broken = add(&programs.nix, &programs.root, &broken);
    let root = programs.root.display().to_string();
    run(&mut programs.command(&["run", "--root", &root, &broken]))
        .expect(1)
        .stderr_contains("the interpreter that its first line names is missing");
}

#[test]
fn missing_path_is_installed_first() {
    let Some(programs) = programs() else { return };
    let cache = format!("file://{}", programs.scratch.join("cache").display());
    let root = programs.root.display().to_string();
    let copy = [
        "copy",
        "--from",
        &root,
        "--to",
        &cache,
        "--no-check-sigs",
        "--all",
    ];
    run(&mut programs.command(&copy)).expect(0);
    let new = programs.scratch.join("new");
    let new = new.display().to_string();
    let mut command = programs.command(&[
        "shell",
        "--root",
        &new,
        "--from",
        &cache,
        &programs.tool,
        &programs.shell,
        "--",
        "sh",
        "-c",
        "tool 4; code=$?; ulimit -Sn; exit $code",
    ]);
    let ran = run(&mut command).expect(4);
    assert!(ran.stderr.contains("installed 2 paths"), "{}", ran.stderr);
    // floe raises this limit for itself only.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let last = ran.stdout.lines().last().unwrap();
    assert_eq!(
        last,
        limit.map_or("unlimited".into(), |limit| limit.to_string())
    );
    // stdout is that of the program alone.
    assert!(ran.stdout.starts_with("arguments: 4"), "{}", ran.stdout);
    let ran = run(&mut command).expect(4);
    assert_eq!(ran.stderr, "");
}
