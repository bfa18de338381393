//! Tests with hand-written derivations. The integration tests use derivations by Nix.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::hash::HashAlgorithm;

const PATH: &str = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x";
const INPUT: &str = "/nix/store/1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y.drv";
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn dir() -> StoreDir {
    StoreDir::default()
}

fn parse(text: &str) -> Result<Derivation, DerivationError> {
    Derivation::parse(text.as_bytes(), &dir(), "x")
}

/// Returns the text of a derivation with these outputs.
fn with_outputs(outputs: &str) -> String {
    format!(r#"Derive([{outputs}],[],[],"p","b",[],[])"#)
}

fn path(text: &str) -> StorePath {
    dir().parse(text).unwrap()
}

fn cannot_read(path: &StorePath) -> Result<Derivation, DerivationError> {
    Err(DerivationError::Read {
        path: path.clone(),
        reason: "no input can be read".into(),
    })
}

fn check(derivation: &Derivation, name: &str) -> Result<(), DerivationError> {
    derivation.check_invariants(
        &dir(),
        name,
        &mut DerivationHashCache::default(),
        &mut cannot_read,
    )
}

#[test]
fn full_term_parses_and_prints() {
    let inputs = format!(r#"[("{INPUT}",["dev","out"])],["{PATH}"]"#);
    let builder = r#""x86_64-linux","/bin/sh",["-c","a\"\\\n\r\tb"],[("A",""),("é","\t")]"#;
    let text = format!(r#"Derive([("out","{PATH}","","")],{inputs},{builder})"#);
    let derivation = parse(&text).unwrap();
    assert_eq!(
        derivation.outputs["out"],
        DerivationOutput::InputAddressed(path(PATH))
    );
    assert_eq!(derivation.input_derivations[&path(INPUT)].len(), 2);
    assert_eq!(derivation.args[1], b"a\"\\\n\r\tb");
    assert_eq!(derivation.to_aterm(&dir(), "x").unwrap(), text.as_bytes());
}

#[test]
fn every_truncation_or_addition_is_error() {
    let inputs = format!(r#"[("{INPUT}",["out"])],["{PATH}"]"#);
    let text = format!(r#"Derive([("out","{PATH}","","")],{inputs},"p","b",["\\"],[("A","a")])"#);
    for len in 0..text.len() {
        assert!(parse(&text[..len]).is_err(), "after {len} bytes");
    }
    assert!(parse(&text).is_ok());
    for more in [" ", "\n", ")"] {
        assert!(parse(&format!("{text}{more}")).is_err());
    }
}

#[test]
fn each_kind_of_output_parses() {
    let output = |fields: &str| {
        parse(&with_outputs(&format!(r#"("out",{fields})"#))).map(|mut derivation| {
            let text = derivation.to_aterm(&dir(), "x").unwrap();
            assert_eq!(
                text,
                with_outputs(&format!(r#"("out",{fields})"#)).as_bytes()
            );
            derivation.outputs.remove("out").unwrap()
        })
    };
    let algorithm = HashAlgorithm::Sha256;
    assert_eq!(output(r#""","","""#), Ok(DerivationOutput::Deferred));
    assert_eq!(
        output(r#""","r:sha256","""#),
        Ok(DerivationOutput::Floating {
            method: ContentAddressMethod::NixArchive,
            algorithm
        })
    );
    assert_eq!(
        output(r#""","text:sha256","""#),
        Ok(DerivationOutput::Floating {
            method: ContentAddressMethod::Text,
            algorithm
        })
    );
    assert_eq!(
        output(r#""","sha256","impure""#),
        Ok(DerivationOutput::Impure {
            method: ContentAddressMethod::Flat,
            algorithm
        })
    );
    let hash = Hash::parse_unprefixed(ABC, algorithm).unwrap();
    let address = ContentAddress {
        method: ContentAddressMethod::Flat,
        hash,
    };
    let fixed = dir().full_path(
        &address
            .store_path(&dir(), "x", &BTreeSet::new(), false)
            .unwrap(),
    );
    assert_eq!(
        output(&format!(r#""{fixed}","sha256","{ABC}""#)),
        Ok(DerivationOutput::Fixed(address))
    );
    assert!(matches!(
        output(&format!(r#""{PATH}","sha256","{ABC}""#)),
        Err(DerivationError::OutputPathMismatch { .. })
    ));
    assert!(matches!(
        output(&format!(r#""{fixed}","sha256","abc""#)),
        Err(DerivationError::Hash { .. })
    ));
    assert!(matches!(
        output(r#""","sha3","""#),
        Err(DerivationError::UnknownAlgorithm { .. })
    ));
    for hash in ["", "impure"] {
        assert!(matches!(
            output(&format!(r#""{PATH}","sha256","{hash}""#)),
            Err(DerivationError::UnexpectedPath { .. })
        ));
    }
}

#[test]
fn malformed_term_is_error() {
    for text in [
        "",
        "Derive",
        "derive([],[],[],\"\",\"\",[],[])",
        r#"Derive( [],[],[],"p","b",[],[])"#,
        r#"Derive([],[],[],"p","b",[])"#,
        r#"Derive([],[],[],"p","b",[],[],[])"#,
        r#"Derive([],[],["x"],"p","b",[],[])"#,
        r#"Derive([],[],["/nix/store//7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x"],"p","b",[],[])"#,
        r#"Derive([],[],[],"p","b",["a",],[])"#,
        r#"Derive([],[],[],"p","b",[],["a"])"#,
        r#"Derive([],[],[],"p\n","b",[],[])"#,
        r#"Derive([],[],[],"p","b\",[],[])"#,
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    let input = format!(r#"Derive([],[("{INPUT}",[])],[],"p","b",[],[])"#);
    assert_eq!(
        parse(&input),
        Err(DerivationError::NoOutputsUsed(path(INPUT)))
    );
    let not_utf8 = b"Derive([],[],[],\"\xff\",\"b\",[],[])";
    let error = DerivationError::NotUnescaped { offset: 16 };
    assert_eq!(Derivation::parse(not_utf8, &dir(), "x"), Err(error));
}

#[test]
fn dynamic_derivation_is_unsupported() {
    let text = r#"DrvWithVersion("xp-dyn-drv",[],[],[],"p","b",[],[])"#;
    assert_eq!(parse(text), Err(DerivationError::DrvWithVersion));
}

#[test]
fn commas_are_optional_as_in_nix() {
    let strict = parse(r#"Derive([],[],[],"p","b",["a","b"],[])"#).unwrap();
    for args in [r#"["a""b"]"#, r#"[,"a","b"]"#] {
        assert_eq!(
            parse(&format!(r#"Derive([],[],[],"p","b",{args},[])"#)),
            Ok(strict.clone())
        );
    }
}

#[test]
fn builder_strings_may_hold_any_bytes() {
    let text = b"Derive([],[],[],\"p\",\"\xff\",[\"\xfe\"],[(\"\xfd\",\"\x00\")])";
    let derivation = Derivation::parse(text, &dir(), "x").unwrap();
    assert_eq!(derivation.builder, b"\xff");
    assert_eq!(derivation.to_aterm(&dir(), "x").unwrap(), text);
    let odd = parse(r#"Derive([],[],[],"p","\a\0",[],[])"#).unwrap();
    assert_eq!(
        odd.builder, b"a0",
        "an unknown escape stands for its second character"
    );
}

#[test]
fn incompatible_output_kinds_are_errors() {
    let check = |outputs: &str| check(&parse(&with_outputs(outputs)).unwrap(), "x");
    assert!(check(r#"("out","","r:sha256",""),("dev","","sha256","")"#).is_ok());
    assert!(check(r#"("out","","r:sha256","impure"),("dev","","r:sha1","impure")"#).is_ok());
    assert!(check(r#"("out","","",""),("dev","","","")"#).is_ok());
    for outputs in [
        "",
        r#"("out","","r:sha256",""),("dev","","r:sha512","")"#,
        r#"("out","","r:sha256",""),("dev","","","")"#,
        r#"("out","","r:sha256",""),("dev","","r:sha256","impure")"#,
        &format!(r#"("out","","",""),("dev","{PATH}","","")"#),
    ] {
        assert!(
            matches!(check(outputs), Err(DerivationError::InvalidOutputs { .. })),
            "{outputs}"
        );
    }
}

#[test]
fn fixed_output_must_be_single_and_named_out() {
    let hash = Hash::parse_unprefixed(ABC, HashAlgorithm::Sha256).unwrap();
    let fixed = DerivationOutput::Fixed(ContentAddress {
        method: ContentAddressMethod::Flat,
        hash,
    });
    let mut derivation = parse(&with_outputs("")).unwrap();
    derivation.outputs.insert("dev".into(), fixed.clone());
    assert!(matches!(
        check(&derivation, "x"),
        Err(DerivationError::InvalidOutputs { .. })
    ));
    derivation.outputs.insert("out".into(), fixed);
    assert!(matches!(
        check(&derivation, "x"),
        Err(DerivationError::InvalidOutputs { .. })
    ));
    derivation.outputs.remove("dev");
    assert!(matches!(
        check(&derivation, "x"),
        Err(DerivationError::OutputVariableMismatch { .. })
    ));
    let path = derivation
        .output_paths(&dir(), "x")
        .remove("out")
        .flatten()
        .unwrap();
    derivation
        .env
        .insert(b"out".to_vec(), dir().full_path(&path).into_bytes());
    assert_eq!(check(&derivation, "x"), Ok(()));
}

#[test]
fn input_cycle_is_error_and_long_chain_is_not() {
    let name = |index: usize| format!("{index:032}-x{index}.drv").replace('e', "a");
    let chain = |path: &StorePath, len: usize| {
        let index: usize = path.hash_part().as_str().parse().unwrap();
        let mut derivation = parse(&with_outputs(&format!(r#"("out","{PATH}","","")"#))).unwrap();
        let next = StorePath::parse(&name((index + 1) % len)).unwrap();
        if index + 1 < len || len == 3 {
            derivation
                .input_derivations
                .insert(next, BTreeSet::from(["out".into()]));
        }
        Ok(derivation)
    };
    let start = |len| {
        let first = chain(&StorePath::parse(&name(0)).unwrap(), len).unwrap();
        first.check_invariants(
            &dir(),
            "x0",
            &mut DerivationHashCache::default(),
            &mut |path| chain(path, len),
        )
    };
    assert!(matches!(start(3), Err(DerivationError::Cycle(_))));
    assert!(matches!(
        start(5000),
        Err(DerivationError::OutputPathMismatch { .. })
    ));
}

#[test]
fn invalid_input_derivations_are_errors() {
    let mut derivation = parse(&with_outputs(&format!(r#"("out","{PATH}","","")"#))).unwrap();
    let outputs = BTreeSet::from(["dev".to_owned()]);
    derivation
        .input_derivations
        .insert(path(INPUT), outputs.clone());
    assert!(matches!(
        check(&derivation, "x"),
        Err(DerivationError::Read { .. })
    ));
    let with = |input: Derivation| {
        let mut read = |_: &StorePath| Ok(input.clone());
        derivation.check_invariants(&dir(), "x", &mut DerivationHashCache::default(), &mut read)
    };
    let floating = parse(&with_outputs(r#"("dev","","r:sha256","")"#)).unwrap();
    assert!(matches!(
        with(floating),
        Err(DerivationError::ShouldBeDeferred { .. })
    ));
    let hash = Hash::parse_unprefixed(ABC, HashAlgorithm::Sha256).unwrap();
    let mut fixed = parse(&with_outputs("")).unwrap();
    let address = ContentAddress {
        method: ContentAddressMethod::Flat,
        hash,
    };
    fixed
        .outputs
        .insert("out".into(), DerivationOutput::Fixed(address));
    assert!(matches!(
        with(fixed),
        Err(DerivationError::NoSuchOutput { .. })
    ));
    let mut not_a_derivation = derivation.clone();
    not_a_derivation.input_derivations = BTreeMap::from([(path(PATH), outputs)]);
    let mut read = |_: &StorePath| parse(&with_outputs(""));
    assert!(matches!(
        not_a_derivation.check_invariants(
            &dir(),
            "x",
            &mut DerivationHashCache::default(),
            &mut read
        ),
        Err(DerivationError::NotADerivation(_))
    ));
}

#[test]
fn name_comes_from_path() {
    assert_eq!(Derivation::name_from_path(&path(INPUT)), Ok("y"));
    assert!(Derivation::name_from_path(&path(PATH)).is_err());
    assert_eq!(output_path_name("x", "out"), "x");
    assert_eq!(output_path_name("x", "dev"), "x-dev");
}

#[test]
fn length_is_limited() {
    let long = vec![b' '; DERIVATION_LEN_MAX + 1];
    let error = DerivationError::TooLong(long.len());
    assert_eq!(Derivation::parse(&long, &dir(), "x"), Err(error));
}

fn store_path() -> impl Strategy<Value = StorePath> {
    "[0-9a-df-np-sv-z]{32}-[a-zA-Z0-9+_?=]{1,8}"
        .prop_map(|text| StorePath::parse(&text).expect("a store path"))
}

fn output() -> impl Strategy<Value = DerivationOutput> {
    let (algorithm, method) = (HashAlgorithm::Sha1, ContentAddressMethod::NixArchive);
    prop_oneof![
        store_path().prop_map(DerivationOutput::InputAddressed),
        any::<[u8; 32]>().prop_map(|digest| {
            let hash = Hash::sha256(digest);
            DerivationOutput::Fixed(ContentAddress {
                method: ContentAddressMethod::Flat,
                hash,
            })
        }),
        Just(DerivationOutput::Floating { method, algorithm }),
        Just(DerivationOutput::Deferred),
        Just(DerivationOutput::Impure { method, algorithm }),
    ]
}

prop_compose! {
    fn derivation()(
        outputs in btree_map("[a-z]{1,4}", output(), 0..4),
        input_derivations in btree_map(store_path(), btree_set("[a-z]{1,4}", 1..3), 0..3),
        input_sources in btree_set(store_path(), 0..3),
        platform in "[a-z0-9_-]{0,10}",
        builder: Vec<u8>,
        args in vec(any::<Vec<u8>>(), 0..3),
        env in btree_map(any::<Vec<u8>>(), any::<Vec<u8>>(), 0..3),
    ) -> Derivation {
        Derivation { outputs, input_derivations, input_sources, platform, builder, args, env }
    }
}

proptest! {
    #[test]
    fn parse_reverses_to_aterm(derivation in derivation()) {
        let text = derivation.to_aterm(&dir(), "x").unwrap();
        prop_assert_eq!(Derivation::parse(&text, &dir(), "x").unwrap(), derivation);
    }

    #[test]
    fn parsing_damaged_text_does_not_panic(
        derivation in derivation(),
        at: prop::sample::Index,
        value: u8,
    ) {
        let mut text = derivation.to_aterm(&dir(), "x").unwrap();
        let at = at.index(text.len());
        text[at] = value;
        let _ = Derivation::parse(&text, &dir(), "x");
    }
}
