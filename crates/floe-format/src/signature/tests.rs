//! Tests of signatures and keys.

use proptest::prelude::*;

use super::*;

fn key(name: &str) -> SecretKey {
    SecretKey::from_seed(name, [7; SEED_LEN]).unwrap()
}

#[test]
fn signature_verifies_only_with_key_name_and_message() {
    let signature = key("a").sign(b"message");
    assert!(key("a").public().verify(b"message", &signature));
    assert!(!key("a").public().verify(b"massage", &signature));
    assert!(
        !key("b").public().verify(b"message", &signature),
        "the name differs"
    );
    let other = SecretKey::from_seed("a", [8; SEED_LEN]).unwrap();
    assert!(
        !other.public().verify(b"message", &signature),
        "the key differs"
    );
    let short = Signature::parse("a:AAAA").unwrap();
    assert!(!key("a").public().verify(b"message", &short));
}

#[test]
fn secret_key_parses_from_its_text_and_newline() {
    let key = key("cache-1");
    let parsed = SecretKey::parse(&format!("{}\n", key.to_text())).unwrap();
    assert_eq!(parsed.to_text(), key.to_text());
    assert_eq!(parsed.public(), key.public());
    assert_eq!(parsed.name(), "cache-1");
}

#[test]
fn secret_key_is_absent_from_debug_and_errors() {
    let key = key("cache-1");
    assert_eq!(format!("{key:?}"), "SecretKey(cache-1:…)");
    let text = key.to_text();
    let (_, secret) = text.split_once(':').unwrap();
    let damaged = format!("cache-1:{}", &secret[4..]);
    let shown = format!("{:?}", SecretKey::parse(&damaged).unwrap_err());
    assert!(!shown.contains(&secret[8..20]), "{shown}");
}

#[test]
fn secret_key_with_mismatched_halves_is_error() {
    let mut bytes = [7; SECRET_KEY_LEN];
    bytes[SEED_LEN..].fill(9);
    let text = format!("a:{}", base64::encode(&bytes));
    assert!(matches!(
        SecretKey::parse(&text),
        Err(SignatureError::KeyPairMismatch { .. })
    ));
}

#[test]
fn exchanged_keys_are_named_without_their_bytes() {
    let (secret, public) = (key("a-1").to_text(), key("a-1").public().to_string());
    for (error, part) in [
        (SecretKey::parse(&public).unwrap_err(), "it is a public key"),
        (PublicKey::parse(&secret).unwrap_err(), "it is a secret key"),
    ] {
        assert!(error.reason().contains(part), "{error}");
        assert!(error.to_string().contains(error.reason()), "{error}");
        let shown = format!("{error} {error:?}");
        for text in [&secret, &public] {
            let (_, bytes) = text.split_once(':').unwrap();
            assert!(!shown.contains(&bytes[..8]), "{shown}");
        }
    }
    // A signature is as long as a secret key, and is none.
    let signature = key("a-1").sign(b"message").to_string();
    assert!(matches!(
        PublicKey::parse(&signature),
        Err(SignatureError::KeyLength { .. })
    ));
}

#[test]
fn malformed_text_is_error() {
    for text in [
        "",
        ":",
        "a",
        "a:",
        ":AAAA",
        "a:====",
        "a:\n",
        "a:!",
        "a b:AAAA",
        "a\nb:AAAA",
    ] {
        assert!(Signature::parse(text).is_err(), "{text:?}");
        assert!(PublicKey::parse(text).is_err(), "{text:?}");
        assert!(SecretKey::parse(text).is_err(), "{text:?}");
    }
    for rest in [",b-1:AAAA", "=,", " b", "A", "=A="] {
        let text = format!("{CACHE_NIXOS_ORG_KEY}{rest}");
        let refused = Err(SignatureError::TextAfterKey {
            name: "cache.nixos.org-1".into(),
        });
        assert_eq!(PublicKey::parse(&text), refused, "{text:?}");
    }
    for end in ["=", "\n"] {
        let text = format!("{CACHE_NIXOS_ORG_KEY}{end}");
        assert!(PublicKey::parse(&text).is_ok(), "{text:?}");
    }
    assert!(matches!(
        PublicKey::parse("a:AAAA"),
        Err(SignatureError::KeyLength {
            kind: KeyOrSignature::PublicKey,
            len: 3,
            ..
        })
    ));
    for len in [1, 31, 33, 63, 65] {
        let text = format!("a:{}", base64::encode(&vec![0; len]));
        assert!(matches!(
            SecretKey::parse(&text),
            Err(SignatureError::KeyLength { .. })
        ));
    }
    for name in ["", "a:b", "a b", "a\n"] {
        assert!(
            SecretKey::from_seed(name, [0; SEED_LEN]).is_err(),
            "{name:?}"
        );
    }
}

#[test]
fn key_list_keeps_first_key_of_name() {
    let first = key("a").public();
    let second = SecretKey::from_seed("a", [8; SEED_LEN]).unwrap().public();
    let list = format!(" {first}\n{second}  {CACHE_NIXOS_ORG_KEY} ");
    let mut trusted = TrustedKeys::parse_list(&list).unwrap();
    assert_eq!(
        trusted.names().collect::<Vec<_>>(),
        ["a", "cache.nixos.org-1"]
    );
    assert!(trusted.verify(b"m", &key("a").sign(b"m")));
    assert!(!trusted.insert(second));
    assert!(!trusted.verify(b"m", &key("b").sign(b"m")));
    assert!(trusted.insert(key("b").public()));
    assert!(trusted.verify(b"m", &key("b").sign(b"m")));
    assert!(TrustedKeys::parse_list("a:AAAA").is_err());
    assert!(TrustedKeys::parse_list(" ").unwrap().is_empty());
}

proptest! {
    #[test]
    fn parse_reverses_print(
        name in "[^\\s:\\pC]{1,20}",
        bytes in prop::collection::vec(any::<u8>(), 1..80),
        seed: [u8; 32],
    ) {
        let text = format!("{name}:{}", base64::encode(&bytes));
        let signature = Signature::parse(&text).unwrap();
        prop_assert_eq!(signature.bytes(), bytes);
        prop_assert_eq!(signature.to_string(), text);
        let key = SecretKey::from_seed(&name, seed).unwrap().public();
        prop_assert_eq!(PublicKey::parse(&key.to_string()).unwrap(), key);
    }
}
