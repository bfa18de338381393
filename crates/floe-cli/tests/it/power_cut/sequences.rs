//! Random sequences of installs, copies of real Nix, restarts and power cuts. A row that floe
//! trusts always has its bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use floe_testkit::recording_disk::{FileSystemKind, RecordingDisk, recording_disk};
use floe_testkit::{Corpus, Nix, Scratch, XorShift, corpus, nixes, run, scratch};

use super::{DISK_LEN, after_restart, is_full, kinds, run_alone};
use crate::support::floe;

/// A system with a disk that loses its power now and then.
struct System<'a> {
    corpus: &'a Corpus,
    nix: &'a Nix,
    disk: RecordingDisk,
    scratch: Scratch,
    random: XorShift,
    /// Counts the boots.
    boot: u32,
    has_boot_id: bool,
    /// The steps so far, for messages.
    steps: Vec<String>,
    counts: Counts,
}

/// How often the sequences reached what they test.
#[derive(Default)]
struct Counts {
    cuts: usize,
    /// Cuts that damaged a valid path.
    damaging_cuts: usize,
    nix_copies: usize,
    /// Checks of the record by an install.
    checks: usize,
    /// Checks that found a damaged path in the record.
    recorded: usize,
}

impl System<'_> {
    fn root(&self) -> PathBuf {
        self.disk.mount_point().join("root")
    }

    /// Returns a command of floe in the current boot.
    fn in_boot(&self, command: &Command) -> Command {
        let boot_id = self.scratch.join("boot-id");
        let id = if self.has_boot_id {
            format!("{:08}-89ab-cdef-0123-456789abcdef\n", self.boot)
        } else {
            // floe treats an empty boot id like one that it cannot read.
            String::new()
        };
        fs::write(&boot_id, id).unwrap();
        after_restart(command, &boot_id)
    }

    fn random_path(&mut self) -> String {
        let paths = &self.corpus.paths;
        paths[self.random.below(paths.len())].clone()
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..4 => self.install(),
            4..6 => self.copy_with_nix(),
            6 => self.restart(),
            7 => {
                self.has_boot_id = !self.has_boot_id;
                self.steps.push(format!("boot id: {}", self.has_boot_id));
            }
            8 => self.verify_and_repair(),
            _ => self.cut_power(),
        }
    }

    fn install(&mut self) {
        let path = self.random_path();
        self.steps.push(format!("install {path}"));
        let mut install = floe(["install", "--from", &self.corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        install.arg(self.root()).arg(&path);
        run(&mut self.in_boot(&install)).expect(0);
        self.check_record();
        let mut verify = floe(["verify", "--root"]);
        run(verify.arg(self.root()).arg(path)).expect(0);
    }

    fn copy_with_nix(&mut self) {
        let path = self.random_path();
        self.steps.push(format!("nix copy {path}"));
        let to = format!("local?root={}", self.root().display());
        let from = self.corpus.file_url("zstd");
        let copy = ["copy", "--no-check-sigs", "--from", &from, "--to", &to];
        let mut copy = self.nix.command("nix", copy);
        run(copy.arg(path)).expect(0);
        self.counts.nix_copies += 1;
    }

    fn restart(&mut self) {
        self.steps.push("restart".into());
        self.disk.restart();
        self.boot += 1;
    }

    fn cut_power(&mut self) {
        self.steps.push("power cut".into());
        let seed = self.random.below(usize::MAX) as u64;
        self.disk.cut_power(seed);
        self.boot += 1;
        self.counts.cuts += 1;
        let damaged = self.damaged_paths();
        self.counts.damaging_cuts += usize::from(!damaged.is_empty());
    }

    fn verify_and_repair(&mut self) {
        self.install();
        self.steps.push("verify --repair".into());
        let from = self.corpus.file_url("zstd");
        let mut verify = floe(["verify", "--repair", "--from", &from]);
        verify.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        verify.arg(self.root());
        run(&mut self.in_boot(&verify)).expect(0);
        assert_eq!(self.damaged_paths(), BTreeSet::new(), "{:?}", self.steps);
    }

    /// Checks that the record names every damaged path.
    fn check_record(&mut self) {
        let record = self.root().join("nix/var/nix/db/floe-sync-record");
        let text = fs::read_to_string(record).unwrap();
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("damaged "));
        let recorded: BTreeSet<String> = names.map(|name| format!("/nix/store/{name}")).collect();
        let damaged = self.damaged_paths();
        assert_eq!(damaged, recorded, "{:?}\n{text}", self.steps);
        self.counts.checks += 1;
        self.counts.recorded += usize::from(!recorded.is_empty());
    }

    /// Returns the valid paths without their bytes.
    fn damaged_paths(&self) -> BTreeSet<String> {
        let mut verify = floe(["verify", "--json", "--root"]);
        let ran = run(verify.arg(self.root()));
        if !ran.stdout.starts_with('{') {
            // There is no store yet.
            return BTreeSet::new();
        }
        let found = ran.json();
        let problems = found["problems"].as_array().unwrap().iter();
        problems
            .map(|problem| problem["path"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn run_sequence(corpus: &Corpus, nix: &Nix, kind: FileSystemKind, seed: u64) -> Option<Counts> {
    let _alone = run_alone();
    let scratch = scratch();
    let mut system = System {
        disk: recording_disk(scratch.path(), kind, DISK_LEN)?,
        corpus,
        nix,
        scratch,
        random: XorShift(seed),
        boot: 0,
        has_boot_id: true,
        steps: Vec::new(),
        counts: Counts::default(),
    };
    // Before the first record, floe does not notice damage. So no cut comes before it.
    if seed.is_multiple_of(2) {
        system.copy_with_nix();
    }
    system.install();
    for _ in 0..STEPS {
        system.step();
    }
    system.install();
    Some(system.counts)
}

#[test]
fn trusted_rows_have_their_bytes_after_power_cuts() {
    let Some(corpus) = corpus("curl") else { return };
    let nixes = nixes();
    if nixes.is_empty() {
        return;
    }
    let mut sum = Counts::default();
    for kind in kinds() {
        for seed in 1..=sequences() {
            let nix = &nixes[seed as usize % nixes.len()];
            let seed = seed * 0x9e37_79b9;
            let Some(counts) = run_sequence(&corpus, nix, *kind, seed) else {
                return;
            };
            sum.cuts += counts.cuts;
            sum.damaging_cuts += counts.damaging_cuts;
            sum.nix_copies += counts.nix_copies;
            sum.checks += counts.checks;
            sum.recorded += counts.recorded;
        }
    }
    for count in [
        sum.cuts,
        sum.damaging_cuts,
        sum.nix_copies,
        sum.checks,
        sum.recorded,
    ] {
        assert!(count > 1, "the sequences did not reach what they test");
    }
}

/// The number of sequences for each file system.
fn sequences() -> u64 {
    if is_full() { 20 } else { 5 }
}

/// The number of random steps of a sequence.
const STEPS: usize = 14;
