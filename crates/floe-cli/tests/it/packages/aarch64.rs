//! The static binary for aarch64, under the emulator of qemu. qemu 7.2 has no openat2, so this also
//! shows that floe works without this system call.

use std::process::Command;

use floe_testkit::{corpus, find_tool, nixes, run, scratch, tree};

use super::unpack_static_binary;

#[test]
fn emulated_floe_installs_and_verifies() {
    let scratch = scratch();
    let Some(floe) = unpack_static_binary("aarch64-linux", scratch.path()) else {
        return;
    };
    let Some(qemu) = find_tool("qemu-aarch64-static", "qemu-user-static") else {
        return;
    };
    let Some(corpus) = corpus("jq") else { return };
    let header = run(Command::new("readelf").arg("--file-header").arg(&floe)).expect(0);
    assert!(header.stdout.contains("AArch64"), "{}", header.stdout);
    let emulated = |arguments: &[&str]| {
        let mut command = Command::new(&qemu);
        command
            .arg(&floe)
            .args(arguments)
            .env("HOME", scratch.path());
        command
    };
    let root = scratch.join("root").display().to_string();
    run(emulated(&[
        "install",
        "--from",
        &corpus.file_url("zstd"),
        "--root",
        &root,
    ])
    .args(["--trusted-public-keys", &corpus.key, &corpus.root]))
    .expect(0);
    run(&mut emulated(&["verify", "--root", &root])).expect(0);
    assert!(
        tree(root.as_ref()) == tree(&corpus.store()),
        "the trees differ"
    );
    for nix in nixes() {
        nix.verify(root.as_ref(), corpus.paths.len());
    }
}
