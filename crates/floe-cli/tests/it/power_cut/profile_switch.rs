//! Power cuts while a profile switches between its generations.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{corpus, run};

use super::{kinds, record_after};
use crate::support::floe;

const GENERATIONS: usize = 3;

fn profile_command(place: &Path, arguments: &[&str]) -> Command {
    let mut command = floe(["profile", arguments[0], "--root"]);
    command
        .arg(place.join("root"))
        .arg("--profile")
        .arg(place.join("profile"));
    command.args(&arguments[1..]);
    command
}

#[test]
fn switched_profile_is_one_of_its_generations_after_a_power_cut() {
    let Some(corpus) = corpus("jq") else { return };
    for kind in kinds() {
        let prepare = |place: &Path| {
            for path in &corpus.paths[..GENERATIONS] {
                let mut command = floe(["install", "--from", &corpus.file_url("zstd")]);
                command.args(["--trusted-public-keys", &corpus.key, "--root"]);
                command
                    .arg(place.join("root"))
                    .arg("--profile")
                    .arg(place.join("profile"));
                run(command.arg(path)).expect(0);
            }
        };
        let switch = |place: &Path| {
            // Each number in turn.
            let mut command = Command::new("sh");
            command.args([
                "-ec",
                "for number in 1 3 2 1 3 2; do \"$@\" $number; done",
                "sh",
            ]);
            let switch = profile_command(place, &["switch"]);
            command.arg(switch.get_program()).args(switch.get_args());
            command.envs(
                switch
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command
        };
        let Some(recording) = record_after(*kind, prepare, switch) else {
            return;
        };
        let mut cuts = 0;
        recording.for_each_cut(|place, cut| {
            let current = fs::read_link(place.join("profile")).unwrap();
            assert!(
                fs::symlink_metadata(place.join(&current)).is_ok(),
                "{cut}: {current:?}"
            );
            let listed = run(&mut profile_command(place, &["list"])).expect(0).stdout;
            assert_eq!(listed.lines().count(), GENERATIONS, "{cut}: {listed}");
            assert_eq!(listed.matches("(current)").count(), 1, "{cut}: {listed}");
            run(&mut profile_command(place, &["switch", "1"])).expect(0);
            cuts += 1;
        });
        assert!(cuts > 0);
    }
}
