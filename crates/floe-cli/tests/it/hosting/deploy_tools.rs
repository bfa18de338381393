//! The words that deploy tools say to a machine, which has floe in the place of Nix: they copy a
//! closure with the real Nix, and switch a profile over SSH.

use floe_testkit::{CommandOutput, Sshd, sshd_with};

use super::*;

/// A machine behind sshd, whose path has floe under Nix's names before all else.
struct Machine {
    server: Sshd,
    profile: String,
}

impl Machine {
    fn start(host: &Host<'_>) -> Option<Machine> {
        let bin = host.scratch.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let mut link_names = floe(["link-names", bin.to_str().unwrap()]);
        link_names.env("PATH", "/nonexistent");
        run(link_names.env("HOME", host.scratch.path())).expect(0);
        let path = std::env::var("PATH").unwrap();
        let server = sshd_with(&format!(
            "SetEnv PATH={}:{path} NIX_REMOTE={} \"NIX_CONFIG=substituters = http://127.0.0.1:1\"",
            bin.display(),
            host.root().display()
        ));
        Some(Machine {
            server: server?,
            profile: format!("{}/nix/var/nix/profiles/system", host.root().display()),
        })
    }

    /// The options that tools put before a command, or into `NIX_SSHOPTS`.
    fn options(&self) -> String {
        format!("{} -p {}", self.server.options(), self.server.port())
    }

    /// Runs words on the machine, as tools do after `--`.
    fn ssh(&self, words: &str) -> CommandOutput {
        let mut command = Command::new("ssh");
        command.args(self.options().split(' '));
        run(command.args(["root@127.0.0.1", "--", words]))
    }

    /// Runs a program of the real Nix on this machine.
    fn nix(&self, host: &Host<'_>, tool: &str, words: &[&str]) -> CommandOutput {
        let mut command = host.nix.command(tool, words);
        command.env("NIX_SSHOPTS", self.options());
        command.env("NIX_REMOTE", host.corpus.store());
        command.env("NIX_CONFIG", "experimental-features = nix-command flakes");
        run(&mut command)
    }
}

fn with_machines(check: impl Fn(&Host<'_>, &Machine)) {
    with_hosts(|host| {
        let Some(machine) = Machine::start(host) else {
            return;
        };
        check(host, &machine);
    });
}

#[test]
fn machine_runs_floe_under_the_names() {
    with_machines(|_, machine| {
        for name in ["nix-store", "nix-daemon", "nix-env"] {
            let version = machine.ssh(&format!("{name} --version")).expect(0).stdout;
            assert!(version.starts_with("floe"), "{name}: {version}");
        }
    });
}

#[test]
fn names_are_linked_where_no_nix_is() {
    let scratch = scratch();
    let (bin, other) = (scratch.join("bin"), scratch.join("other"));
    let link_names = |path: &Path| {
        let mut command = floe(["link-names", bin.to_str().unwrap()]);
        run(command.env("PATH", path).env("HOME", scratch.path()))
    };
    std::fs::create_dir(&other).unwrap();
    let names = [
        "nix",
        "nix-collect-garbage",
        "nix-copy-closure",
        "nix-daemon",
        "nix-env",
        "nix-store",
    ];
    for _ in 0..2 {
        let linked = link_names(&other).expect(0).stdout;
        assert_eq!(linked.lines().count(), names.len(), "{linked}");
        for name in names {
            let version = run(Command::new(bin.join(name)).arg("--version")).expect(0);
            assert!(
                version.stdout.starts_with("floe"),
                "{name}: {}",
                version.stdout
            );
        }
    }
    // A file in its place, and a program of Nix elsewhere, are never replaced or hidden.
    std::fs::remove_file(bin.join("nix-env")).unwrap();
    std::fs::write(bin.join("nix-env"), "").unwrap();
    link_names(&other)
        .expect(1)
        .stderr_contains("another file is there");
    assert!(bin.join("nix-env").is_file());
    std::fs::remove_file(bin.join("nix-env")).unwrap();
    symlink("nix", bin.join("nix-env")).unwrap();
    std::fs::remove_file(bin.join("nix")).unwrap();
    std::fs::write(bin.join("nix"), "").unwrap();
    link_names(&other).expect(1);
    assert_eq!(
        std::fs::read_link(bin.join("nix-env")).unwrap(),
        Path::new("nix")
    );
    std::fs::remove_dir_all(&bin).unwrap();
    std::fs::write(other.join("nix-store"), "").unwrap();
    link_names(&other).expect(1).stderr_contains("is Nix");
    assert!(!bin.join("nix").exists());
}

/// nixos-rebuild, colmena and morph: `nix-copy-closure`, then `nix-env`.
#[test]
fn nix_copy_closure_and_nix_env_deploy_a_system() {
    with_machines(|host, machine| {
        let root = &*host.corpus.root;
        let address = "root@127.0.0.1";
        machine
            .nix(host, "nix-copy-closure", &["--to", address, root])
            .expect(0);
        host.check_store(&host.root());
        // colmena's flags, with everything present.
        let flags = ["--to", "--use-substitutes", "--gzip", address, root];
        machine.nix(host, "nix-copy-closure", &flags).expect(0);
        let profile = &machine.profile;
        let leaf = &host.corpus.paths[0];
        machine
            .ssh(&format!("nix-env -p {profile} --set {leaf}"))
            .expect(0);
        machine
            .ssh(&format!("nix-env --profile {profile} --set {root}"))
            .expect(0);
        let list = machine
            .ssh(&format!("nix-env -p {profile} --list-generations"))
            .expect(0);
        let lines: Vec<&str> = list.stdout.lines().collect();
        assert!(
            lines.len() == 2 && lines[1].ends_with("(current)"),
            "{lines:?}"
        );
        machine
            .ssh(&format!("nix-env --rollback -p {profile}"))
            .expect(0);
        let current = machine.ssh(&format!("readlink {profile}")).expect(0).stdout;
        assert_eq!(current.trim(), "system-1-link");
        // deploy-rs deletes the generation of a failed activation by its number.
        machine
            .ssh(&format!("nix-env -p {profile} --delete-generations 2"))
            .expect(0);
        machine.ssh("nix-collect-garbage -d").expect(0);
        let kept = host.nix.store(&host.root(), ["--gc", "--print-live"]);
        assert_eq!(kept.trim(), leaf.as_str());
        // The closure goes back to the real Nix.
        machine
            .nix(host, "nix-copy-closure", &["--to", address, root])
            .expect(0);
        let back = host.scratch.join("back");
        let words = [
            "copy",
            "--no-check-sigs",
            "--from",
            "ssh://root@127.0.0.1",
            "--to",
        ];
        let words = [&words[..], &[back.to_str().unwrap(), root]].concat();
        machine.nix(host, "nix", &words).expect(0);
        host.check_store(&back);
    });
}

/// deploy-rs, colmena and nix-fast-build: `nix copy` by both protocols.
#[test]
fn nix_copy_deploys_by_both_protocols() {
    with_machines(|host, machine| {
        let root = &*host.corpus.root;
        for words in [
            &[
                "--substitute-on-destination",
                "--no-check-sigs",
                "--to",
                "ssh://root@127.0.0.1",
            ][..],
            &[
                "--no-check-sigs",
                "--to",
                "ssh-ng://root@127.0.0.1?compress=true",
            ],
        ] {
            let words = [&["copy"], words, &[root]].concat();
            machine.nix(host, "nix", &words).expect(0);
            host.check_store(&host.root());
            floe_store::tree::remove_tree(&host.root()).unwrap();
        }
        // nixos-anywhere names the store of the new system.
        let place = host.scratch.join("mnt");
        let store = format!(
            "local%3Froot={}",
            place.display().to_string().replace('/', "%2F")
        );
        let uri = format!("ssh://root@127.0.0.1?remote-store={store}&compress=true");
        machine
            .nix(
                host,
                "nix",
                &["copy", "--no-check-sigs", "--to", &uri, root],
            )
            .expect(0);
        host.check_store(&place);
    });
}
