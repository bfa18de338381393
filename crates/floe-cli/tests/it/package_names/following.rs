//! `floe install --follow`: profiles that follow a pin.

use std::process::Child;

use floe_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Follows the pin `greet` into a profile of the root directory.
fn follow(packages: &Packages, more: &[&str]) -> Command {
    let url = packages.cache_url();
    let root = packages.scratch.join("root").display().to_string();
    let profile = packages.profile().display().to_string();
    let words = [
        "install", "--follow", "greet", "--from", &url, "--root", &root,
    ];
    let mut command = packages.set_home_of(floe(words));
    command.args(["--profile", &profile]).args(more);
    command
}

impl Packages {
    fn profile(&self) -> PathBuf {
        self.scratch.join("root/nix/var/nix/profiles/greet")
    }

    /// The target of the current generation.
    fn current(&self) -> String {
        let generation = fs::read_link(self.profile()).unwrap();
        let link = self.profile().with_file_name(generation);
        fs::read_link(link).unwrap().display().to_string()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }
}

#[test]
fn profile_follows_the_pin_and_runs_a_command() {
    let Some(packages) = packages() else { return };
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let log = "echo $FLOE_NAME $FLOE_PATH $FLOE_ROLLBACK >> log";
    let once = || run(&mut follow(&packages, &["--run", log]));
    once()
        .expect(0)
        .stderr_contains("the pin greet with the serial number");
    assert_eq!(packages.current(), packages.old);
    once().expect(0);
    assert_eq!(
        packages.log(),
        format!("greet {}\n", packages.old),
        "nothing has moved"
    );
    run(&mut packages.pin("greet", &packages.new)).expect(0);
    once().expect(0);
    assert_eq!(packages.current(), packages.new);
    let root = packages.scratch.join("root");
    let nix_env = packages
        .nix
        .command("nix-env", ["--list-generations", "-p"])
        .arg(packages.profile())
        .output();
    assert_eq!(
        String::from_utf8(nix_env.unwrap().stdout)
            .unwrap()
            .lines()
            .count(),
        2
    );
    let verified = packages.nix.store(&root, ["--verify", "--check-contents"]);
    assert!(!verified.contains("error"), "{verified}");

    // A command that fails for the old version leaves the new one.
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let fails = format!("{log}; [ $FLOE_PATH != {} ]", packages.old);
    let failed = run(&mut follow(&packages, &["--run", &fails])).expect(1);
    failed
        .stderr_contains(&format!("switched back to generation 2, {}", packages.new))
        .stderr_contains(&format!("cannot switch to {}", packages.old));
    assert_eq!(packages.current(), packages.new);
    let lines = packages.log();
    let last: Vec<&str> = lines.lines().rev().take(2).collect();
    assert_eq!(
        last,
        [
            format!("greet {} 1", packages.new),
            format!("greet {}", packages.old)
        ]
    );
    // The next attempt ends well.
    once().expect(0);
    assert_eq!(packages.current(), packages.old);
}

#[test]
fn follower_runs_until_a_signal_and_begins_again_after_a_kill() {
    let Some(packages) = packages() else { return };
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let mut command = follow(
        &packages,
        &["--every", "1s", "--run", "echo $FLOE_PATH >> log"],
    );
    let mut follower = command.spawn().unwrap();
    wait_until("the first switch", || {
        packages.log().contains(&packages.old)
    });
    // A second follower of this profile is refused.
    run(&mut follow(&packages, &[]))
        .expect(1)
        .stderr_contains("another floe does so already");
    run(&mut packages.pin("greet", &packages.new)).expect(0);
    wait_until("the second switch", || {
        packages.log().contains(&packages.new)
    });
    terminate(&mut follower, Signal::TERM);
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    assert_eq!(packages.log().lines().count(), 2);

    // The follower is killed while its command runs. The next one runs the command again, although
    // the profile has the path.
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let waits = "echo began >> log; sleep 20";
    let mut killed = follow(&packages, &["--run", waits]).spawn().unwrap();
    wait_until("the command", || packages.log().contains("began"));
    assert_eq!(packages.current(), packages.old);
    terminate(&mut killed, Signal::KILL);
    killed.wait().unwrap();
    run(&mut follow(&packages, &["--run", "echo ended >> log"])).expect(0);
    assert!(
        packages.log().ends_with("began\nended\n"),
        "{}",
        packages.log()
    );

    // If the command fails after a kill, the generation before the kill comes back.
    run(&mut packages.pin("greet", &packages.new)).expect(0);
    let waits = "echo again >> log; sleep 20";
    let mut killed = follow(&packages, &["--run", waits]).spawn().unwrap();
    wait_until("the command", || packages.log().contains("again"));
    assert_eq!(packages.current(), packages.new);
    terminate(&mut killed, Signal::KILL);
    killed.wait().unwrap();
    let fails = format!("[ $FLOE_PATH != {} ]", packages.new);
    run(&mut follow(&packages, &["--run", &fails])).expect(1);
    assert_eq!(packages.current(), packages.old);
}

#[test]
fn follower_waits_for_a_cache_that_is_away() {
    let Some(packages) = packages() else { return };
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let server = FaultServer::start(&packages.cache);
    let url = server.url();
    let root = packages.scratch.join("root").display().to_string();
    let profile = packages.profile().display().to_string();
    let words = [
        "install",
        "--follow",
        "greet",
        "--from",
        &url,
        "--root",
        &root,
        "--profile",
        &profile,
    ];
    let follow = || packages.set_home_of(floe(words));
    run(&mut follow()).expect(0);
    // A damaged NAR changes nothing.
    run(&mut packages.pin("greet", &packages.new)).expect(0);
    server.fail(".nar.xz", Fault::Status(404));
    server.fail(".nar.zst", Fault::Status(404));
    run(&mut follow())
        .expect(1)
        .stderr_contains("cannot install ");
    assert!(server.fault_count() > 0);
    assert_eq!(packages.current(), packages.old);
    server.fail("pins/greet", Fault::Status(500));
    run(&mut follow())
        .expect(4)
        .stderr_contains("cannot find greet: ");
    assert_eq!(packages.current(), packages.old);
    server.clear_faults();
    run(&mut follow()).expect(0);
    assert_eq!(packages.current(), packages.new);
    for (words, reason) in [
        (
            vec!["install", "--follow", "greet", "--profile", &profile],
            "--from",
        ),
        (
            vec!["install", "--follow", "greet", "--from", &url],
            "--profile",
        ),
        (vec!["install", "--every", "1s", "x"], "--follow"),
        (
            vec![
                "install",
                "--follow",
                "greet",
                "x",
                "--from",
                &url,
                "--profile",
                &profile,
            ],
            "--follow",
        ),
    ] {
        run(&mut packages.set_home_of(floe(words)))
            .expect(2)
            .stderr_contains(reason);
    }
}

fn terminate(process: &mut Child, signal: Signal) {
    let pid = Pid::from_raw(process.id().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
