//! Tests with derivations that Nix built, and with the realisations that it wrote to a cache.

use floe_format::derivation::{DerivationError, DerivationHashCache};
use floe_format::{
    Derivation, DrvKey, DrvOutput, PublicKey, Realisation, StoreDir, StorePath, TrustedKeys,
};

use crate::{text_vector, vector, vectors_in};

const TOOL: &str = "46iv88srr8vsa6y9sqw9id04yxh35mjv-tool.drv";
const TOOL_OUTPUT: &str = "hsqhv44ywz5azykhyrxmmxjg87yf5crg-tool";
const PRODUCT: &str = "4p32f07sldw1zqg3x5xg6ygn4v0wxx4m-product.drv";
const RESOLVED_PRODUCT: &str = "fclf03vnd845cvgds42pif555vq1lsci-product.drv";

fn path(text: &str) -> StorePath {
    StorePath::parse(text).unwrap()
}

fn derivation(path: &StorePath) -> Derivation {
    let text = vector(&format!("realisation/{path}"));
    let name = Derivation::name_from_path(path).unwrap();
    Derivation::parse(&text, &StoreDir::default(), name).unwrap()
}

/// Returns the realisations of one version of Nix, and its key.
fn realisations(nix: &str) -> (Vec<(String, Realisation)>, TrustedKeys) {
    let directory = format!("realisation/{nix}");
    let found = vectors_in(&directory, ".doi").into_iter();
    let parse = |(name, text): (String, Vec<u8>)| {
        let id = DrvOutput::from_object_name(&format!("realisations/sha256:{name}")).unwrap();
        let realisation = Realisation::parse(&id, &text).unwrap();
        (String::from_utf8(text).unwrap(), realisation)
    };
    let key = text_vector(&format!("{directory}/key.pub"));
    let key = PublicKey::parse(key.trim()).unwrap();
    (found.map(parse).collect(), TrustedKeys::from_iter([key]))
}

#[test]
fn realisations_print_and_verify_as_by_nix() {
    for nix in ["nix-2.8", "nix-2.34"] {
        let (realisations, keys) = realisations(nix);
        assert_eq!(realisations.len(), 2);
        for (text, realisation) in realisations {
            assert_eq!(realisation.to_json().to_string(), text, "{nix}");
            assert!(realisation.is_signed_by(&keys), "{nix}: {text}");
        }
    }
}

#[test]
fn floating_outputs_have_the_hashes_of_nix() {
    let mut cache = DerivationHashCache::default();
    let mut read = |path: &StorePath| Ok::<_, DerivationError>(derivation(path));
    let mut known = Vec::new();
    for nix in ["nix-2.8", "nix-2.34"] {
        known.extend(realisations(nix).0.into_iter().map(|it| it.1.id));
    }
    for (drv, name, output) in [
        (PRODUCT, "product", "out"),
        (PRODUCT, "product", "doc"),
        (TOOL, "tool", "out"),
    ] {
        let derivation = derivation(&path(drv));
        let hashes = derivation.output_hashes(&StoreDir::default(), name, &mut cache, &mut read);
        let key = DrvKey::Hash(hashes.unwrap()[output]);
        let id = DrvOutput::new(key, output).unwrap();
        assert!(known.contains(&id), "{id}");
    }
}

#[test]
fn derivation_resolves_to_that_of_nix() {
    let dir = StoreDir::default();
    let product = derivation(&path(PRODUCT));
    assert!(product.needs_resolution());
    assert!(!derivation(&path(TOOL)).needs_resolution());
    let resolve = |tool: Option<StorePath>| {
        let mut path_of = |input: &StorePath, output: &str| {
            assert_eq!((input.as_str(), output), (TOOL, "out"));
            Ok::<_, DerivationError>(tool.clone())
        };
        product.resolve(&dir, "product", &mut path_of).unwrap()
    };
    assert_eq!(resolve(None), None);
    let resolved = resolve(Some(path(TOOL_OUTPUT))).unwrap();
    assert_eq!(resolved, derivation(&path(RESOLVED_PRODUCT)));
    let found = resolved.store_path(&dir, "product").unwrap();
    assert_eq!(found.as_str(), RESOLVED_PRODUCT);
    assert!(!resolved.needs_resolution());
}
