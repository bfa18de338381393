//! Tests with narinfos, signatures, store paths and JSON that Nix wrote.

use std::collections::BTreeSet;

use floe_format::content_address::ContentAddressMethod;
use floe_format::hash::HashAlgorithm;
use floe_format::{
    CacheInfo, NarInfo, PublicKey, SecretKey, Signature, StoreDir, StorePath, TrustedKeys,
};
use serde_json::Value;

use crate::{text_vector, vector, vectors_in};

fn dir() -> StoreDir {
    StoreDir::default()
}

fn parse(text: &[u8]) -> NarInfo {
    NarInfo::parse(text, &dir()).expect("Nix wrote it")
}

/// Returns the narinfos of a binary cache that Nix wrote.
fn cache() -> Vec<NarInfo> {
    vectors_in("narinfo/cache", ".narinfo")
        .iter()
        .map(|(_, text)| parse(text))
        .collect()
}

fn key(file: &str) -> PublicKey {
    PublicKey::parse(&text_vector(&format!("narinfo/{file}"))).expect("Nix wrote it")
}

fn json(file: &str) -> Value {
    serde_json::from_slice(&vector(&format!("narinfo/{file}"))).expect("Nix wrote it")
}

#[test]
fn narinfos_print_as_by_nix() {
    let of_cache = vectors_in("narinfo/cache", ".narinfo");
    for (name, text) in of_cache
        .into_iter()
        .chain(vectors_in("narinfo", ".narinfo"))
    {
        assert_eq!(parse(&text).to_text(&dir()).into_bytes(), text, "{name}");
    }
}

#[test]
fn nar_file_names_are_those_of_nix() {
    for (name, text) in vectors_in("narinfo", ".narinfo") {
        let narinfo = parse(&text);
        let hash = narinfo.file_hash.unwrap().digest_nix32();
        let extension = narinfo.compression.file_extension();
        assert_eq!(narinfo.url, format!("nar/{hash}.nar{extension}"), "{name}");
    }
}

#[test]
fn signatures_by_nix_verify() {
    let trusted = TrustedKeys::from_iter([key("key.pub")]);
    let wrong = TrustedKeys::from_iter([key("key2.pub")]);
    let mut doubly_signed = 0;
    for narinfo in cache() {
        assert!(
            narinfo.info.is_signed_by(&dir(), &trusted),
            "{:?}",
            narinfo.info.path
        );
        doubly_signed += usize::from(narinfo.info.is_signed_by(&dir(), &wrong));
    }
    assert_eq!(doubly_signed, 1);
}

#[test]
fn sign_makes_same_signature_as_nix() {
    let secret = SecretKey::parse(&text_vector("narinfo/key.sec")).unwrap();
    assert_eq!(secret.to_text(), text_vector("narinfo/key.sec").trim_end());
    assert_eq!(secret.public(), key("key.pub"));
    for narinfo in cache() {
        let mut info = narinfo.info.clone();
        info.signatures.clear();
        info.sign(&dir(), &secret);
        assert!(
            info.signatures.is_subset(&narinfo.info.signatures),
            "{:?}",
            info.path
        );
    }
}

#[test]
fn content_addresses_match_paths_of_nix() {
    let mut kinds = BTreeSet::new();
    for narinfo in cache() {
        let Some(address) = narinfo.info.ca else {
            continue;
        };
        assert_eq!(
            narinfo.info.matches_content_address(&dir()),
            Some(true),
            "{address}"
        );
        let references = !narinfo.info.references.is_empty();
        kinds.insert((address.method, address.hash.algorithm(), references));
    }
    use HashAlgorithm::{Blake3, Md5, Sha1, Sha256, Sha512};
    let expected = [
        (ContentAddressMethod::Text, Sha256, false),
        (ContentAddressMethod::NixArchive, Sha256, true),
        (ContentAddressMethod::Flat, Md5, false),
        (ContentAddressMethod::Flat, Sha1, false),
        (ContentAddressMethod::Flat, Sha256, false),
        (ContentAddressMethod::Flat, Sha512, false),
        (ContentAddressMethod::NixArchive, Md5, false),
        (ContentAddressMethod::NixArchive, Sha1, false),
        (ContentAddressMethod::NixArchive, Sha256, false),
        (ContentAddressMethod::NixArchive, Sha512, false),
        (ContentAddressMethod::NixArchive, Blake3, false),
        (ContentAddressMethod::Git, Sha1, false),
        (ContentAddressMethod::Git, Sha256, false),
    ];
    for kind in expected {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn text_with_references_has_path_of_nix() {
    // nix-instantiate computed the path of builtins.toFile with a text that refers to another file.
    let text = StorePath::parse("x0ngbys88jnf31vn7mc9ccmr4mrflnzl-text").unwrap();
    let contents = format!("see {}\n", dir().full_path(&text));
    let hash = floe_format::Hash::sha256(floe_hash::sha256(contents.as_bytes()));
    let address = floe_format::ContentAddress {
        method: ContentAddressMethod::Text,
        hash,
    };
    let path = address.store_path(
        &dir(),
        "text-with-reference",
        &BTreeSet::from([text]),
        false,
    );
    assert_eq!(
        path.unwrap().as_str(),
        "qj956v30gha3h6i7vjy2axmckmhq9ph1-text-with-reference"
    );
}

#[test]
fn json_of_cache_is_that_of_nix() {
    let of_cache = json("cache.json");
    for narinfo in cache() {
        let expected = &of_cache[dir().full_path(&narinfo.info.path)];
        assert_eq!(narinfo.to_json(&dir()), *expected);
    }
    for (name, text) in vectors_in("narinfo", ".narinfo") {
        let narinfo = parse(&text);
        let expected =
            &json(&name.replace(".narinfo", ".json"))[dir().full_path(&narinfo.info.path)];
        assert_eq!(narinfo.to_json(&dir()), *expected, "{name}");
    }
}

#[test]
fn json_of_local_store_is_that_of_nix() {
    let local = json("local.json");
    for narinfo in cache() {
        let mut info = narinfo.info;
        let expected = &local[dir().full_path(&info.path)];
        info.registration_time = expected["registrationTime"].as_u64();
        info.ultimate = expected["ultimate"].as_bool().unwrap();
        let signatures = expected["signatures"].as_array().unwrap();
        info.signatures = signatures
            .iter()
            .map(|signature| Signature::parse(signature.as_str().unwrap()).unwrap())
            .collect();
        assert_eq!(info.to_json(&dir()), *expected);
    }
}

#[test]
fn nix_cache_info_of_nix_parses() {
    let text = vector("narinfo/nix-cache-info");
    let info = CacheInfo::parse(&text).unwrap();
    assert_eq!(info.store_dir, dir());
    assert_eq!(info.to_text().into_bytes(), text);
}
