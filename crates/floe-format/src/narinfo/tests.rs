//! Tests with narinfos that differ in one field from a valid one.

use proptest::prelude::*;

use super::*;
use crate::content_address::{ContentAddress, ContentAddressMethod};
use crate::hash::HashAlgorithm;
use crate::signature::{SecretKey, Signature};

const GOOD: &str = "\
StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x
URL: nar/x.nar.xz
Compression: xz
FileHash: sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s
FileSize: 99
NarHash: sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s
NarSize: 120
References: 1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y 7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x
Deriver: 2bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x.drv
Sig: a:AAAA
Sig: b:BBBB
CA: fixed:r:sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s
";

fn parse(text: &str) -> Result<NarInfo, NarInfoError> {
    NarInfo::parse(text.as_bytes(), &StoreDir::default())
}

/// Returns the valid narinfo with the lines of one field replaced by another text.
fn with(field: &str, replacement: &str) -> String {
    let start = format!("{field}:");
    let lines = GOOD.split_inclusive('\n');
    lines
        .map(|line| {
            if line.starts_with(&start) {
                replacement
            } else {
                line
            }
        })
        .collect()
}

fn parse_with(field: &str, replacement: &str) -> Result<NarInfo, NarInfoError> {
    parse(&with(field, replacement))
}

fn field_problem(field: &str, replacement: &str) -> FieldProblem {
    match parse_with(field, replacement) {
        Err(NarInfoError::Field {
            field: found,
            problem,
            ..
        }) => {
            assert_eq!(found, field);
            problem
        }
        other => panic!("{replacement:?}: {other:?}"),
    }
}

#[test]
fn full_narinfo_prints_as_parsed() {
    let narinfo = parse(GOOD).unwrap();
    assert_eq!(narinfo.to_text(&StoreDir::default()), GOOD);
    assert_eq!(narinfo.info.references.len(), 2);
    assert_eq!(narinfo.info.signatures.len(), 2);
    assert_eq!(narinfo.file_size, Some(99));
}

#[test]
fn only_four_fields_are_required() {
    for field in ["StorePath", "URL", "NarHash", "NarSize"] {
        assert_eq!(parse_with(field, ""), Err(NarInfoError::Missing(field)));
    }
    for field in [
        "Compression",
        "FileHash",
        "FileSize",
        "References",
        "Deriver",
        "Sig",
        "CA",
    ] {
        assert!(parse_with(field, "").is_ok(), "{field}");
    }
    assert_eq!(
        parse_with("URL", "URL: \n"),
        Err(NarInfoError::Missing("URL"))
    );
    assert_eq!(
        parse_with("NarSize", "NarSize: 0\n"),
        Err(NarInfoError::Missing("NarSize"))
    );
    assert_eq!(parse(""), Err(NarInfoError::Missing("StorePath")));
}

#[test]
fn missing_or_empty_compression_means_bzip2() {
    for text in ["", "Compression: \n"] {
        assert_eq!(
            parse_with("Compression", text).unwrap().compression,
            Compression::Bzip2
        );
    }
    // An empty value also replaces an earlier one.
    let text = "Compression: xz\nCompression: \n";
    assert_eq!(
        parse_with("Compression", text).unwrap().compression,
        Compression::Bzip2
    );
    let lzip = parse_with("Compression", "Compression: lzip\n").unwrap();
    assert_eq!(lzip.compression, Compression::Unsupported("lzip"));
    assert!(matches!(
        field_problem("Compression", "Compression: rot13\n"),
        FieldProblem::Compression(_)
    ));
}

#[test]
fn value_starts_two_bytes_after_colon() {
    assert_eq!(
        parse_with("URL", "URL:xabc\n").unwrap().url,
        "abc",
        "the first byte is skipped"
    );
    assert_eq!(parse_with("URL", "URL:  abc\n").unwrap().url, " abc");
    assert_eq!(parse_with("URL", "URL: a:b: c\n").unwrap().url, "a:b: c");
    assert_eq!(
        parse_with("URL", "URL:\nOther: b\n").unwrap().url,
        "Other: b"
    );
    assert_eq!(parse_with("URL", "URL: a\r\n").unwrap().url, "a\r");
}

#[test]
fn line_without_colon_or_newline_is_error() {
    assert_eq!(
        parse(GOOD.trim_end()),
        Err(NarInfoError::NoNewline { line: 12 })
    );
    assert_eq!(
        parse(&format!("{GOOD}X:")),
        Err(NarInfoError::NoNewline { line: 13 })
    );
    assert_eq!(
        parse(&format!("{GOOD}X: ")),
        Err(NarInfoError::NoNewline { line: 13 })
    );
    assert_eq!(
        parse(&format!("{GOOD}X:\n")),
        Err(NarInfoError::NoNewline { line: 13 })
    );
    assert_eq!(
        parse(&format!("{GOOD}\n")),
        Err(NarInfoError::NoColon { line: 13 })
    );
    assert_eq!(
        parse(&format!("{GOOD}no colon\n")),
        Err(NarInfoError::NoColon { line: 13 })
    );
    // The text up to the next colon is the name of one unknown field.
    let skipped = parse_with("URL", "URL: a\nno colon\nURL: b\n").unwrap();
    assert_eq!(skipped.url, "a");
}

#[test]
fn unknown_fields_are_skipped() {
    let good = parse(GOOD).unwrap();
    for duplicate in [
        "System: x86_64-linux\n",
        "url: b\n",
        " URL: b\n",
        "URL : b\n",
        ": b\n",
        "::\n: \n",
    ] {
        assert_eq!(
            parse(&format!("{duplicate}{GOOD}")).unwrap(),
            good,
            "{duplicate:?}"
        );
    }
    let mut bytes = b"Other\xff: \xff\n".to_vec();
    bytes.extend(GOOD.as_bytes());
    assert_eq!(NarInfo::parse(&bytes, &StoreDir::default()).unwrap(), good);
}

#[test]
fn last_of_equal_fields_counts() {
    let twice = parse_with("URL", "URL: a\nURL: b\n").unwrap();
    assert_eq!(twice.url, "b");
    let twice = parse_with("NarSize", "NarSize: 0\nNarSize: 7\n").unwrap();
    assert_eq!(twice.info.nar_size, 7);
    assert!(
        parse_with("NarSize", "NarSize: x\nNarSize: 7\n").is_err(),
        "all values must be valid"
    );
    let twice = parse_with(
        "StorePath",
        "StorePath: /nix/store/1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y\n\
         StorePath: /nix/store/2bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-z\n",
    );
    assert_eq!(twice.unwrap().info.path.name(), "z");
}

#[test]
fn repeated_references_or_ca_is_error() {
    let line = "References: 1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y\n";
    let duplicate = |field| Err(NarInfoError::Duplicate { line: 9, field });
    assert_eq!(
        parse_with("References", &line.repeat(2)),
        duplicate("References")
    );
    assert_eq!(
        parse_with("References", &format!("{line}References: \n")),
        duplicate("References")
    );
    assert!(parse_with("References", &format!("References: \n{line}")).is_ok());
    let line = "CA: text:sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s\n";
    let duplicate = Err(NarInfoError::Duplicate {
        line: 13,
        field: "CA",
    });
    assert_eq!(parse_with("CA", &line.repeat(2)), duplicate);
    assert_eq!(parse_with("CA", &format!("{line}CA: \n")), duplicate);
    let parsed = parse_with("CA", &format!("CA: \n{line}")).unwrap();
    assert_eq!(parsed.info.ca.unwrap().method, ContentAddressMethod::Text);
    assert_eq!(parse_with("CA", "CA: \n").unwrap().info.ca, None);
    assert!(matches!(
        field_problem("CA", "CA: x\n"),
        FieldProblem::ContentAddress(_)
    ));
}

#[test]
fn references_are_base_names_separated_by_spaces() {
    let path = "1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y";
    let line = format!("References:   {path}  {path} \n");
    assert_eq!(
        parse_with("References", &line)
            .unwrap()
            .info
            .references
            .len(),
        1
    );
    for line in [
        format!("References: /nix/store/{path}\n"),
        format!("References: {path}\t{path}\n"),
        "References: y\n".into(),
    ] {
        assert!(matches!(
            field_problem("References", &line),
            FieldProblem::StorePath(_)
        ));
    }
}

#[test]
fn unknown_deriver_is_ignored() {
    let parsed = parse_with("Deriver", "Deriver: unknown-deriver\n").unwrap();
    assert_eq!(parsed.info.deriver, None);
    // A known deriver before it is kept.
    let path = "1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y.drv";
    let lines = format!("Deriver: {path}\nDeriver: unknown-deriver\n");
    assert!(
        parse_with("Deriver", &lines)
            .unwrap()
            .info
            .deriver
            .is_some()
    );
    for line in [
        "Deriver: \n".into(),
        format!("Deriver: /nix/store/{path}\n"),
    ] {
        assert!(matches!(
            field_problem("Deriver", &line),
            FieldProblem::StorePath(_)
        ));
    }
}

#[test]
fn number_must_be_decimal_of_64_bits() {
    for (text, size) in [
        ("1", 1),
        ("+5", 5),
        ("007", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        let parsed = parse_with("NarSize", &format!("NarSize: {text}\n")).unwrap();
        assert_eq!(parsed.info.nar_size, size);
    }
    for text in [
        "",
        "-1",
        "-0",
        "+",
        "1 ",
        " 1",
        "1k",
        "0x1",
        "1.0",
        "18446744073709551616",
    ] {
        for field in ["NarSize", "FileSize"] {
            let problem = field_problem(field, &format!("{field}: {text}\n"));
            assert_eq!(problem, FieldProblem::Number(text.into()));
        }
    }
    assert_eq!(
        parse_with("FileSize", "FileSize: 0\n").unwrap().file_size,
        None
    );
}

#[test]
fn hashes_parse_in_any_form_and_nar_hash_is_sha256() {
    let good = parse(GOOD).unwrap();
    for line in [
        "NarHash: sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n",
        "NarHash: sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=\n",
        "NarHash: sha256:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=\n",
    ] {
        assert_eq!(parse_with("NarHash", line).unwrap(), good);
    }
    let md5 = "md5:3jgzhjhz9zjvbb0kyj7jc500ch";
    let parsed = parse_with("FileHash", &format!("FileHash: {md5}\n")).unwrap();
    assert_eq!(parsed.file_hash.unwrap().to_nix32(), md5);
    assert_eq!(
        field_problem("NarHash", &format!("NarHash: {md5}\n")),
        FieldProblem::NarHashAlgorithm(HashAlgorithm::Md5)
    );
    for field in ["FileHash", "NarHash"] {
        for value in [
            "",
            "sha256:",
            "sha224:abc",
            "1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s",
        ] {
            let problem = field_problem(field, &format!("{field}: {value}\n"));
            assert!(
                matches!(problem, FieldProblem::Hash(_)),
                "{value}: {problem:?}"
            );
        }
    }
}

#[test]
fn malformed_signature_is_error() {
    for value in ["", "a", "a:", ":AAAA", "a:!", "a b:AAAA"] {
        let problem = field_problem("Sig", &format!("Sig: {value}\n"));
        assert!(matches!(problem, FieldProblem::Signature(_)), "{value}");
    }
    let many = "Sig: b:BBBB\nSig: a:AAAA\nSig: a:AAAA\nSig: a:CCCC\n";
    let parsed = parse(&format!("{}{many}", with("Sig", ""))).unwrap();
    let signatures: Vec<String> = parsed
        .info
        .signatures
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(signatures, ["a:AAAA", "a:CCCC", "b:BBBB"]);
}

#[test]
fn store_path_is_normalized_and_must_be_in_store() {
    let path = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x";
    let line = format!("StorePath: /nix/./store//{path}/\n");
    assert_eq!(
        parse_with("StorePath", &line).unwrap(),
        parse(GOOD).unwrap()
    );
    for value in [
        "",
        path,
        &format!("/gnu/store/{path}"),
        &format!("/nix/store/{path}/bin"),
    ] {
        let problem = field_problem("StorePath", &format!("StorePath: {value}\n"));
        assert!(matches!(problem, FieldProblem::StorePath(_)), "{value}");
    }
}

#[test]
fn non_utf8_value_or_long_text_is_error() {
    let mut bytes = b"URL: \xff\n".to_vec();
    bytes.extend(GOOD.as_bytes());
    let field = "URL";
    assert_eq!(
        NarInfo::parse(&bytes, &StoreDir::default()),
        Err(NarInfoError::Field {
            line: 1,
            field,
            problem: FieldProblem::NotUtf8
        })
    );
    let long = format!("{GOOD}X: {}\n", "x".repeat(NARINFO_LEN_MAX));
    assert_eq!(parse(&long), Err(NarInfoError::TooLong(long.len())));
}

fn store_path() -> impl Strategy<Value = StorePath> {
    "[0-9a-df-np-sv-z]{32}-[a-zA-Z0-9+_?=][a-zA-Z0-9+._?=-]{0,20}"
        .prop_map(|text| StorePath::parse(&text).expect("a store path"))
}

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash::sha256)
}

fn signature() -> impl Strategy<Value = Signature> {
    ("[a-z.-]{1,10}", any::<[u8; 32]>()).prop_map(|(name, seed)| {
        SecretKey::from_seed(&name, seed)
            .expect("a key")
            .sign(name.as_bytes())
    })
}

prop_compose! {
    fn path_info()(
        path in store_path(),
        nar_hash in hash(),
        nar_size in 1_u64..,
        references in prop::collection::btree_set(store_path(), 0..4),
        deriver in prop::option::of(store_path()),
        signatures in prop::collection::btree_set(signature(), 0..3),
        ca in prop::option::of(hash()),
    ) -> PathInfo {
        let ca = ca.map(|hash| ContentAddress { method: ContentAddressMethod::NixArchive, hash });
        PathInfo {
            path, nar_hash, nar_size, references, deriver, signatures, ca,
            registration_time: None, ultimate: false,
        }
    }
}

proptest! {
    #[test]
    fn parse_reverses_to_text(
        info in path_info(),
        url in "[a-zA-Z0-9:/?#&%=. é]{1,40}",
        compression in prop::sample::select(vec!["none", "xz", "zstd", "br", "gzip", "lrzip"]),
        file_hash in prop::option::of(hash()),
        file_size in prop::option::of(1_u64..),
    ) {
        let compression = Compression::parse(compression).unwrap();
        let narinfo = NarInfo { info, url, compression, file_hash, file_size };
        let dir = StoreDir::default();
        let text = narinfo.to_text(&dir);
        prop_assert_eq!(NarInfo::parse(text.as_bytes(), &dir).unwrap(), narinfo);
    }

    #[test]
    fn parsing_damaged_text_does_not_panic(at: prop::sample::Index, bytes: Vec<u8>) {
        let mut text = GOOD.as_bytes().to_vec();
        let at = at.index(text.len());
        text.splice(at..at + 1, bytes);
        let _ = NarInfo::parse(&text, &StoreDir::default());
    }
}
