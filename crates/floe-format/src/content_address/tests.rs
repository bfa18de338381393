//! Tests of content addresses and of hashing modulo a hash part.

use proptest::prelude::*;

use floe_hash::Hasher;

use super::modulo_hasher::PIECE_LEN;
use super::*;

const HASH_PART: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

fn abc(method: ContentAddressMethod, algorithm: HashAlgorithm) -> ContentAddress {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(b"abc");
    ContentAddress {
        method,
        hash: Hash::new(algorithm, &hasher.finish()).unwrap(),
    }
}

fn modulo(contents: &[u8], cuts: &[usize]) -> Hash {
    let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, HASH_PART);
    let mut rest = contents;
    for cut in cuts {
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        hasher.update(piece);
        rest = after;
    }
    hasher.update(rest);
    hasher.finish()
}

#[test]
fn every_method_prints_and_parses() {
    for (method, prefix) in [
        (ContentAddressMethod::Text, "text:sha256:"),
        (ContentAddressMethod::Flat, "fixed:sha256:"),
        (ContentAddressMethod::NixArchive, "fixed:r:sha256:"),
        (ContentAddressMethod::Git, "fixed:git:sha256:"),
    ] {
        let address = abc(method, HashAlgorithm::Sha256);
        assert!(address.to_string().starts_with(prefix));
        assert_eq!(ContentAddress::parse(&address.to_string()), Ok(address));
        let hex = format!("{prefix}{}", address.hash.digest_base16());
        assert_eq!(ContentAddress::parse(&hex), Ok(address));
    }
}

#[test]
fn malformed_content_address_is_error() {
    let hash = abc(ContentAddressMethod::Text, HashAlgorithm::Sha256).hash;
    for text in [
        String::new(),
        "text".into(),
        "text:".into(),
        "fixed:sha256".into(),
        "fixed:sha256:".into(),
        "fixed:r:r:".into(),
        hash.to_nix32(),
        format!("fixed:{}", hash.to_sri()),
        format!("recursive:{}", hash.to_nix32()),
        format!("text:r:{}", hash.to_nix32()),
        format!("fixed:sha512:{}", hash.digest_nix32()),
        format!("fixed: {}", hash.to_nix32()),
    ] {
        assert!(ContentAddress::parse(&text).is_err(), "{text:?}");
    }
}

#[test]
fn only_texts_and_sha256_nars_may_have_references() {
    let dir = StoreDir::default();
    let none = BTreeSet::new();
    let some = BTreeSet::from([StorePath::parse(&format!("{HASH_PART}-x")).unwrap()]);
    let path = |method, algorithm, references, own| {
        abc(method, algorithm).store_path(&dir, "x", references, own)
    };
    use HashAlgorithm::{Md5, Sha1, Sha256};
    assert!(path(ContentAddressMethod::Text, Sha256, &some, false).is_ok());
    assert!(path(ContentAddressMethod::Text, Sha256, &none, true).is_err());
    assert!(path(ContentAddressMethod::Text, Sha1, &none, false).is_err());
    assert!(path(ContentAddressMethod::NixArchive, Sha256, &some, true).is_ok());
    assert!(path(ContentAddressMethod::NixArchive, Sha1, &none, false).is_ok());
    assert!(path(ContentAddressMethod::NixArchive, Sha1, &some, false).is_err());
    assert!(path(ContentAddressMethod::NixArchive, Sha1, &none, true).is_err());
    assert!(path(ContentAddressMethod::Flat, Sha256, &none, false).is_ok());
    assert!(path(ContentAddressMethod::Flat, Sha256, &some, false).is_err());
    assert!(path(ContentAddressMethod::Git, Sha1, &none, false).is_ok());
    assert!(path(ContentAddressMethod::Git, Md5, &none, false).is_err());
    assert!(
        abc(ContentAddressMethod::Flat, Md5)
            .store_path(&dir, "a b", &none, false)
            .is_err()
    );
}

#[test]
fn contents_without_hash_part_have_ordinary_hash() {
    for contents in [&b""[..], b"abc", &[b'7'; 1000], &HASH_PART.as_bytes()[1..]] {
        assert_eq!(
            modulo(contents, &[]),
            Hash::sha256(floe_hash::sha256(contents))
        );
    }
    let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, "");
    hasher.update(b"abc");
    assert_eq!(hasher.finish(), Hash::sha256(floe_hash::sha256(b"abc")));
}

#[test]
fn occurrences_hash_as_zeros_followed_by_offsets() {
    let contents = format!("ab{HASH_PART}{HASH_PART}c7bw2{HASH_PART}");
    let mut expected = b"ab".to_vec();
    expected.extend([0; 64]);
    expected.extend(b"c7bw2");
    expected.extend([0; 32]);
    expected.extend(b"|2|34|71");
    let expected = Hash::sha256(floe_hash::sha256(&expected));
    assert_eq!(modulo(contents.as_bytes(), &[]), expected);
    for cut in 0..=contents.len() {
        assert_eq!(
            modulo(contents.as_bytes(), &[cut, 1, 7]),
            expected,
            "cut at {cut}"
        );
    }
    assert_eq!(
        modulo(contents.as_bytes(), &vec![1; contents.len()]),
        expected
    );
}

#[test]
fn occurrence_across_internal_pieces_is_found() {
    let mut contents = vec![b'.'; PIECE_LEN - 5];
    contents.extend(HASH_PART.as_bytes());
    let mut expected = vec![b'.'; PIECE_LEN - 5];
    expected.extend([0; 32]);
    expected.extend(format!("|{}", PIECE_LEN - 5).as_bytes());
    assert_eq!(
        modulo(&contents, &[]),
        Hash::sha256(floe_hash::sha256(&expected))
    );
}

proptest! {
    #[test]
    fn modulo_hash_is_independent_of_cuts(
        pieces in prop::collection::vec(
            prop_oneof![Just(HASH_PART.to_owned()), "[7bw2dc]{0,40}"],
            0..8,
        ),
        cuts in prop::collection::vec(0_usize..70, 0..8),
    ) {
        let contents = pieces.concat();
        prop_assert_eq!(modulo(contents.as_bytes(), &cuts), modulo(contents.as_bytes(), &[]));
    }
}
