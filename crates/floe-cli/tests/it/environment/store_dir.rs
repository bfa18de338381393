//! Stores with another store directory than `/nix/store`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_format::{StoreDir, StorePath};
use floe_store::tree::remove_tree;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::{nixes, run, scratch};

use crate::support::floe;

#[test]
fn closure_for_custom_store_dir_is_installed_there() {
    let scratch = scratch();
    let prefix = scratch.join("other");
    let dir = prefix.join("store").display().to_string();
    let (paths, names) = closure_for(&StoreDir::new(&dir).unwrap(), scratch.path());
    let cache = format!("file://{}", scratch.join("cache").display());
    // The store is named by its directory alone.
    run(floe(["copy", "--store-dir", &dir, "--to", &cache]).args(&names)).expect(0);
    let info = fs::read_to_string(scratch.join("cache/nix-cache-info")).unwrap();
    assert!(info.contains(&format!("StoreDir: {dir}\n")), "{info}");
    fs::rename(&prefix, scratch.join("origin")).unwrap();

    // Install in place and below a root. Below a root, files are always in `nix/store`.
    let root = scratch.join("root");
    let rooted = ["--root", root.to_str().unwrap()];
    for (target, real) in [
        (&[][..], prefix.join("store")),
        (&rooted[..], root.join("nix/store")),
    ] {
        // The paths are content-addressed, so they need no signatures.
        let install = || {
            let mut command = floe(["install", "--json", "--from", &cache, "--store-dir", &dir]);
            run(command.args(target).args(&names)).expect(0).json()
        };
        let installed = install();
        assert_eq!(installed["copied"], paths.len());
        assert_eq!(installed["paths"][0], names[0]);
        let again = install();
        assert_eq!(
            (&again["copied"], &again["alreadyValid"]),
            (&0.into(), &paths.len().into())
        );
        let text = fs::read_to_string(real.join(paths[0].as_str()).join("file")).unwrap();
        assert!(text.starts_with(&dir), "{text}");
        run(floe(["verify", "--store-dir", &dir]).args(target))
            .expect(0)
            .stderr_contains("2 paths");
        for nix in nixes() {
            let state = real.parent().unwrap().join("var/nix");
            let state = if target.is_empty() {
                state
            } else {
                root.join("nix/var/nix")
            };
            let log = scratch.join("log");
            let (state, log, real) = (state.display(), log.display(), real.display());
            let store = format!("local?store={dir}&real={real}&state={state}&log={log}");
            let verified = run(nix
                .command("nix", ["store", "verify", "--all", "--no-trust", "--store"])
                .arg(&store));
            verified.expect(0);
            let listed = run(nix
                .command("nix", ["path-info", "--all", "--store"])
                .arg(&store));
            let listed = listed.expect(0).stdout;
            let listed: BTreeSet<&str> = listed.lines().collect();
            assert_eq!(
                listed,
                names.iter().map(String::as_str).collect(),
                "{}",
                nix.version
            );
        }
    }
    let without = ["install", "--from", &cache, "--root"];
    run(floe(without)
        .arg(scratch.join("elsewhere"))
        .arg(paths[0].as_str()))
    .expect(2)
    .stderr_contains(&format!("its paths are for {dir}"))
    .stderr_contains(&format!("--store-dir {dir}"));
}

#[test]
fn nix_directory_variables_name_the_default_store() {
    let scratch = scratch();
    let named = |name: &str| scratch.join(name).display().to_string();
    let dir = named("there/store");
    let (_, paths) = closure_for(&StoreDir::new(&dir).unwrap(), scratch.path());
    let cache = format!("file://{}", named("cache"));
    run(floe(["copy", "--store-dir", &dir, "--to", &cache]).args(&paths)).expect(0);
    remove_tree(&scratch.join("there")).unwrap();
    let variables = [
        ("NIX_STORE_DIR", dir.clone()),
        ("NIX_STATE_DIR", named("state")),
        ("NIX_LOG_DIR", named("log")),
    ];
    let with_variables = |args: &[&str]| {
        let mut command = floe(args);
        command.envs(variables.clone());
        command
    };

    run(with_variables(&["install", "--from", &cache]).args(&paths)).expect(0);
    assert!(scratch.join("state/db/db.sqlite").exists());
    for path in &paths {
        assert!(Path::new(path).exists(), "{path}");
    }
    let info = run(with_variables(&["info"]).args(&paths)).expect(0).stdout;
    assert!(
        info.contains(&paths[0]) && info.contains(&paths[1]),
        "{info}"
    );
    for store in [&[][..], &["--store", "local"], &["--store", "auto"]] {
        run(with_variables(&["verify"]).args(store))
            .expect(0)
            .stderr_contains("verified 2 paths");
    }
    let second = format!("file://{}", named("second"));
    run(&mut with_variables(&["copy", "--to", &second, &paths[0]])).expect(0);
    for nix in nixes() {
        let mut verify = nix.command("nix-store", ["--verify", "--check-contents"]);
        let stderr = run(verify.envs(variables.clone())).expect(0).stderr;
        assert!(!stderr.contains("disappeared"), "{}: {stderr}", nix.version);
        let mut check = nix.command("nix-store", ["--check-validity", &paths[0]]);
        run(check.envs(variables.clone())).expect(0);
    }

    // A root, a parameter and a flag override the variables, as far as they concern them.
    let root = named("root");
    run(with_variables(&["install", "--from", &cache, "--root", &root]).args(&paths)).expect(0);
    assert!(scratch.join("root/nix/var/nix/db").exists());
    let other = format!("local?state={}", named("other-state"));
    run(&mut with_variables(&["verify", "--store", &other]))
        .expect(4)
        .stderr_contains("other-state");
    let other = named("other/store");
    run(with_variables(&["verify", "--store-dir", &other]).env_remove("NIX_STATE_DIR"))
        .expect(4)
        .stderr_contains("other/var/nix");
    run(with_variables(&["info", &paths[0]]).env("NIX_STORE_DIR", "other"))
        .expect(2)
        .stderr_contains("NIX_STORE_DIR");
}

/// Creates two content-addressed paths in a store with this store directory. The first refers to
/// the second.
fn closure_for(dir: &StoreDir, scratch: &Path) -> (Vec<StorePath>, Vec<String>) {
    let store = StoreWriter::open(StoreLayout::without_root(dir.clone())).unwrap();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "the end\n").unwrap();
    let end = store
        .add_to_store(&source, "end", BTreeSet::new())
        .unwrap()
        .path;
    fs::write(
        source.join("file"),
        format!("{}/file\n", dir.full_path(&end)),
    )
    .unwrap();
    let begin = store
        .add_to_store(&source, "begin", BTreeSet::from([end.clone()]))
        .unwrap()
        .path;
    remove_tree(&source).unwrap();
    let names = [&begin, &end].map(|path| dir.full_path(path)).into();
    (vec![begin, end], names)
}
