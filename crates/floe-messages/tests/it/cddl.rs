//! The CDDL, validated by another implementation.

use cddl_cat::validate_cbor_bytes;
use floe_messages::{
    Compression, CopyRequest, Error, ErrorKind, Message, PathInfo, Progress, ResolveReply, ReuseBy,
};

const CDDL: &str = include_str!("../../floe.cddl");

fn encoded<'a>(message: &impl Message<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_cbor(&mut bytes);
    bytes
}

fn is_valid(name: &str, bytes: &[u8]) -> bool {
    validate_cbor_bytes(name, CDDL, bytes).is_ok()
}

#[test]
fn encoded_messages_match_cddl() {
    let info = PathInfo {
        path: "/nix/store/x",
        references: vec!["/nix/store/y", "/nix/store/z"].into(),
        url: Some("nar/x.nar"),
        compression: Some(Compression::Zstd),
        file_size: Some(1 << 40),
        ..PathInfo::default()
    };
    let error = Error {
        kind: ErrorKind::NoSpace,
        ..Error::default()
    };
    for (name, bytes) in [
        ("PathInfo", encoded(&info)),
        ("PathInfo", encoded(&PathInfo::default())),
        ("Error", encoded(&error)),
        (
            "CopyRequest",
            encoded(&CopyRequest {
                no_check_sigs: true,
                reuse: vec!["/a"].into(),
                reuse_by: Some(ReuseBy::Hardlink),
                ..CopyRequest::default()
            }),
        ),
        (
            "ResolveReply",
            encoded(&ResolveReply {
                planned: vec![Default::default()].into(),
                free_bytes: Some(1),
                ..ResolveReply::default()
            }),
        ),
        ("Progress", encoded(&Progress::default())),
    ] {
        validate_cbor_bytes(name, CDDL, &bytes).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn invalid_messages_fail_cddl_and_decoding() {
    let right = encoded(&Error {
        kind: ErrorKind::BadHandle,
        ..Error::default()
    });
    assert!(is_valid("Error", &right));
    let replaced = |old: &[u8], new: &[u8]| {
        let at = right.windows(old.len()).position(|bytes| bytes == old);
        let at = at.expect("the message contains the old bytes");
        [&right[..at], new, &right[at + old.len()..]].concat()
    };
    for (what, bytes) in [
        (
            "an unknown value",
            replaced(b"\x6abad_handle", b"\x6anew_handle"),
        ),
        (
            "a number for text",
            replaced(b"message\x60", b"message\x00"),
        ),
        ("another key", replaced(b"kind", b"sort")),
        (
            "a number in a list of texts",
            replaced(b"causes\x80", b"causes\x81\x00"),
        ),
        ("another message", encoded(&Progress::default())),
    ] {
        assert!(!is_valid("Error", &bytes), "{what}");
        assert!(Error::decode_cbor(&bytes).is_err(), "{what}");
    }
}
