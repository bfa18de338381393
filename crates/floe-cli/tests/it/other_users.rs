//! Another user of the machine exchanges directories, links and locks while root changes profiles
//! and roots. Files outside of the user's own directories must never change.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    CommandOutput, Corpus, Exchanges, NOBODY_UID, Scratch, corpus, ran_in_pid_namespace, run,
    scratch, skip,
};

use crate::support::floe;

/// A store of root, a directory of root, and the home directory of another user.
struct Machine {
    corpus: Corpus,
    _scratch: Scratch,
    root: PathBuf,
    home: PathBuf,
    /// The directory of root. Its file `passwd` must stay as it is.
    etc: PathBuf,
}

const PASSWD: &str = "root:x:0:0";

impl Machine {
    /// Returns `None` without root, or without a closure.
    fn new() -> Option<Machine> {
        let corpus = corpus("jq")?;
        if !rustix::process::geteuid().is_root() {
            skip("second user", "only root may act as another user");
            return None;
        }
        let scratch = scratch();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let machine = Machine {
            root: scratch.join("root"),
            home: scratch.join("home"),
            etc: scratch.join("etc"),
            corpus,
            _scratch: scratch,
        };
        fs::create_dir(&machine.etc).unwrap();
        fs::write(machine.etc.join("passwd"), PASSWD).unwrap();
        machine.own_directory(&machine.home);
        machine.floe(&["install", &machine.corpus.root]).expect(0);
        Some(machine)
    }

    fn floe(&self, arguments: &[&str]) -> CommandOutput {
        run(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = floe([arguments[0]]);
        if arguments[0] == "install" {
            command.args(["--from", &self.corpus.file_url("zstd")]);
            command.args(["--trusted-public-keys", &self.corpus.key]);
        }
        match arguments[0] {
            "profile" => command
                .args([arguments[1], "--root"])
                .arg(&self.root)
                .args(&arguments[2..]),
            _ => command.arg("--root").arg(&self.root).args(&arguments[1..]),
        };
        command.env("HOME", &self.etc);
        command
    }

    fn state(&self, name: &str) -> PathBuf {
        self.root.join("nix/var/nix").join(name)
    }

    /// Creates a directory of the other user.
    fn own_directory(&self, place: &Path) {
        fs::create_dir(place).unwrap();
        lchown(place, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    }

    /// Creates a link of the other user.
    fn own_link(&self, target: impl AsRef<Path>, place: &Path) {
        symlink(target, place).unwrap();
        lchown(place, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    }

    /// Makes a profile of the other user with some generations that are four months old.
    fn own_profile(&self, directory: &Path, generations: u32) {
        for number in 1..=generations {
            let link = directory.join(format!("system-{number}-link"));
            self.own_link(&self.corpus.root, &link);
            age(&link, 120);
        }
        let current = format!("system-{generations}-link");
        self.own_link(current, &directory.join("system"));
    }

    /// Makes a profile of root whose generations are two months old.
    fn system_profile(&self) -> Vec<PathBuf> {
        let place = self.state("profiles/system");
        let place = place.to_str().unwrap();
        let (current, older) = (&self.corpus.root, &self.corpus.paths[..3]);
        let older = older.iter().filter(|path| *path != current);
        let paths: Vec<&String> = older.chain([current]).collect();
        let links = paths.iter().enumerate().map(|(index, path)| {
            self.floe(&["install", "--profile", place, path]).expect(0);
            let link = PathBuf::from(format!("{place}-{}-link", index + 1));
            age(&link, 60);
            link
        });
        links.collect()
    }

    /// Asserts that no file of root has changed, and that none was added.
    fn assert_root_unchanged(&self) {
        let names = fs::read_dir(&self.etc).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["passwd"]);
        let passwd = fs::read_to_string(self.etc.join("passwd")).unwrap();
        assert_eq!(passwd, PASSWD);
    }
}

fn age(link: &Path, days: u32) {
    let mut touch = Command::new("touch");
    let time = format!("{days} days ago");
    run(touch.args(["-h", "-d", &time]).arg(link)).expect(0);
}

/// The number of attempts of each race.
const ROUNDS: u64 = 200;

#[test]
fn collection_keeps_system_beside_exchanged_directories() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(machine) = Machine::new() else {
        return;
    };
    let system = machine.system_profile();
    let user = machine.state("profiles/per-user/user");
    machine.own_directory(&user);
    machine.own_directory(&user.join("d"));
    machine.own_profile(&user.join("d"), 9);
    // The link leads to the directory of the system's profile, which has the same name.
    machine.own_link(machine.state("profiles"), &user.join("other"));
    let exchanges = Exchanges::start(user.join("d"), user.join("other"));
    for _ in 0..ROUNDS {
        machine
            .floe(&["gc", "--delete-older-than", "90d"])
            .expect(0);
        assert!(system.iter().all(|link| fs::read_link(link).is_ok()));
    }
    assert!(exchanges.count() > ROUNDS, "{}", exchanges.count());
    drop(exchanges);
    let current = machine.state("profiles/system");
    assert!(fs::read_link(current).is_ok());
    machine.assert_root_unchanged();
}

#[test]
fn profiles_of_other_users_change_only_by_name() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(machine) = Machine::new() else {
        return;
    };
    let system = machine.system_profile();
    let user = machine.state("profiles/per-user/user");
    machine.own_directory(&user);
    machine.own_profile(&user, 3);
    let links = || fs::read_dir(&user).unwrap().count();
    for arguments in [
        &["gc", "--delete-older-than", "30d", "--dry-run"][..],
        &["gc", "--delete-older-than", "30d"],
    ] {
        let ran = machine.floe(arguments).expect(0);
        ran.stderr_contains("user/system: it belongs to another user; name a profile");
    }
    assert_eq!(links(), 4);
    // The old generations of root are deleted.
    assert!(fs::read_link(&system[0]).is_err());
    let profile = user.join("system");
    let profile = profile.to_str().unwrap();
    machine
        .floe(&["profile", "wipe-history", "--profile", profile])
        .expect(0);
    assert_eq!(links(), 2);
    // A link of the user on the way could be redirected.
    machine.own_link(&user, &machine.home.join("profiles"));
    let behind_link = machine.home.join("profiles/system");
    machine
        .floe(&[
            "profile",
            "list",
            "--profile",
            behind_link.to_str().unwrap(),
        ])
        .expect(1)
        .stderr_contains("profiles on the way is a symbolic link of another user (uid 65534)");
}

#[test]
fn planted_lock_of_a_profile_is_not_followed() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(machine) = Machine::new() else {
        return;
    };
    let user = machine.state("profiles/per-user/user");
    machine.own_directory(&user);
    machine.own_profile(&user, 3);
    let profile = user.join("system");
    let wipe = |arguments: &[&str]| {
        let profile = [
            "profile",
            "wipe-history",
            "--profile",
            profile.to_str().unwrap(),
        ];
        machine.floe(&[&profile[..], arguments].concat())
    };
    let lock = user.join("system.lock");
    for target in ["nologin", "passwd"] {
        machine.own_link(machine.etc.join(target), &lock);
        wipe(&["--dry-run"]).expect(0);
        wipe(&[])
            .expect(1)
            .stderr_contains("the file is a symbolic link, which floe does not follow");
        machine.floe(&["gc", "--keep-generations", "1"]).expect(0);
        machine.assert_root_unchanged();
        fs::remove_file(&lock).unwrap();
    }
    // A directory in the place of the lock of root's own profile does not stop a collection.
    machine.system_profile();
    fs::create_dir(machine.state("profiles/system.lock")).unwrap();
    machine
        .floe(&["gc", "--keep-generations", "1"])
        .expect(0)
        .stderr_contains("skipping the profile");
    // A lock that changes between a file and a link.
    fs::write(&lock, "").unwrap();
    lchown(&lock, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    let other = user.join("other");
    machine.own_link(machine.etc.join("passwd"), &other);
    let exchanges = Exchanges::start(lock, other);
    for _ in 0..ROUNDS {
        wipe(&["--older-than", "90d"]);
        machine.assert_root_unchanged();
    }
    assert!(exchanges.count() > ROUNDS, "{}", exchanges.count());
}

#[test]
fn uninstall_removes_no_file_behind_exchanged_directory() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(machine) = Machine::new() else {
        return;
    };
    let directory = machine.home.join("d");
    machine.own_directory(&directory);
    let link = directory.join("passwd");
    machine.own_link(&machine.corpus.root, &link);
    machine.own_link(&machine.etc, &machine.home.join("other"));
    let auto = machine.state("gcroots/auto");
    fs::create_dir_all(&auto).unwrap();
    symlink(&link, auto.join("registered")).unwrap();
    // A name means links of root only.
    let name = Path::new(&machine.corpus.root).file_name().unwrap();
    machine
        .floe(&["uninstall", name.to_str().unwrap()])
        .expect(1)
        .stderr_contains(
            "only links of other users, or on file systems that are not mounted, keep it",
        );
    let exchanges = Exchanges::start(directory, machine.home.join("other"));
    let mut removed = 0;
    for _ in 0..ROUNDS {
        let ran = machine.floe(&["uninstall", link.to_str().unwrap()]);
        machine.assert_root_unchanged();
        if ran.code == Some(0) {
            removed += 1;
            // The link is in one of both places.
            for directory in ["d", "other"] {
                let directory = machine.home.join(directory);
                if fs::symlink_metadata(&directory).unwrap().is_dir() {
                    let link = directory.join("passwd");
                    let _ = symlink(&machine.corpus.root, &link);
                }
            }
        }
    }
    assert!(exchanges.count() > ROUNDS && removed > 0, "{removed}");
}

#[test]
fn new_roots_are_not_made_behind_exchanged_directory() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let directory = machine.home.join("d");
    machine.own_directory(&directory);
    machine.own_link(&machine.etc, &machine.home.join("other"));
    let (link, profile) = (directory.join("result"), directory.join("profile"));
    let exchanges = Exchanges::start(directory, machine.home.join("other"));
    let mut made = 0;
    for _ in 0..ROUNDS / 2 {
        for arguments in [
            ["-o", link.to_str().unwrap()],
            ["--profile", profile.to_str().unwrap()],
        ] {
            let mut install = machine.command(&["install", &machine.corpus.root]);
            made += u32::from(run(install.args(arguments)).code == Some(0));
            machine.assert_root_unchanged();
        }
    }
    assert!(exchanges.count() > ROUNDS && made > 0, "{made}");
}

/// A store that another user owns: root trusts its contents, and does not follow its links.
#[test]
fn planted_files_of_a_store_are_not_followed() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(machine) = Machine::new() else {
        return;
    };
    let own = Command::new("chown")
        .args(["-R", "-h", &NOBODY_UID.to_string()])
        .arg(&machine.root)
        .status();
    assert!(own.unwrap().success());
    for planted in ["gc.lock", "db/big-lock", "db/reserved"] {
        let place = machine.state(planted);
        let _ = fs::remove_file(&place);
        machine.own_link(machine.etc.join("cron-job"), &place);
        for arguments in [
            &["gc"][..],
            &["optimise"],
            &["install", &machine.corpus.root],
        ] {
            machine.floe(arguments);
            machine.assert_root_unchanged();
        }
        fs::remove_file(&place).unwrap_or_default();
    }
    // The names of temporary roots have the number of the process, which a shell knows before.
    let roots = machine.state("temproots");
    let script = "for kind in run floe; do for number in 0 1 2; do \
                  ln -s \"$1/cron-job\" \"$2/$$-$kind-$number\"; done; done; shift 2; exec \"$@\"";
    for arguments in [
        &["run", &machine.corpus.root, "--", "--version"][..],
        &["optimise"],
        &["install", &machine.corpus.root],
    ] {
        let floe = machine.command(arguments);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, "sh"])
            .arg(&machine.etc)
            .arg(&roots);
        shell.arg(floe.get_program()).args(floe.get_args());
        shell.envs(floe.get_envs().filter_map(|(name, it)| Some((name, it?))));
        let ran = run(&mut shell);
        assert!(
            ran.stderr.is_empty() || ran.code.is_some(),
            "{}",
            ran.stderr
        );
        machine.assert_root_unchanged();
    }
    let planted = fs::read_dir(&roots).unwrap().count();
    assert!(planted >= 18, "{planted} planted links");
}
