//! Pins of binary caches: `floe pin`, `floe pins`, `floe unpin`, and names that they give.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::pin::Pin;
use floe_format::{SecretKey, StorePath};
use floe_testkit::{nginx, s3_servers};

use super::*;
use crate::server_process::ServerProcess;

impl Packages {
    /// A source of names without names, so that names are enabled.
    pub(super) fn no_other_names(&self) -> String {
        let file = self.scratch.join("empty.toml");
        fs::write(&file, "").unwrap();
        format!("file:{}", file.display())
    }

    pub(super) fn pin(&self, name: &str, path: &str) -> Command {
        let mut command = floe([
            "pin",
            name,
            path,
            "--to",
            &self.cache_url(),
            "--secret-key-file",
        ]);
        command.arg(self.scratch.join("key"));
        self.set_home(&mut command);
        command
    }

    fn object(&self, name: &str) -> PathBuf {
        self.cache.join("pins").join(name)
    }

    /// Installs a pinned name into a root directory of its own.
    fn install_pin(&self, name: &str, more: &[&str]) -> CommandOutput {
        let (url, names) = (self.cache_url(), self.no_other_names());
        let root = self.scratch.join("root").display().to_string();
        let words = ["install", name, "--json", "--from", &url, "--root", &root];
        run(self.floe(&words, &names).args(more))
    }

    /// Writes a pin of another time, signed by the key of the cache.
    fn write_pin(&self, change: impl Fn(&mut Pin)) {
        let mut pin = Pin::parse(&fs::read(self.object("greet")).unwrap()).unwrap();
        change(&mut pin);
        pin.signatures = BTreeSet::new();
        let key = fs::read_to_string(self.scratch.join("key")).unwrap();
        pin.sign(&SecretKey::parse(key.trim()).unwrap());
        fs::write(self.object("greet"), pin.to_string()).unwrap();
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn pin_moves_and_an_older_one_is_refused() {
    let Some(packages) = packages() else { return };
    packages
        .install_pin("greet", &[])
        .expect(1)
        .stderr_contains("have no package of this name");
    run(&mut packages.pin("greet", &packages.old))
        .expect(0)
        .stderr_contains("signed by names-1");
    let installed = packages.install_pin("greet", &[]).expect(0);
    let object = installed.json();
    assert_eq!(object["paths"], json!([packages.old]));
    assert!(object["names"][0]["serial"].as_u64().unwrap() >= (now() - 100) * 1000);
    installed.stderr_contains(", pinned ");
    let replayed = fs::read(packages.object("greet")).unwrap();

    run(&mut packages.pin("greet", &packages.new)).expect(0);
    let moved = packages.install_pin("greet", &[]).expect(0);
    assert_eq!(moved.json()["paths"], json!([packages.new]));
    let root = packages.scratch.join("root");
    let verified = packages.nix.store(&root, ["--verify", "--check-contents"]);
    assert!(!verified.contains("error"), "{verified}");

    // A cache that shows the first pin again hides the update.
    let current = fs::read(packages.object("greet")).unwrap();
    fs::write(packages.object("greet"), &replayed).unwrap();
    let refused = packages.install_pin("greet", &[]).expect(3);
    refused.stderr_contains("--allow-downgrade");
    let allowed = packages
        .install_pin("greet", &["--allow-downgrade"])
        .expect(0);
    assert_eq!(allowed.json()["paths"], json!([packages.old]));
    fs::write(packages.object("greet"), &current).unwrap();
    packages.install_pin("greet", &[]).expect(0);

    // A deleted pin is not found. The next one has a greater serial number all the same.
    run(&mut packages.set_home_of(floe(["unpin", "greet", "--to", &packages.cache_url()])))
        .expect(0);
    packages
        .install_pin("greet", &[])
        .expect(3)
        .stderr_contains("this machine has seen one");
    let pins = packages.scratch.join("home/state/floe/pins.json");
    let seen = fs::read(&pins).unwrap();
    fs::write(&pins, "{").unwrap();
    packages
        .install_pin("greet", &[])
        .expect(3)
        .stderr_contains("an old pin would be accepted");
    // A path needs no pin.
    packages.install_pin(&packages.new, &[]).expect(0);
    fs::write(&pins, seen).unwrap();
    let again = floe(["unpin", "greet", "--to", &packages.cache_url()]);
    run(&mut packages.set_home_of(again))
        .expect(1)
        .stderr_contains("no such pin");
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let installed = packages.install_pin("greet", &[]).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
}

#[test]
fn wrong_pins_are_refused() {
    let Some(packages) = packages() else { return };
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    packages.install_pin("greet", &[]).expect(0);
    let good = fs::read_to_string(packages.object("greet")).unwrap();
    let refused = |text: &str, name: &str, code: i32, reason: &str| {
        fs::write(packages.object(name), text).unwrap();
        packages
            .install_pin(name, &[])
            .expect(code)
            .stderr_contains(reason);
    };
    refused(&good, "other", 3, "its pin is for the name greet");
    let tampered = good.replace(&packages.old, &packages.new);
    assert_ne!(tampered, good);
    refused(&tampered, "greet", 3, "no trusted key has signed its pin");
    let unsigned: String = good
        .lines()
        .filter(|line| !line.starts_with("Sig"))
        .map(|line| format!("{line}\n"))
        .collect();
    refused(&unsigned, "greet", 3, "its pin has no signature");
    for (text, reason) in [
        ("<html>login</html>".to_owned(), "its first line is not"),
        (good.repeat(1000), "it has more than 16384 bytes"),
        (
            good.replace("Serial: ", "Serial: -"),
            "the field Serial has a wrong value",
        ),
    ] {
        refused(&text, "greet", 1, reason);
    }
    fs::write(packages.object("greet"), &good).unwrap();
    let other = StorePath::parse(packages.new.rsplit('/').next().unwrap()).unwrap();
    packages.write_pin(|pin| pin.path = other.clone());
    packages
        .install_pin("greet", &[])
        .expect(3)
        .stderr_contains("two pins with the serial number");
    packages.write_pin(|pin| (pin.serial, pin.time) = (pin.serial + 1, now() + 7200));
    packages
        .install_pin("greet", &[])
        .expect(3)
        .stderr_contains("in the future");
    packages.write_pin(|pin| pin.cache_id = "f".repeat(32));
    packages
        .install_pin("greet", &[])
        .expect(3)
        .stderr_contains("this cache was");
    fs::write(packages.object("greet"), &good).unwrap();
    packages.write_pin(|pin| (pin.serial, pin.time) = (pin.serial + 1, now() - 7200));
    let old = packages
        .install_pin("greet", &["--option", "max-pin-age", "3600"])
        .expect(3);
    old.stderr_contains("its pin is 2 hours old, and the setting max-pin-age allows 1 hour");
    packages
        .install_pin("greet", &["--option", "max-pin-age", "86400"])
        .expect(0);
    // A signed pin does not replace the checks of the path.
    let nars = fs::read_dir(packages.cache.join("nar")).unwrap();
    for nar in nars {
        let nar = nar.unwrap().path();
        let mut body = fs::read(&nar).unwrap();
        let middle = body.len() / 2;
        body[middle] ^= 1;
        fs::write(&nar, body).unwrap();
    }
    let url = packages.cache_url();
    let root = packages.scratch.join("second").display().to_string();
    let words = ["install", "greet", "--from", &url, "--root", &root];
    run(&mut packages.floe(&words, &packages.no_other_names())).expect(3);
}

#[test]
fn names_and_paths_of_pins_are_checked() {
    let Some(packages) = packages() else { return };
    for name in [
        "../x",
        "a/b",
        "-a",
        "a b",
        "web.dev",
        "nixpkgs#x",
        &"0".repeat(32),
        "",
        "ü",
        &"x".repeat(200),
    ] {
        let mut pin = floe(["pin", "--to", &packages.cache_url(), "--secret-key-file"]);
        pin.arg(packages.scratch.join("key"))
            .args(["--", name, &packages.old]);
        run(&mut packages.set_home_of(pin)).expect(2);
    }
    assert!(!packages.cache.join("pins").exists());
    let absent = format!("/nix/store/{}-absent", "0".repeat(32));
    run(&mut packages.pin("greet", &absent))
        .expect(1)
        .stderr_contains("push it first");
    run(packages.pin("greet", &absent).arg("--no-check-path")).expect(0);
    let without_key = floe(["pin", "greet", &packages.old, "--to", &packages.cache_url()]);
    run(&mut packages.set_home_of(without_key))
        .expect(2)
        .stderr_contains("no key is given");
    // A copy of another cache has its identifier. The pin would count there, too.
    let info = packages.cache.join("pins-info");
    let own = fs::read(&info).unwrap();
    fs::write(&info, format!("CacheId: {}\n", "e".repeat(32))).unwrap();
    run(&mut packages.pin("greet", &packages.old))
        .expect(1)
        .stderr_contains("it may be a copy of another cache");
    run(packages
        .pin("greet", &packages.old)
        .arg("--allow-downgrade"))
    .expect(0);
    fs::write(&info, own).unwrap();
    run(packages
        .pin("greet", &packages.old)
        .arg("--allow-downgrade"))
    .expect(0);
    let greatest = |pin: &mut Pin| pin.serial = u64::MAX;
    packages.write_pin(greatest);
    run(&mut packages.pin("greet", &packages.old))
        .expect(1)
        .stderr_contains("the greatest serial number");
    // The serial number of another name does not count.
    packages.write_pin(|pin| (pin.name, pin.serial) = ("other".into(), u64::MAX));
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let local = floe(["pins", "--from", "/nonexistent"]);
    run(&mut packages.set_home_of(local))
        .expect(2)
        .stderr_contains("it is not a binary cache");
    // A machine without a place for its state is told.
    run(&mut packages.pin("greet", &packages.old)).expect(0);
    let url = packages.cache_url();
    let root = packages.scratch.join("root").display().to_string();
    let words = ["install", "greet", "--from", &url, "--root", &root];
    let mut install = packages.floe(&words, &packages.no_other_names());
    install.env("XDG_STATE_HOME", "/dev/null/state");
    run(&mut install)
        .expect(0)
        .stderr_contains("cannot remember the serial numbers of pins");
}

#[test]
fn pins_are_served_and_listed() {
    let Some(packages) = packages() else { return };
    let pin = |name: &str, path: &str| run(&mut packages.pin(name, path)).expect(0);
    pin("greet", &packages.old);
    pin("other.name", &packages.new);
    let root = packages.scratch.join("origin");
    let key = packages.scratch.join("key");
    let [pins, key] = [&packages.cache, &key].map(|path| path.to_str().unwrap());
    let server = ServerProcess::start(&root, &["--pins", pins, "--secret-key-file", key]);
    let names = packages.no_other_names();
    let pins = |from: &str, more: &[&str]| {
        let mut command = floe(["pins", "--from", from]);
        command.args(more);
        run(&mut packages.set_home_of(command))
    };
    let listed = pins(&server.url(), &[]).expect(0).stdout;
    assert_eq!(listed, pins(&packages.cache_url(), &[]).expect(0).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(
        lines[0].starts_with(&format!("greet       {}", packages.old)),
        "{listed}"
    );
    assert!(lines[1].ends_with("signed by names-1"), "{listed}");
    let object = pins(&server.url(), &["--json"]).expect(0).json();
    assert_eq!(object["pins"][1]["path"], json!(packages.new));
    pins(&server.url(), &["absent"])
        .expect(1)
        .stderr_contains("no such pin");

    let store = packages.scratch.join("served").display().to_string();
    let url = server.url();
    let words = [
        "install", "greet", "--json", "--from", &url, "--root", &store,
    ];
    let installed = run(&mut packages.floe(&words, &names)).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
    // A present path of a pin needs no server, and a follower that has no reply says so.
    let profile = packages.scratch.join("profile").display().to_string();
    let follow = || {
        let words = ["install", "--follow", "greet", "--from", &url];
        let mut command = packages.set_home_of(floe(words));
        command.args(["--root", &store, "--profile", &profile]);
        run(command.args(["--option", "outage-timeout", "0"]))
    };
    follow().expect(0);
    drop(server);
    follow().expect(4);
    let missing = packages.scratch.join("absent").display().to_string();
    let root = packages.scratch.join("origin").display().to_string();
    let mut serve = floe(["serve", "--root", &root, "--pins", &missing]);
    run(&mut serve)
        .expect(1)
        .stderr_contains("cannot serve the pins of the cache in");
    let words = ["run", "greet", "--from", &url, "--root", &store];
    let mut program = packages.floe(&words, &names);
    assert_eq!(
        run(program.args(["--", "hello"])).expect(0).stdout,
        "hello\n"
    );
    // nginx has no list of names, but pins.
    let Some(nginx) = nginx(&packages.cache, "") else {
        return;
    };
    pins(&nginx.url(), &[])
        .expect(1)
        .stderr_contains("give their names");
    assert_eq!(
        pins(&nginx.url(), &["greet"])
            .expect(0)
            .stdout
            .lines()
            .count(),
        1
    );
    let url = nginx.url();
    let words = ["install", "other.name", "--from", &url, "--root", &store];
    run(&mut packages.floe(&words, &names)).expect(0);
    let found = run(&mut packages.floe(
        &["search", "other"],
        &format!("pins+{}", packages.cache_url()),
    ));
    assert!(found.expect(0).stdout.starts_with("other.name  2.0"));
}

#[test]
fn concurrent_writers_lose_no_serial_number() {
    let Some(packages) = packages() else { return };
    let key = packages.scratch.join("key").display().to_string();
    let mut caches = vec![(packages.cache_url(), Vec::new())];
    let servers = s3_servers("pins");
    for server in &servers {
        caches.push((server.uri("pins"), server.variables().to_vec()));
    }
    for (url, variables) in caches {
        let command = |words: &[&str]| {
            let mut command = floe(words);
            command.envs(variables.iter().copied());
            packages.set_home_of(command)
        };
        let root = packages.scratch.join("origin").display().to_string();
        run(&mut command(&[
            "push",
            &packages.old,
            &packages.new,
            "--root",
            &root,
            "--to",
            &url,
        ]))
        .expect(0);
        let pin = |path: &str| {
            command(&[
                "pin",
                "greet",
                path,
                "--to",
                &url,
                "--json",
                "--secret-key-file",
                &key,
            ])
        };
        let pinned: Vec<(u64, String)> = std::thread::scope(|scope| {
            let writers: Vec<_> = [&packages.old, &packages.new, &packages.old, &packages.new]
                .into_iter()
                .map(|path| {
                    let pin = &pin;
                    scope.spawn(move || {
                        let pins = (0..3).map(|_| run(&mut pin(path)).expect(0).json());
                        let facts = pins.map(|pin| (pin["serial"].as_u64().unwrap(), path.clone()));
                        facts.collect::<Vec<_>>()
                    })
                })
                .collect();
            let pinned = writers.into_iter().flat_map(|it| it.join().unwrap());
            pinned.collect()
        });
        assert_eq!(pinned.len(), 12);
        // Two writers of one path may write the same pin.
        let distinct: BTreeSet<&(u64, String)> = pinned.iter().collect();
        let serials: BTreeSet<u64> = distinct.iter().map(|(serial, _)| *serial).collect();
        assert_eq!(serials.len(), distinct.len(), "{url}: {pinned:?}");
        assert!(serials.len() >= 6, "{url}: {pinned:?}");
        let shown = run(&mut command(&["pins", "--from", &url, "--json"]))
            .expect(0)
            .json();
        assert_eq!(shown["pins"][0]["serial"].as_u64(), serials.last().copied());
        run(&mut command(&["unpin", "greet", "--to", &url])).expect(0);
        run(&mut command(&["pins", "--from", &url]))
            .expect(0)
            .stderr_contains("no pins");
    }
}
