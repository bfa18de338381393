//! The commands of docs/embedding.md, run word for word in the repository. Only with
//! `cargo xtask test --full`, because they build a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::run;

/// Returns the commands of the section about the examples: all code blocks but that of the output.
fn commands() -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(repository.join("docs/embedding.md")).unwrap();
    let section = guide.split("## Build and run the examples").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("\n```\n").skip(1).step_by(2).take(3);
    let commands: Vec<&str> = blocks
        .filter(|block| !block.contains("paths installed"))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    commands.join("\n")
}

#[test]
fn commands_of_the_guide_build_and_run_the_examples() {
    let commands = commands();
    assert!(
        commands.contains("cargo build --release -p floe-ffi"),
        "{commands}"
    );
    if std::env::var_os("FLOE_TEST_FULL").is_none() {
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directories = "rm -rf target/demo target/root-c target/root-cpp";
    let mut shell = Command::new("sh");
    shell.args([
        "-e",
        "-c",
        &format!("{directories}\n{commands}\n{directories}"),
    ]);
    // The commands name the default target directory.
    shell.env_remove("CARGO_TARGET_DIR").current_dir(repository);
    let ran = run(&mut shell).expect(0);
    let installed = ran.stdout.matches("-demo-tool-1.0").count();
    assert!(installed >= 2, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(
        ran.stderr.matches("2 paths installed").count(),
        2,
        "{}",
        ran.stderr
    );
}
