//! floe under the names of Nix's programs, as deploy tools call them.

use super::*;

#[test]
fn profiles_are_those_of_nix_env() {
    with_hosts(|host| {
        let store = host.root().display().to_string();
        let original = host.corpus.store().display().to_string();
        let uri = host.uri("ssh-ng", "nix-daemon");
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let profiles = host.root().join("nix/var/nix/profiles");
        let floe_env = |profile: &str, words: &[&str]| {
            let mut command = Command::new(host.program("nix-env"));
            command.arg("-p").arg(profiles.join(profile)).args(words);
            command.args(["--store", &store]);
            hide_nix_conf(&mut command);
            run(command.env("NIX_CONFIG", "substituters ="))
        };
        let nix_env = |profile: &str, words: &[&str]| {
            let mut command = host.nix.command("nix-env", ["-p"]);
            command.arg(profiles.join(profile)).args(words);
            run(command.args(["--store", &store]).env_remove("NIX_REMOTE"))
        };
        // Both programs make the same links of the same commands.
        let generations = |profile: &str| -> Vec<(String, String)> {
            let prefix = format!("{profile}-");
            let links = fs_names(&profiles).into_iter();
            let links = links.filter(|name| *name == profile || name.starts_with(&prefix));
            let mut found: Vec<(String, String)> = links
                .map(|name| {
                    let target = std::fs::read_link(profiles.join(&name)).unwrap();
                    let target = target.display().to_string().replace(profile, "PROFILE");
                    (name.replace(profile, "PROFILE"), target)
                })
                .collect();
            found.sort();
            found
        };
        // A profile without generations is no error.
        let words = ["--list-generations"];
        let own = floe_env("own", &words).expect(0);
        assert_eq!(own.stdout, nix_env("other", &words).expect(0).stdout);
        // The newest Nix crashes here.
        floe_env("own", &["--delete-generations", "3"]).expect(0);
        let [a, b, c] = [0, 1, 2].map(|number| host.corpus.paths[number].as_str());
        for words in [
            &["--set", a][..],
            &["--set", b],
            &["--set", b],
            &["--set", c],
            &["--rollback"],
            &["--switch-generation", "1"],
            &["-G", "3"],
            &["--delete-generations", "1"],
            &["--set", a],
            &["--delete-generations", "2", "77"],
            &["--delete-generations", "+2"],
            &["--rollback"],
            &["--delete-generations", "old"],
        ] {
            let own = floe_env("own", words).expect(0);
            let other = nix_env("other", words).expect(0);
            assert_eq!(own.stdout, other.stdout, "{words:?}");
            assert_eq!(generations("own"), generations("other"), "{words:?}");
            for profile in ["own", "other"] {
                let list = ["--list-generations"];
                let (own, other) = (floe_env(profile, &list), nix_env(profile, &list));
                assert_eq!(own.expect(0).stdout, other.expect(0).stdout, "{words:?}");
            }
        }
        assert_eq!(generations("own").len(), 2);
        let before = generations("own");
        floe_env("own", &["--set", b]).expect(0);
        let dry_run = floe_env("own", &["--rollback", "--dry-run"]).expect(0);
        assert!(dry_run.stderr.contains("switching profile from version"));
        floe_env("own", &["--rollback"]).expect(0);
        assert_eq!(generations("own").len(), 3);
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        floe_env("own", &["--set", &absent])
            .expect(1)
            .stderr_contains("is not valid");
        floe_env("own", &["--switch-generation", "99"]).expect(1);
        floe_env("own", &["-iA", "nixpkgs.hello"])
            .expect(1)
            .stderr_contains("floe install");

        // The age decides, and no generation is old enough. A negative number of bytes is 0.
        let collect = |words: &[&str]| {
            let mut collect = Command::new(host.program("nix-collect-garbage"));
            hide_nix_conf(&mut collect);
            run(collect.args(words).args(["--store", &store])).expect(0);
        };
        collect(&["-d", "--delete-older-than", "30d"]);
        collect(&["--delete-older-than", "30d", "-d", "--max-freed", "-1024"]);
        assert_eq!(generations("own").len(), 3);
        // The generations keep their paths, and a collection deletes the others.
        collect(&["-d"]);
        // Also those after the current one are deleted.
        assert_eq!(generations("own"), before);
        let kept = host.nix.store(&host.root(), ["--gc", "--print-live"]);
        let valid = host.nix.store(
            &host.root(),
            ["-q", "--requisites", kept.lines().next().unwrap()],
        );
        assert!(!kept.is_empty() && !valid.is_empty());
        assert_eq!(host.nix.store(&host.root(), ["--gc", "--print-dead"]), "");
    });
}

fn fs_names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
