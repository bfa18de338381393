//! Invalid flat messages, case by case.

use floe_messages::{DecodeError, Message, Problem};

use crate::shapes::{Amount, BytesPayload, ComplexRequest, EchoRequest, EveryType, Inner};

/// The offset of the fixed part, and of its first field.
const FIXED: usize = 16;

fn flat<'a>(message: &impl Message<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_flat(&mut bytes);
    bytes
}

fn echo() -> Vec<u8> {
    flat(&EchoRequest {
        message: "abc",
        delay_ms: 1 << 40,
    })
}

/// Writes 4 bytes.
fn set(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Appends bytes and corrects the length in the header.
fn extend(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.extend_from_slice(more);
    let len = bytes.len() as u32;
    set(bytes, 4, len);
}

fn error<'a, M: Message<'a> + std::fmt::Debug>(bytes: &'a [u8]) -> DecodeError {
    M::decode_flat(bytes).expect_err("the message is invalid")
}

fn problem_with<'a, M: Message<'a> + std::fmt::Debug>(bytes: &'a [u8]) -> Problem {
    error::<M>(bytes).problem().clone()
}

/// Returns the problem of a message after a change.
fn changed(change: impl Fn(&mut Vec<u8>)) -> Problem {
    let mut bytes = echo();
    change(&mut bytes);
    problem_with::<EchoRequest>(&bytes)
}

#[test]
fn layout_matches_documentation() {
    let mut expected = b"FLO1".to_vec();
    expected.extend_from_slice(&36u32.to_le_bytes());
    expected.extend_from_slice(&EchoRequest::ID.to_le_bytes());
    expected.extend_from_slice(&[0, 0, 0, 0, 32, 0, 0, 0, 3, 0, 0, 0]);
    expected.extend_from_slice(&(1u64 << 40).to_le_bytes());
    expected.extend_from_slice(b"abc\0");
    assert_eq!(echo(), expected);
}

#[test]
fn decode_error_names_field_offset_and_problem() {
    let mut bytes = echo();
    bytes[33] = 0xff;
    let found = error::<EchoRequest>(&bytes);
    assert_eq!(
        found.to_string(),
        "cannot read EchoRequest.message at byte 33: the text is not UTF-8"
    );
}

#[test]
fn invalid_header_fails() {
    assert_eq!(changed(|bytes| bytes[3] = b'2'), Problem::Header);
    assert_eq!(changed(|bytes| bytes.truncate(15)), Problem::Header);
    assert_eq!(
        changed(|bytes| bytes.truncate(35)),
        Problem::Length {
            claimed: 36,
            found: 35
        }
    );
    assert_eq!(
        changed(|bytes| bytes.push(0)),
        Problem::Length {
            claimed: 36,
            found: 37
        }
    );
    let wrong = Problem::WrongMessage {
        expected: EchoRequest::ID,
        found: 7,
    };
    assert_eq!(changed(|bytes| set(bytes, 8, 7)), wrong);
    assert_eq!(changed(|bytes| set(bytes, 12, 1)), Problem::NotZero);
    let short = |bytes: &mut Vec<u8>| {
        bytes.truncate(24);
        set(bytes, 4, 24);
    };
    assert_eq!(changed(short), Problem::Ends);
}

#[test]
fn reference_outside_contents_fails() {
    for (offset, length) in [
        (12, 3),
        (0, 3),
        (15, 1),
        (33, 3),
        (36, 0),
        (u32::MAX, u32::MAX),
        (32, u32::MAX),
        (u32::MAX, 0),
    ] {
        let problem = changed(|bytes| {
            set(bytes, FIXED, offset);
            set(bytes, FIXED + 4, length);
        });
        assert!(
            matches!(problem, Problem::Outside { .. }),
            "{offset} {length}: {problem}"
        );
    }
}

#[test]
fn text_without_nul_fails() {
    assert_eq!(changed(|bytes| bytes[35] = b'd'), Problem::NoNul);
    assert_eq!(changed(|bytes| set(bytes, FIXED + 4, 2)), Problem::NoNul);
}

#[test]
fn text_with_nuls_and_empty_text_round_trip() {
    for message in ["", "\0", "a\0b", "\0\0\0"] {
        let request = EchoRequest {
            message,
            delay_ms: 0,
        };
        let bytes = flat(&request);
        assert_eq!(EchoRequest::decode_flat(&bytes), Ok(request));
        let mut cbor = Vec::new();
        request.encode_cbor(&mut cbor);
        assert_eq!(EchoRequest::decode_cbor(&cbor), Ok(request));
    }
    // An empty text needs no reference.
    let mut bytes = echo();
    set(&mut bytes, FIXED, 0);
    set(&mut bytes, FIXED + 4, 0);
    assert_eq!(
        EchoRequest::decode_flat(&bytes).map(|request| request.message),
        Ok("")
    );
}

#[test]
fn empty_and_absent_fields_differ() {
    let message = EveryType {
        text_optional: Some(""),
        bytes_optional: Some(&[]),
        uint_optional: Some(0),
        bool_optional: Some(false),
        ..EveryType::default()
    };
    assert_eq!(EveryType::decode_flat(&flat(&message)), Ok(message));
    let absent = EveryType::default();
    assert_eq!(EveryType::decode_flat(&flat(&absent)), Ok(absent));
    let bytes = flat(&BytesPayload { data: &[] });
    assert_eq!(
        BytesPayload::decode_flat(&bytes),
        Ok(BytesPayload { data: &[] })
    );
}

/// Returns a message with two tags, and the offset of their references.
fn tagged() -> (Vec<u8>, usize) {
    let bytes = flat(&ComplexRequest {
        tags: ["one", "two"].into_iter().collect(),
        ..ComplexRequest::default()
    });
    (bytes, 56)
}

#[test]
fn list_longer_than_buffer_fails() {
    let (mut bytes, _) = tagged();
    for count in [100, 1 << 28, u32::MAX] {
        set(&mut bytes, FIXED + 12, count);
        let problem = problem_with::<ComplexRequest>(&bytes);
        assert!(matches!(problem, Problem::Outside { .. }), "{problem}");
    }
}

#[test]
fn misaligned_list_fails() {
    let (mut bytes, begin) = tagged();
    for offset in [begin + 4, begin + 1, begin - 7] {
        set(&mut bytes, FIXED + 8, offset as u32);
        let expected = Problem::Misaligned(offset as u64);
        assert_eq!(problem_with::<ComplexRequest>(&bytes), expected);
    }
}

#[test]
fn empty_list_with_reference_fails() {
    let (mut bytes, _) = tagged();
    set(&mut bytes, FIXED + 12, 0);
    assert_eq!(problem_with::<ComplexRequest>(&bytes), Problem::NotZero);
    set(&mut bytes, FIXED + 12, 2);
    set(&mut bytes, FIXED + 8, 0);
    assert!(matches!(
        problem_with::<ComplexRequest>(&bytes),
        Problem::Outside { .. }
    ));
}

#[test]
fn references_that_share_contents_fail() {
    // 1000 tags that share one long text: 72 kB would expand to 64 MB.
    let tags = vec![""; 1000];
    let mut bytes = flat(&ComplexRequest {
        tags: tags.into(),
        note: Some(&"x".repeat(64_000)),
        ..ComplexRequest::default()
    });
    let note = u32::from_le_bytes(bytes[FIXED + 16..FIXED + 20].try_into().unwrap());
    let list = u32::from_le_bytes(bytes[FIXED + 8..FIXED + 12].try_into().unwrap()) as usize;
    assert!(ComplexRequest::decode_flat(&bytes).is_ok());
    for tag in 0..1000 {
        set(&mut bytes, list + 8 * tag, note);
        set(&mut bytes, list + 8 * tag + 4, 64_000);
    }
    let found = error::<ComplexRequest>(&bytes);
    assert_eq!(
        (found.problem(), found.field()),
        (&Problem::Overlap, "tags")
    );
    // The first tag is valid, the second one exceeds the budget.
    assert_eq!(found.offset(), list + 8);
}

#[test]
fn lists_that_share_lists_fail() {
    let mut inners = vec![Inner::default(); 40];
    inners[0].numbers = vec![1; 500].into();
    let mut bytes = flat(&EveryType {
        message_list: inners.into(),
        ..EveryType::default()
    });
    assert!(EveryType::decode_flat(&bytes).is_ok());
    let slot = FIXED + EveryType::LIST_SLOT;
    let list = u32::from_le_bytes(bytes[slot..slot + 4].try_into().unwrap()) as usize;
    let numbers: [u8; 8] = bytes[list + 16..list + 24].try_into().unwrap();
    for inner in (list..).step_by(24).take(40) {
        bytes[inner + 16..inner + 24].copy_from_slice(&numbers);
    }
    let found = error::<EveryType>(&bytes);
    assert_eq!(
        (found.problem(), found.field()),
        (&Problem::Overlap, "numbers")
    );
    assert_eq!(found.offset(), list + 24 + 16);
}

trait Slots {
    /// The offset of the last field of `EveryType`, the list of messages, in the fixed part.
    const LIST_SLOT: usize;
}

impl Slots for EveryType<'_> {
    const LIST_SLOT: usize = <EveryType<'_> as floe_messages::Encode<'_>>::FLAT_LEN - 8;
}

#[test]
fn invalid_bool_enum_and_padding_fail() {
    let right = flat(&EveryType {
        enum_one: Amount::All,
        ..EveryType::default()
    });
    let with = |at: usize, word: u32| {
        let mut bytes = right.clone();
        set(&mut bytes, FIXED + at, word);
        let found = error::<EveryType>(&bytes);
        (found.field(), found.problem().clone())
    };
    assert_eq!(with(0, 2), ("bool_one", Problem::NotBool(2)));
    assert_eq!(with(4, 1), ("bool_one", Problem::NotBool(1 << 32)));
    assert_eq!(with(32, 3), ("enum_one", Problem::UnknownValue));
    assert_eq!(with(36, 1), ("enum_one", Problem::UnknownValue));
    // message_one takes 24 bytes, and the optional fields follow.
    assert_eq!(with(64, 2), ("bool_optional", Problem::NotBool(2)));
    assert_eq!(with(72, 1), ("bool_optional", Problem::NotZero));
    assert_eq!(with(88, 1), ("uint_optional", Problem::NotZero));
    let length_alone = with(100, 1);
    assert!(matches!(
        length_alone,
        ("text_optional", Problem::Outside { .. })
    ));
}

#[test]
fn truncated_message_fails() {
    let whole = flat(&EveryType {
        text_one: "text",
        uint_list: vec![1, 2, 3].into(),
        ..EveryType::default()
    });
    for len in FIXED..whole.len() {
        let mut bytes = whole[..len].to_vec();
        extend(&mut bytes, &[]);
        assert!(EveryType::decode_flat(&bytes).is_err(), "{len}");
    }
    let mut longer = whole.clone();
    extend(&mut longer, b"bytes without a reference");
    assert!(EveryType::decode_flat(&longer).is_ok());
}
