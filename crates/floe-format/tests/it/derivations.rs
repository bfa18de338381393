//! Tests with derivations that Nix instantiated.

use std::collections::BTreeMap;

use floe_format::derivation::{Derivation, DerivationError, DerivationHashCache, DerivationOutput};
use floe_format::{StoreDir, StorePath};

use crate::vectors_in;

fn dir() -> StoreDir {
    StoreDir::default()
}

/// Returns the texts of all derivations, by path.
fn texts() -> BTreeMap<StorePath, Vec<u8>> {
    vectors_in("derivation", ".drv")
        .into_iter()
        .map(|(name, text)| (StorePath::parse(&name).expect("Nix named it"), text))
        .collect()
}

fn parse(path: &StorePath, text: &[u8]) -> Derivation {
    let name = Derivation::name_from_path(path).expect("it ends in .drv");
    Derivation::parse(text, &dir(), name).expect("Nix wrote it")
}

/// Returns a callback that reads derivations from the vectors and counts its calls.
fn reader(count: &mut usize) -> impl FnMut(&StorePath) -> Result<Derivation, DerivationError> {
    let texts = texts();
    move |path| {
        *count += 1;
        Ok(parse(path, &texts[path]))
    }
}

/// Returns the derivation with this name.
fn named(name: &str) -> Derivation {
    let texts = texts();
    let wanted = format!("{name}.drv");
    let (path, text) = texts
        .iter()
        .find(|(path, _)| path.name() == wanted)
        .expect("a derivation of that name");
    parse(path, text)
}

fn check(derivation: &Derivation, name: &str) -> Result<(), DerivationError> {
    derivation.check_invariants(
        &dir(),
        name,
        &mut DerivationHashCache::default(),
        &mut reader(&mut 0),
    )
}

#[test]
fn derivations_print_and_hash_as_by_nix() {
    for (path, text) in texts() {
        let name = Derivation::name_from_path(&path).unwrap();
        let derivation = parse(&path, &text);
        assert_eq!(derivation.to_aterm(&dir(), name).unwrap(), text, "{path}");
        assert_eq!(derivation.store_path(&dir(), name).unwrap(), path);
    }
}

#[test]
fn output_paths_of_nix_pass_the_checks() {
    let mut cache = DerivationHashCache::default();
    let mut count = 0;
    let mut read = reader(&mut count);
    for (path, text) in texts() {
        let name = Derivation::name_from_path(&path).unwrap();
        let derivation = parse(&path, &text);
        assert_eq!(
            derivation.check_invariants(&dir(), name, &mut cache, &mut read),
            Ok(())
        );
    }
    drop(read);
    assert!(
        count <= texts().len(),
        "{count} reads: each derivation must be read at most once"
    );
}

#[test]
fn vectors_contain_all_kinds_of_outputs() {
    use DerivationOutput::{Deferred, Fixed, Floating, Impure, InputAddressed};
    assert!(matches!(
        named("many-1.0").outputs["dev"],
        InputAddressed(_)
    ));
    assert!(matches!(named("fixed-flat").outputs["out"], Fixed(_)));
    assert!(matches!(named("fixed-git").outputs["out"], Fixed(_)));
    assert!(matches!(named("fixed-text").outputs["out"], Fixed(_)));
    assert!(matches!(named("floating").outputs["dev"], Floating { .. }));
    assert!(matches!(named("deferred").outputs["out"], Deferred));
    assert!(matches!(named("impure").outputs["out"], Impure { .. }));
}

#[test]
fn output_paths_are_known_unless_floating_or_deferred() {
    let paths = named("many-1.0").output_paths(&dir(), "many-1.0");
    assert_eq!(paths["out"].as_ref().unwrap().name(), "many-1.0");
    assert_eq!(paths["lib"].as_ref().unwrap().name(), "many-1.0-lib");
    let fixed = named("fixed-recursive");
    let path = fixed.output_paths(&dir(), "fixed-recursive")["out"]
        .clone()
        .unwrap();
    assert_eq!(fixed.env[&b"out"[..]], dir().full_path(&path).into_bytes());
    for name in ["floating", "deferred", "impure"] {
        assert!(
            named(name)
                .output_paths(&dir(), name)
                .values()
                .all(Option::is_none),
            "{name}"
        );
    }
}

#[test]
fn changed_derivation_has_other_output_paths() {
    let wrong_path = |derivation: &Derivation| {
        matches!(
            check(derivation, "user"),
            Err(DerivationError::OutputPathMismatch { .. })
        )
    };
    let user = named("user");
    assert_eq!(check(&user, "user"), Ok(()));
    let mut changed = user.clone();
    changed.args.push(b"more".to_vec());
    assert!(wrong_path(&changed));
    let mut changed = user.clone();
    changed.env.insert(b"more".to_vec(), b"".to_vec());
    assert!(wrong_path(&changed));
    let mut changed = user.clone();
    changed.input_derivations.pop_first();
    assert!(wrong_path(&changed));
    let mut changed = user.clone();
    changed.platform = "riscv64-linux".into();
    assert!(wrong_path(&changed));
    assert!(matches!(
        check(&user, "loser"),
        Err(DerivationError::OutputPathMismatch { .. })
    ));
}

#[test]
fn variables_named_after_outputs_are_checked() {
    let mut user = named("user");
    user.env.insert(b"bin".to_vec(), b"/elsewhere".to_vec());
    assert!(matches!(
        check(&user, "user"),
        Err(DerivationError::OutputVariableMismatch { .. })
    ));
    user.env.remove(&b"bin"[..]);
    // The hash covers the names of the variables, so the path changes as well.
    assert!(matches!(
        check(&user, "user"),
        Err(DerivationError::OutputPathMismatch { .. })
    ));
}
