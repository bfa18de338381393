//! The texts, signatures and properties of realisations.

use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;

use super::*;
use crate::hash::Hash;

const KEY: &str = "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA7aie8zrakLWKjqN\
                   Aqbw1zZTIVdx3iQ6Y6wEihi1naKQ==";

fn path(text: &str) -> StorePath {
    StorePath::parse(&format!("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-{text}")).unwrap()
}

fn realisation(id: &str) -> Realisation {
    Realisation {
        id: DrvOutput::parse(id).unwrap(),
        out_path: path("tool"),
        signatures: BTreeSet::new(),
        dependent_realisations: BTreeMap::new(),
    }
}

fn drv() -> String {
    format!("{}^out", path("tool.drv"))
}

#[test]
fn fingerprint_has_the_key_of_its_generation() {
    let hash = "0".repeat(64);
    assert_eq!(
        realisation(&format!("sha256:{hash}!out")).fingerprint(),
        format!(
            r#"{{"dependentRealisations":{{}},"id":"sha256:{hash}!out","outPath":"{}"}}"#,
            path("tool")
        )
    );
    assert_eq!(
        realisation(&drv()).fingerprint(),
        format!(
            r#"{{"key":{{"drvPath":"{}","outputName":"out"}},"value":{{"outPath":"{}"}}}}"#,
            path("tool.drv"),
            path("tool")
        )
    );
}

#[test]
fn signature_covers_id_path_and_dependencies() {
    let key = SecretKey::parse(KEY).unwrap();
    let keys = TrustedKeys::from_iter([key.public()]);
    let hash = "0".repeat(64);
    let mut signed = realisation(&format!("sha256:{hash}!out"));
    assert!(!signed.is_signed_by(&keys));
    signed.sign(&key);
    assert!(signed.is_signed_by(&keys));
    assert!(!signed.is_signed_by(&TrustedKeys::new()));
    let mut other = signed.clone();
    other.out_path = path("other");
    assert!(!other.is_signed_by(&keys));
    let mut other = signed.clone();
    other.id = DrvOutput::parse(&format!("sha256:{hash}!dev")).unwrap();
    assert!(!other.is_signed_by(&keys));
    let mut other = signed.clone();
    other
        .dependent_realisations
        .insert(signed.id.clone(), path("x"));
    assert!(!other.is_signed_by(&keys));
}

#[test]
fn object_of_another_output_is_refused() {
    let one = realisation(&format!("sha256:{}!out", "0".repeat(64)));
    let other = DrvOutput::parse(&format!("sha256:{}!dev", "0".repeat(64))).unwrap();
    let text = one.to_json().to_string();
    assert!(matches!(
        Realisation::parse(&other, text.as_bytes()),
        Err(RealisationError::OtherOutput(_))
    ));
}

#[test]
fn signatures_as_texts_parse_in_both_generations() {
    let mut signed = realisation(&drv());
    signed.sign(&SecretKey::parse(KEY).unwrap());
    let signature = signed.signatures.first().unwrap().to_string();
    let text = format!(
        r#"{{"outPath":"{}","signatures":["{signature}"]}}"#,
        path("tool")
    );
    assert_eq!(Realisation::parse(&signed.id, text.as_bytes()), Ok(signed));
}

#[test]
fn invalid_objects_are_refused() {
    let id = DrvOutput::parse(&drv()).unwrap();
    for text in [
        "",
        "[]",
        "{}",
        r#"{"outPath":1}"#,
        r#"{"outPath":"tool"}"#,
        r#"{"outPath":"7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-tool","signatures":{}}"#,
        r#"{"outPath":"7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-tool","signatures":[{"sig":"AAAA"}]}"#,
    ] {
        assert!(Realisation::parse(&id, text.as_bytes()).is_err(), "{text}");
    }
    let long = vec![b' '; REALISATION_LEN_MAX + 1];
    assert_eq!(
        Realisation::parse(&id, &long),
        Err(RealisationError::TooLong)
    );
}

#[test]
fn invalid_outputs_are_refused() {
    let hash = "0".repeat(64);
    for text in [
        String::new(),
        hash.clone(),
        format!("{hash}!out"),
        format!("sha256:{hash}!"),
        format!("sha256:{hash}!a/b"),
        format!("{}^", path("tool.drv")),
        format!("{}^a b", path("tool.drv")),
        format!("{}^out", path("tool")),
        "x.drv^out".into(),
    ] {
        assert!(DrvOutput::parse(&text).is_err(), "{text}");
    }
}

fn drv_output() -> impl Strategy<Value = DrvOutput> {
    let key = prop_oneof![
        any::<[u8; 32]>().prop_map(|digest| DrvKey::Hash(Hash::sha256(digest))),
        "[a-z0-9.]{1,20}".prop_map(|name| DrvKey::Path(path(&format!("a{name}.drv")))),
    ];
    let of = |(key, name): (DrvKey, String)| DrvOutput::new(key, &name).unwrap();
    (key, "[a-zA-Z0-9+._?=-]{1,20}").prop_map(of)
}

fn signature() -> impl Strategy<Value = Signature> {
    let of = |(name, bytes): (String, Vec<u8>)| {
        let text = format!("{name}:{}", crate::base64::encode(&bytes));
        Signature::parse(&text).unwrap()
    };
    (
        "[a-z0-9.-]{1,10}",
        prop::collection::vec(any::<u8>(), 1..80),
    )
        .prop_map(of)
}

proptest! {
    #[test]
    fn outputs_equal_what_their_texts_parse_to(id in drv_output()) {
        let parsed = DrvOutput::parse(&id.to_string());
        prop_assert_eq!(parsed.as_ref(), Ok(&id));
        let named = DrvOutput::from_object_name(&id.object_name());
        prop_assert_eq!(named.as_ref(), Some(&id));
    }

    #[test]
    fn realisations_equal_what_their_texts_parse_to(
        id in drv_output(),
        signatures in btree_set(signature(), 0..4),
        dependencies in btree_map(drv_output(), Just(path("dependency")), 0..4),
    ) {
        let is_by_hash = |id: &DrvOutput| matches!(id.key(), DrvKey::Hash(_));
        let mut dependent_realisations = dependencies;
        dependent_realisations.retain(|it, _| is_by_hash(it) && is_by_hash(&id));
        let realisation = Realisation {
            out_path: path("out"),
            id,
            signatures,
            dependent_realisations,
        };
        let text = realisation.to_json().to_string();
        let parsed = Realisation::parse(&realisation.id, text.as_bytes());
        prop_assert_eq!(parsed, Ok(realisation));
    }
}
