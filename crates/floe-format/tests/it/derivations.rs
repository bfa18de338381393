//! Derivations that Nix instantiated.

use std::collections::BTreeMap;

use floe_format::derivation::{Derivation, DerivationError, DerivationHashCache, DerivationOutput};
use floe_format::{StoreDir, StorePath};

use crate::vectors_in;

fn dir() -> StoreDir {
    StoreDir::default()
}

/// The text of each derivation, by path.
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

/// Reads derivations from the vectors and counts how often it does.
fn reader(count: &mut usize) -> impl FnMut(&StorePath) -> Result<Derivation, DerivationError> {
    let texts = texts();
    move |path| {
        *count += 1;
        Ok(parse(path, &texts[path]))
    }
}

/// The derivation with this name, and the name.
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
        &mut DerivationHashCache::new(),
        &mut reader(&mut 0),
    )
}

#[test]
fn derivations_are_printed_byte_for_byte_and_hash_to_their_paths() {
    for (path, text) in texts() {
        let name = Derivation::name_from_path(&path).unwrap();
        let derivation = parse(&path, &text);
        assert_eq!(derivation.to_aterm(&dir(), name).unwrap(), text, "{path}");
        assert_eq!(derivation.store_path(&dir(), name).unwrap(), path);
    }
}

#[test]
fn every_output_is_where_nix_says_it_is() {
    let mut cache = DerivationHashCache::new();
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
        "each derivation is read once at most, not {count} times"
    );
}

#[test]
fn all_kinds_of_outputs_occur() {
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
fn output_paths_are_known_or_not() {
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
fn any_change_moves_the_outputs() {
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
fn the_variables_of_the_outputs_are_checked() {
    let mut user = named("user");
    user.env.insert(b"bin".to_vec(), b"/elsewhere".to_vec());
    assert!(matches!(
        check(&user, "user"),
        Err(DerivationError::OutputVariableMismatch { .. })
    ));
    user.env.remove(&b"bin"[..]);
    // The hash covers that the variable is there, so now even the path is another.
    assert!(matches!(
        check(&user, "user"),
        Err(DerivationError::OutputPathMismatch { .. })
    ));
}
