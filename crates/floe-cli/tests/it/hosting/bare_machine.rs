//! A machine with floe and nothing else: real clients deploy to it, after the lines of
//! docs/deploying.md have set it up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::{CommandOutput, Sshd, copy_program, find_tool, sshd_with};
use rustix::process::geteuid;

use super::*;
use crate::packages::{platform, unpack_static_binary};

/// A directory with busybox, floe and their libraries, as the root of all sessions of a server.
struct BareMachine<'h> {
    host: &'h Host<'h>,
    root: PathBuf,
    server: Sshd,
    /// The directory from which the user works.
    home: PathBuf,
}

impl<'h> BareMachine<'h> {
    fn start(host: &'h Host<'h>, busybox: &Path) -> Option<BareMachine<'h>> {
        let root = host.scratch.join("machine");
        for directory in ["bin", "dev", "proc", "tmp", "root", "usr/local/bin"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let floe = program_of_release(host);
        for program in [busybox, &floe] {
            copy_libraries(program, &root);
        }
        copy_program(busybox, &root.join("bin/busybox"));
        let install = ["/bin/busybox", "--install", "-s", "/bin"];
        run(Command::new("chroot").arg(&root).args(install)).expect(0);
        run(Command::new("mknod")
            .arg(root.join("dev/null"))
            .args(["-m", "666", "c", "1", "3"]))
        .expect(0);
        let enter = write_script(
            &host.scratch.join("enter"),
            &format!(
                "export MACHINE={}\n\
                 exec unshare --mount sh -c 'mount -t proc proc \"$MACHINE/proc\" && \
                 exec env -i PATH=/usr/local/bin:/bin HOME=/root NIX_CONFIG=\"substituters =\" \
                 /usr/sbin/chroot \"$MACHINE\" /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"'",
                root.display()
            ),
        );
        let server = sshd_with(&format!("ForceCommand {}", enter.display()))?;
        let home = host.scratch.join("home");
        fs::create_dir_all(home.join("bin")).unwrap();
        copy_program(&floe, &home.join("floe"));
        let ssh = format!(
            "exec /usr/bin/ssh {} -p {} \"$@\"",
            server.options(),
            server.port()
        );
        write_script(&home.join("bin/ssh"), &ssh);
        Some(BareMachine {
            host,
            root,
            server,
            home,
        })
    }

    /// Runs a line on the machine of the user, with the real Nix.
    fn sh(&self, line: &str) -> CommandOutput {
        let host = self.host;
        let mut command = host.nix.command("nix", [""; 0]);
        let nix = PathBuf::from(command.get_program());
        let path = std::env::var("PATH").unwrap();
        let path = format!(
            "{}:{}:{path}",
            self.home.join("bin").display(),
            nix.parent().unwrap().display()
        );
        command = Command::new("sh");
        command.args(["-ec", line]).current_dir(&self.home);
        hide_nix_conf(&mut command);
        command.env("PATH", path).env("HOME", &self.home);
        command.env(
            "NIX_SSHOPTS",
            format!("{} -p {}", self.server.options(), self.server.port()),
        );
        command.env("NIX_REMOTE", host.corpus.store());
        command.env("NIX_CONFIG", "experimental-features = nix-command");
        run(&mut command)
    }

    fn ssh(&self, words: &str) -> CommandOutput {
        self.sh(&format!("ssh root@127.0.0.1 '{words}'"))
    }
}

/// Returns the static binary of the release if there is one, else the program under test.
fn program_of_release(host: &Host<'_>) -> PathBuf {
    let directory = host.scratch.join("release");
    fs::create_dir(&directory).unwrap();
    match unpack_static_binary(&platform(), &directory) {
        Some(program) => {
            let listed = run(Command::new("ldd").arg(&program));
            assert!(!listed.stdout.contains("=>"), "{}", listed.stdout);
            program
        }
        None => floe([""; 0]).get_program().into(),
    }
}

/// Copies the shared libraries of a program to their places below a root.
fn copy_libraries(program: &Path, root: &Path) {
    let listed = run(Command::new("ldd").arg(program)).stdout;
    let libraries = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for library in libraries {
        let place = root.join(&library[1..]);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        copy_program(Path::new(library), &place);
    }
}

fn write_script(path: &Path, line: &str) -> PathBuf {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// The lines that set a machine up, in docs/deploying.md.
fn documented_lines() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploying.md");
    let text = fs::read_to_string(docs).unwrap();
    let (_, section) = text.split_once("## To a machine without Nix").unwrap();
    let block = section.split("```\n").nth(1).unwrap();
    let lines: Vec<String> = block.lines().map(str::to_owned).collect();
    assert!((3..=10).contains(&lines.len()), "{lines:?}");
    lines
}

fn with_machines(check: impl Fn(&BareMachine<'_>)) {
    if !geteuid().is_root() {
        return;
    }
    let Some(busybox) = find_tool("busybox", "busybox") else {
        return;
    };
    with_hosts(|host| {
        if let Some(machine) = BareMachine::start(host, &busybox) {
            check(&machine);
        }
    });
}

#[test]
fn machine_with_floe_alone_is_deployed_and_rolled_back() {
    with_machines(|machine| {
        let host = machine.host;
        let root = &*host.corpus.root;
        assert!(!machine.root.join("nix").exists());
        for line in documented_lines() {
            let line = line
                .replace("$(readlink ./result)", root)
                .replace("./result", root)
                .replace("HOST", "127.0.0.1");
            machine.sh(&line).expect(0);
        }
        host.check_store(&machine.root);
        // The system runs, with the libraries of its closure.
        let profile = "/nix/var/nix/profiles/web";
        let libraries: Vec<String> = (host.corpus.paths.iter())
            .flat_map(|path| {
                [
                    format!("{path}/lib/x86_64-linux-gnu"),
                    format!("{path}/usr/lib/x86_64-linux-gnu"),
                ]
            })
            .collect();
        let libraries = libraries.join(":");
        let jq = format!("LD_LIBRARY_PATH={libraries} {profile}/usr/bin/jq");
        let version = machine.ssh(&format!("{jq} --version")).expect(0).stdout;
        assert!(version.starts_with("jq-1.6"), "{version}");
        // Another generation, and back.
        let leaf = &*host.corpus.paths[0];
        machine
            .sh(&format!("nix-copy-closure --to root@127.0.0.1 {leaf}"))
            .expect(0);
        machine
            .ssh(&format!("nix-env -p {profile} --set {leaf}"))
            .expect(0);
        assert_ne!(machine.ssh(&format!("{jq} --version")).code, Some(0));
        machine
            .ssh(&format!("nix-env -p {profile} --rollback"))
            .expect(0);
        machine.ssh(&format!("{jq} --version")).expect(0);
        let listed = machine
            .ssh(&format!("nix-env -p {profile} --list-generations"))
            .expect(0);
        assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stdout);
        // The collection keeps the closure of the current generation alone.
        machine.ssh("nix-collect-garbage -d").expect(0);
        let kept = machine
            .ssh(&format!("nix-store -qR {profile}"))
            .expect(0)
            .stdout;
        assert_eq!(kept.lines().count(), host.corpus.paths.len());
        let dead = machine.ssh("nix-store --gc --print-dead").expect(0);
        assert_eq!(dead.stdout, "");
        machine.ssh(&format!("{jq} --version")).expect(0);
        // The closure returns to the real Nix, by each protocol.
        for scheme in ["ssh", "ssh-ng"] {
            let back = host.scratch.join(scheme);
            let (to, from) = (back.display(), format!("{scheme}://root@127.0.0.1"));
            machine
                .sh(&format!(
                    "nix copy --no-check-sigs --from {from} --to {to} {root}"
                ))
                .expect(0);
            host.check_store(&back);
        }
        // Without the profile, nothing stays.
        machine.ssh(&format!("rm {profile} {profile}-*")).expect(0);
        machine.ssh("nix-store --gc").expect(0);
        assert_eq!(machine.ssh("nix-store --dump-db").expect(0).stdout, "");
    });
}
