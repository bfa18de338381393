//! An install with a quarter of a CPU core, as on the smallest rented servers. Runs only with
//! `cargo xtask test --full`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{corpus, nginx, nixes, run, scratch, skip, tree};

use crate::support::floe;

/// A control group with a CPU quota of a quarter of a core.
struct QuarterCore(PathBuf);

impl QuarterCore {
    /// Creates the control group. If that is impossible, records a skip and returns `None`.
    fn new() -> Option<QuarterCore> {
        let name = format!("floe-test-{}", std::process::id());
        let (old, new) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        // cgroup v1 and v2: 25 ms of every 100 ms.
        let (group, file, text) = if old.join("cpu.cfs_quota_us").exists() {
            (old.join(name), "cpu.cfs_quota_us", "25000")
        } else {
            (new.join(name), "cpu.max", "25000 100000")
        };
        let made = fs::create_dir(&group).and_then(|()| fs::write(group.join(file), text));
        if let Err(error) = made {
            skip("control groups", &format!("{}: {error}", group.display()));
            return None;
        }
        Some(QuarterCore(group))
    }

    /// Returns how many periods the group was throttled in.
    fn throttled(&self) -> u64 {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix("nr_throttled "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for QuarterCore {
    fn drop(&mut self) {
        let _: std::io::Result<()> = fs::remove_dir(&self.0);
    }
}

#[test]
fn install_with_quarter_of_a_core_succeeds() {
    if std::env::var_os("FLOE_TEST_FULL").is_none() {
        return;
    }
    let Some(corpus) = corpus("firefox-esr") else {
        return;
    };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let Some(quarter) = QuarterCore::new() else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    let from = format!("{}/cache-xz", server.url());
    let install = floe(["install", "--json", "--from", &from]);
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
        .arg(quarter.0.join("cgroup.procs"))
        .arg(install.get_program())
        .args(install.get_args())
        .envs(
            install
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .args(["--trusted-public-keys", &corpus.key, "--root"])
        .arg(&root)
        .arg(&corpus.root);
    let ran = run(&mut command).expect(0);
    assert_eq!(ran.json()["copied"], corpus.paths.len());
    assert!(
        quarter.throttled() > 20,
        "throttled only {} times",
        quarter.throttled()
    );
    assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}
