//! Tests that take long and run only with `cargo xtask test --full`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use floe_format::StoreDir;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::{nixes, run, scratch};

use crate::support::floe;

#[test]
fn file_above_4_gib_survives_copy_and_install() {
    if std::env::var_os("FLOE_TEST_FULL").is_none() {
        return;
    }
    let scratch = scratch();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let size = (4_u64 << 30) + 12_345;
    File::create(tree.join("giant"))
        .unwrap()
        .set_len(size)
        .unwrap();
    fs::write(tree.join("last"), "after the giant").unwrap();
    let source = scratch.join("source");
    let writer = StoreWriter::open(StoreLayout::in_root(&source, StoreDir::default())).unwrap();
    let path = writer
        .add_to_store(&tree, "giant", Default::default())
        .unwrap()
        .path;
    drop(writer);
    let cache = format!(
        "file://{}?compression=zstd",
        scratch.join("cache").display()
    );
    run(floe(["copy", "--from"])
        .arg(&source)
        .args(["--to", &cache, path.as_str()]))
    .expect(0);
    floe_store::tree::remove_tree(&source).unwrap();
    let root = scratch.join("root");
    let from = cache.split('?').next().unwrap();
    run(floe(["install", "--from", from, "--root"])
        .arg(&root)
        .arg(path.as_str()))
    .expect(0);
    let installed = root.join("nix/store").join(path.as_str());
    assert_eq!(fs::metadata(installed.join("giant")).unwrap().size(), size);
    assert_eq!(
        fs::read_to_string(installed.join("last")).unwrap(),
        "after the giant"
    );
    for nix in nixes() {
        nix.verify(&root, 1);
    }
}
