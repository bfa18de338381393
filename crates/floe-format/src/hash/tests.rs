//! Tests of the text forms of hashes.

use proptest::prelude::*;

use super::*;

fn abc() -> Hash {
    Hash::sha256(floe_hash::sha256(b"abc"))
}

#[test]
fn every_form_parses_to_same_hash() {
    let hash = abc();
    let plain = base64::encode(hash.digest());
    for text in [
        hash.to_nix32(),
        hash.to_base16(),
        hash.to_base16().replace("ba78", "BA78"),
        hash.to_sri(),
        format!("sha256:{plain}"),
        hash.to_sri().replace('=', ""),
        format!("{}rubbish after the padding", hash.to_sri()),
    ] {
        assert_eq!(Hash::parse_prefixed(&text), Ok(hash), "{text}");
    }
    assert_eq!(
        Hash::parse_unprefixed(&plain, HashAlgorithm::Sha256),
        Ok(hash)
    );
    assert_eq!(format!("{hash:?}"), hash.to_nix32());
}

#[test]
fn algorithm_of_text_and_caller_must_agree() {
    let bare = abc().digest_nix32();
    assert_eq!(
        Hash::parse_any(&bare, Some(HashAlgorithm::Sha256)),
        Ok(abc())
    );
    assert_eq!(
        Hash::parse_any(&abc().to_sri(), Some(HashAlgorithm::Sha256)),
        Ok(abc())
    );
    assert_eq!(
        Hash::parse_prefixed(&bare),
        Err(HashError::MissingAlgorithm(bare.clone()))
    );
    let text = abc().to_nix32();
    let expected = HashAlgorithm::Blake3;
    assert_eq!(
        Hash::parse_any(&text, Some(expected)),
        Err(HashError::AlgorithmMismatch { text, expected })
    );
    assert!(matches!(
        Hash::parse_prefixed(&format!("sha224:{bare}")),
        Err(HashError::UnknownAlgorithm { algorithm, .. }) if algorithm == "sha224"
    ));
}

#[test]
fn invalid_digest_is_error() {
    let too_long = format!("{}A", abc().to_sri().replace('=', ""));
    for text in [
        "sha256:",
        "sha256:abc",
        "sha256-",
        "sha256-AAAA",
        "sha256:8b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s",
        "sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5e",
        "sha256:ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        too_long.as_str(),
        "",
        ":",
        "-",
    ] {
        assert!(Hash::parse_prefixed(text).is_err(), "{text}");
    }
    assert!(Hash::new(HashAlgorithm::Sha1, &[0; 21]).is_err());
    assert!(Hash::new(HashAlgorithm::Sha512, &[0; 65]).is_err());
}

proptest! {
    #[test]
    fn parse_reverses_print(which in 0_usize..5, bytes: [u8; 32], more: [u8; 32]) {
        let algorithm = HashAlgorithm::ALL[which];
        let bytes = [bytes, more].concat();
        let hash = Hash::new(algorithm, &bytes[..algorithm.digest_len()]).unwrap();
        for text in [hash.to_nix32(), hash.to_base16(), hash.to_sri()] {
            prop_assert_eq!(Hash::parse_prefixed(&text), Ok(hash));
        }
        for text in [hash.digest_nix32(), hash.digest_base16(), hash.digest_base64()] {
            prop_assert_eq!(Hash::parse_unprefixed(&text, algorithm), Ok(hash));
        }
    }
}
