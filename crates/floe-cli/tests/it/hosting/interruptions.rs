//! Connections that break, hosts that are killed, and full disks: nothing is registered in part,
//! and the next copy completes the closure.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use floe_store::{StoreError, StoreLayout, StoreReader};
use floe_testkit::wait_until;
use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::support::floe;
use crate::tmpfs_mount::mount;

/// The protocols with the programs and the words of their hosts.
const HOSTS: [(&str, &str, &[&str]); 2] = [
    ("ssh-ng", "nix-daemon", &["--stdio"]),
    ("ssh", "nix-store", &["--serve", "--write"]),
];

/// Returns the bytes that a real client sends to a host that has nothing.
fn recorded(host: &Host<'_>, scheme: &str, program: &str) -> Vec<u8> {
    let record = host.scratch.join(&format!("record-{program}"));
    let line = format!(
        "tee {} | {} \"$@\"",
        record.display(),
        host.program(program).display()
    );
    let recorder = script(host, &format!("recorder-{program}"), &line);
    let uri = format!(
        "{scheme}://localhost?remote-program={}&remote-store={}",
        recorder.display(),
        host.root().display()
    );
    let original = host.corpus.store().display().to_string();
    run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
    host.check_store(&host.root());
    floe_store::tree::remove_tree(&host.root()).unwrap();
    fs::read(record).unwrap()
}

pub(super) fn script(host: &Host<'_>, name: &str, line: &str) -> PathBuf {
    let path = host.scratch.join(name);
    fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Starts a host that reads these bytes.
fn start(host: &Host<'_>, program: &str, words: &[&str]) -> Child {
    let mut command = Command::new(host.program(program));
    hide_nix_conf(&mut command);
    command.env("NIX_CONFIG", "substituters =");
    command.args(words).arg("--store").arg(host.root());
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// Checks that the store has whole paths and nothing else. Returns how many.
fn check_whole(host: &Host<'_>) -> usize {
    let layout = StoreLayout::in_root(&host.root(), Default::default());
    let reader = match StoreReader::open(layout) {
        Err(StoreError::NoStore { .. }) => return 0,
        reader => reader.unwrap(),
    };
    let found = reader.verify(&[], None, &()).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    let valid = reader.valid_paths().unwrap();
    for path in &valid {
        for reference in reader.references(path).unwrap().unwrap() {
            assert!(valid.contains(&reference), "{path} lacks {reference}");
        }
    }
    valid.len()
}

/// The trees in the store directory that no row has.
fn leftovers(host: &Host<'_>) -> BTreeSet<String> {
    let layout = StoreLayout::in_root(&host.root(), Default::default());
    let Ok(entries) = fs::read_dir(&layout.real_store_dir) else {
        return BTreeSet::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let reader = StoreReader::open(layout).unwrap();
    let valid = reader.valid_paths().unwrap();
    let valid: BTreeSet<&str> = valid.iter().map(|path| path.as_str()).collect();
    names
        .filter(|name| !valid.contains(&**name) && name != ".links")
        .collect()
}

/// A sequence of numbers that is the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn cut_connections_leave_whole_paths_alone() {
    with_hosts(|host| {
        for (scheme, program, words) in HOSTS {
            let bytes = recorded(host, scheme, program);
            let mut numbers = Numbers(62);
            // Each message of the beginning has its cut, and the NARs have many.
            let beginning = (0..20).map(|number| number * 40);
            let cuts = beginning.chain((0..30).map(|_| numbers.below(bytes.len())));
            let mut counts = BTreeSet::new();
            for cut in cuts.collect::<Vec<usize>>() {
                let mut child = start(host, program, words);
                let mut input = child.stdin.take().unwrap();
                input.write_all(&bytes[..cut]).unwrap();
                drop(input);
                child.wait().unwrap();
                counts.insert(check_whole(host));
                assert_eq!(leftovers(host), BTreeSet::new(), "{scheme} {cut}");
                if host.root().exists() {
                    floe_store::tree::remove_tree(&host.root()).unwrap();
                }
            }
            assert!(counts.len() > 2, "{scheme}: {counts:?}");
        }
    });
}

#[test]
fn copies_complete_after_hosts_were_killed() {
    with_hosts(|host| {
        for (scheme, program, words) in HOSTS {
            let bytes = recorded(host, scheme, program);
            let mut numbers = Numbers(63);
            for _ in 0..5 {
                let cut = numbers.below(bytes.len());
                let mut child = start(host, program, words);
                child
                    .stdin
                    .as_mut()
                    .unwrap()
                    .write_all(&bytes[..cut])
                    .unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
                check_whole(host);
            }
            let original = host.corpus.store().display().to_string();
            let uri = host.uri(scheme, program);
            run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
            host.check_store(&host.root());
            // A collection removes what the killed hosts have left.
            host.nix.store(&host.root(), ["--gc"]);
            assert_eq!(leftovers(host), BTreeSet::new());
            floe_store::tree::remove_tree(&host.root()).unwrap();
        }
    });
}

#[test]
fn overlapping_copies_beside_collections_succeed() {
    with_hosts(|host| {
        let original = host.corpus.store().display().to_string();
        let uri = host.uri("ssh-ng", "nix-daemon");
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let mut collected = 0;
        for _ in 0..3 {
            let copies: Vec<Child> = [("ssh-ng", "nix-daemon"), ("ssh", "nix-store")]
                .into_iter()
                .map(|(scheme, program)| {
                    let uri = host.uri(scheme, program);
                    let mut copy = host.nix_copy(&original, &uri);
                    copy.arg("--no-check-sigs").stderr(Stdio::piped());
                    copy.spawn().unwrap()
                })
                .collect();
            let mut copies = copies;
            wait_until("the copies", || {
                let mut collect = Command::new(host.program("nix-store"));
                hide_nix_conf(&mut collect);
                let freed = run(collect.args(["--gc", "--store"]).arg(host.root())).expect(0);
                collected += usize::from(!freed.stdout.starts_with("0 "));
                copies
                    .iter_mut()
                    .all(|copy| copy.try_wait().unwrap().is_some())
            });
            for copy in copies {
                let output = copy.wait_with_output().unwrap();
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{stderr}");
            }
            check_whole(host);
        }
        assert!(collected > 0, "no collection has deleted a path");
    });
}

#[test]
fn full_disk_is_named_and_nothing_is_registered_in_part() {
    with_hosts(|host| {
        for (scheme, program, _) in HOSTS {
            let Some(mount) = mount("size=9m") else {
                return;
            };
            let inside = mount.inside(&Command::new(host.program(program)));
            let words: Vec<String> = std::iter::once(inside.get_program())
                .chain(inside.get_args())
                .map(|word| word.display().to_string())
                .collect();
            let line = format!("exec {} \"$@\"", words.join(" "));
            let program = script(host, &format!("full-{program}"), &line);
            let uri = format!(
                "{scheme}://localhost?remote-program={}&remote-store={}",
                program.display(),
                mount.root().display()
            );
            let original = host.corpus.store().display().to_string();
            let copy = run(host.nix_copy(&original, &uri).arg("--no-check-sigs"));
            assert_ne!(copy.code, Some(0));
            let is_named = ["No space left", "full", "space"]
                .iter()
                .any(|words| copy.stderr.contains(words));
            assert!(is_named, "{scheme}: {}", copy.stderr);
            let kept = mount.assert_store_valid().len();
            assert!(kept < host.corpus.paths.len());
            mount.remount("size=200m");
            run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
            assert_eq!(mount.assert_store_valid().len(), host.corpus.paths.len());
        }
    });
}

/// Another process adds a reference at the same moment, and holds its lock.
#[test]
fn locked_reference_delays_its_referrers() {
    with_hosts(|host| {
        let original = host.corpus.store().display().to_string();
        let reference = host.corpus.paths.iter().find(|it| **it != host.corpus.root);
        let lock = format!("{}.lock", &reference.unwrap()[1..]);
        for (scheme, program, _) in HOSTS {
            let uri = host.uri(scheme, program);
            let clients = [host.nix_copy(&original, &uri), {
                let mut copy = floe(["copy", "--from", &original, "--to", &uri]);
                copy.arg(&host.corpus.root);
                copy
            }];
            for mut client in clients {
                let lock = host.root().join(&lock);
                fs::create_dir_all(lock.parent().unwrap()).unwrap();
                let file = fs::File::create(&lock).unwrap();
                flock(&file, FlockOperation::LockExclusive).unwrap();
                client.arg("--no-check-sigs").stderr(Stdio::piped());
                let mut client = client.spawn().unwrap();
                // A client that does not wait ends within this second.
                thread::sleep(Duration::from_secs(1));
                let waited = client.try_wait().unwrap().is_none();
                drop(file);
                let output = client.wait_with_output().unwrap();
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(waited && output.status.success(), "{scheme}: {stderr}");
                check_whole(host);
                floe_store::tree::remove_tree(&host.root()).unwrap();
            }
        }
    });
}
