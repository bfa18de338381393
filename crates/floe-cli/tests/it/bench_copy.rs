//! `floe bench copy`: measurements count only for verified work, and are saved.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_testkit::{CommandOutput, Corpus, corpus, nixes, run, skip, wait_until};
use serde_json::Value;

use crate::support::floe;

struct Bench {
    corpus: Corpus,
    directory: tempfile::TempDir,
    /// A directory on tmpfs that contains only files of a benchmark.
    memory: tempfile::TempDir,
}

fn bench() -> Option<Bench> {
    let corpus = corpus("jq")?;
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        skip("/dev/shm", "no directory can be made there");
        return None;
    };
    Some(Bench {
        corpus,
        directory: tempfile::tempdir().unwrap(),
        memory,
    })
}

impl Bench {
    fn json(&self) -> PathBuf {
        self.directory.path().join("result.json")
    }

    /// Returns a benchmark that copies from the store of the corpus.
    fn command(&self, options: &[&str]) -> Command {
        let scenario = format!("local-tmpfs={}", self.corpus.store().display());
        let mut command = self.without_scenario(options);
        command.args(["--scenario", &scenario]);
        command
    }

    /// Returns a benchmark without a scenario.
    fn without_scenario(&self, options: &[&str]) -> Command {
        let mut command = floe(["bench", "copy", "--path", &self.corpus.root, "--tmpfs"]);
        command.arg(self.memory.path()).args(options);
        command.arg("--json").arg(self.json());
        command.env("TMPDIR", self.directory.path());
        command
    }

    fn run(&self, options: &[&str]) -> CommandOutput {
        run(&mut self.command(options))
    }

    fn result(&self) -> Value {
        serde_json::from_slice(&fs::read(self.json()).unwrap()).unwrap()
    }

    /// Returns a shell script as a variant that checks no signatures, like the built-in variants.
    fn script(&self, name: &str, script: &str) -> String {
        let script = script.replace("FLOE", env!("CARGO_BIN_EXE_floe"));
        format!("{name}=sh -c '{script}' --no-check-sigs {{from}} {{dest}} {{path}}")
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(self.memory.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let left = fs::read_dir(self.directory.path()).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names
            .filter(|name| name.starts_with("floe-bench-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn floe_variant() -> String {
    format!("floe={}", env!("CARGO_BIN_EXE_floe"))
}

fn variant<'a>(result: &'a Value, row: usize, name: &str) -> &'a Value {
    let variants = result["rows"][row]["variants"].as_array().unwrap();
    variants
        .iter()
        .find(|variant| variant["name"] == name)
        .unwrap()
}

#[test]
fn nix_and_floe_are_measured_and_reported() {
    let Some(bench) = bench() else { return };
    let cache = format!("cache-tmpfs={}", bench.corpus.file_url("xz"));
    let keys = bench.corpus.key.clone();
    // Paths in a local store are not signed, paths from a cache are.
    let store = format!("local-tmpfs={}", bench.corpus.store().display());
    let cases: [(&str, &str, &[&str]); 2] = [
        (
            "local → tmpfs",
            "no variant checks them",
            &["--scenario", &store],
        ),
        (
            "cache (xz, file) → tmpfs",
            "all variants check them",
            &["--scenario", &cache, "--trusted-public-keys", &keys],
        ),
    ];
    for nix in nixes() {
        for (name, signatures, options) in cases {
            let command = nix.command("nix", [""; 0]);
            let program = format!("nix={}", command.get_program().to_str().unwrap());
            let mut timed =
                bench.without_scenario(&["--variant", &program, "--variant", &floe_variant()]);
            let files = [
                "--iters",
                "3",
                "--markdown",
                "result.md",
                "--svg",
                "result.svg",
            ];
            timed
                .args(options)
                .args(files)
                .current_dir(bench.directory.path());
            timed.envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            let ran = run(&mut timed).expect(0);
            assert!(
                ran.stdout.contains(&format!("| {name} | floe |")),
                "{}",
                ran.stdout
            );
            assert_measurements(&bench.result(), bench.corpus.paths.len());
            let read = |file| fs::read_to_string(bench.directory.path().join(file)).unwrap();
            let document = read("result.md");
            assert!(document.contains(signatures), "{document}");
            assert!(document.contains(&nix.version), "{document}");
            assert_eq!(read("result.svg").matches("<path").count(), 2);
            bench.assert_nothing_left();
        }
    }
}

/// Asserts that there is one row with three samples per variant and a valid comparison.
#[track_caller]
fn assert_measurements(result: &Value, paths: usize) {
    assert_eq!(result["rows"].as_array().unwrap().len(), 1);
    assert_eq!(result["rows"][0]["facts"]["closurePaths"], paths);
    for name in ["nix", "floe"] {
        let found = variant(result, 0, name);
        assert_eq!(found["samples"].as_array().unwrap().len(), 3, "{found}");
        let mean = found["seconds"]["mean"].as_f64().unwrap();
        let cpu = found["cpuSeconds"]["mean"].as_f64().unwrap();
        assert!(mean > 0.0 && cpu > 0.0, "{found}");
    }
    let floe = variant(result, 0, "floe");
    let p = floe["welch"]["p"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&p), "{floe}");
    assert!(floe["ratio"]["low"].as_f64() <= floe["ratio"]["value"].as_f64());
}

#[test]
fn variant_without_correct_result_has_no_samples() {
    let Some(bench) = bench() else { return };
    let copy = "FLOE copy --no-check-sigs --from $1 --to $2";
    let part = bench
        .corpus
        .paths
        .iter()
        .find(|path| **path != bench.corpus.root)
        .unwrap();
    let cases = [
        ("idle", "exit 0".to_owned(), "wrong result"),
        ("fails", "echo no luck >&2; exit 3".to_owned(), "no luck"),
        ("part", format!("{copy} {part}"), "is not valid"),
        (
            "spoils",
            format!(
                "{copy} $3 && chmod -R u+w $2 && find $2/nix/store -type f \
          -name \"*.so*\" -exec sh -c \"echo >> {{}}\" \\;"
            ),
            "problems",
        ),
    ];
    for (name, script, why) in cases {
        let script = bench.script(name, &script);
        let options = [
            "--variant",
            &floe_variant(),
            "--variant",
            &script,
            "--iters",
            "2",
        ];
        let ran = bench.run(&options).expect(1);
        let result = bench.result();
        let failed = variant(&result, 0, name);
        assert!(failed["failed"].as_str().unwrap().contains(why), "{failed}");
        assert!(failed.get("samples").is_none(), "{failed}");
        assert_eq!(
            variant(&result, 0, "floe")["samples"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert!(ran.stdout.contains("failed: "), "{}", ran.stdout);
        bench.assert_nothing_left();
    }
}

#[test]
fn every_run_starts_with_empty_store_and_home() {
    let Some(bench) = bench() else { return };
    let log = bench.directory.path().join("log");
    let script = format!(
        "test ! -e $2 && test -z \"$(ls -A $HOME)\" && touch $HOME/x && echo ok >> {} && \
         FLOE copy --no-check-sigs --from $1 --to $2 $3",
        log.display()
    );
    let script = bench.script("picky", &script);
    bench
        .run(&["--variant", &script, "--iters", "3", "--warmup", "2"])
        .expect(0);
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 5);
    let result = bench.result();
    assert_eq!(
        variant(&result, 0, "picky")["samples"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn interrupted_benchmark_saves_completed_samples() {
    let Some(bench) = bench() else { return };
    let (runs, begun) = (
        bench.directory.path().join("runs"),
        bench.directory.path().join("begun"),
    );
    let script = format!(
        "FLOE copy --no-check-sigs --from $1 --to $2 $3; echo >> {0}; \
         if test $(wc -l < {0}) -ge 3; then touch {1}; sleep 1000; fi",
        runs.display(),
        begun.display()
    );
    let script = bench.script("slow", &script);
    let options = [
        "--variant",
        &floe_variant(),
        "--variant",
        &script,
        "--iters",
        "500",
    ];
    let mut child = bench
        .command(&options)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The second round starts with floe, after the warm-up and a complete first round.
    wait_for("third run of the script", &begun);
    assert_eq!(
        child.try_wait().unwrap(),
        None,
        "the benchmark ended before the interrupt"
    );
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result = bench.result();
    assert_eq!(result["interrupted"], true);
    let samples = |name| {
        variant(&result, 0, name)["samples"]
            .as_array()
            .map(Vec::len)
    };
    assert_eq!(
        (samples("floe"), samples("slow")),
        (Some(2), Some(1)),
        "{result}"
    );
    bench.assert_nothing_left();
}

fn wait_for(what: &str, file: &Path) {
    wait_until(&format!("no {what}"), || file.exists());
}

#[test]
fn misleading_comparison_is_rejected_before_any_run() {
    let Some(bench) = bench() else { return };
    let checking = "mine=floe copy --from {from} --to {dest} {path}";
    bench
        .run(&["--variant", "floe", "--variant", checking])
        .expect(2)
        .stderr_contains("`mine` checks signatures and `floe` does not");
    bench
        .run(&["--iters", "0"])
        .expect(2)
        .stderr_contains("--iters 0");
    bench
        .run(&["--variant", "a=cp {path}"])
        .expect(2)
        .stderr_contains("lacks {dest}");
    let memory = bench.memory.path().to_str().unwrap();
    let disk = format!("local-disk={}", bench.corpus.store().display());
    let on_tmpfs = [
        "--variant",
        &floe_variant(),
        "--scenario",
        &disk,
        "--scratch",
        memory,
    ];
    let mut command = floe(["bench", "copy", "--path", &bench.corpus.root]);
    run(command.args(on_tmpfs))
        .expect(1)
        .stderr_contains("is on tmpfs; give a directory on a disk");
    let unknown = "/nix/store/00000000000000000000000000000000-none";
    let scenario = format!("local-tmpfs={}", bench.corpus.store().display());
    let mut command = floe(["bench", "copy", "--path", unknown, "--scenario", &scenario]);
    run(command.args(["--variant", &floe_variant()]))
        .expect(1)
        .stderr_contains("cannot find 00000000000000000000000000000000-none in");
    bench.assert_nothing_left();
}
