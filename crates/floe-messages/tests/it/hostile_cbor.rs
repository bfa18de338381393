//! Invalid CBOR messages, case by case.

use floe_messages::{DecodeError, Message, Problem};

use crate::shapes::{BytesPayload, ComplexRequest, EchoRequest};

/// Encodes an `EchoRequest` with these bytes as its values.
fn echo(delay: &[u8], message: &[u8]) -> Vec<u8> {
    [b"\xa2\x67delayMs", delay, b"\x67message", message].concat()
}

fn error<'a, M: Message<'a> + std::fmt::Debug>(bytes: &'a [u8]) -> DecodeError {
    M::decode_cbor(bytes).expect_err("the message is invalid")
}

fn echo_problem(bytes: &[u8]) -> Problem {
    error::<EchoRequest>(bytes).problem().clone()
}

#[test]
fn valid_message_round_trips() {
    let bytes = echo(b"\x05", b"\x62hi");
    let request = EchoRequest {
        message: "hi",
        delay_ms: 5,
    };
    assert_eq!(EchoRequest::decode_cbor(&bytes), Ok(request));
    let mut written = Vec::new();
    request.encode_cbor(&mut written);
    assert_eq!(written, bytes);
}

#[test]
fn keys_in_any_order_and_null_are_accepted() {
    let bytes = b"\xa2\x67message\x62hi\x67delayMs\x05";
    let request = EchoRequest {
        message: "hi",
        delay_ms: 5,
    };
    assert_eq!(EchoRequest::decode_cbor(bytes), Ok(request));
    let expected = ComplexRequest {
        retries: Some(1),
        ..ComplexRequest::default()
    };
    for bytes in [
        &b"\xa4\x64note\xf6\x64tags\x80\x67retries\x01\x68messages\x80"[..],
        b"\xa4\x68messages\x80\x64tags\x80\x67retries\x01\x64note\xf6",
        b"\xa3\x68messages\x80\x64tags\x80\x67retries\x01",
    ] {
        assert_eq!(
            ComplexRequest::decode_cbor(bytes).as_ref(),
            Ok(&expected),
            "{bytes:x?}"
        );
    }
}

#[test]
fn decode_error_names_field_offset_and_problem() {
    let bytes = echo(b"\x05", b"\x62h\xff");
    let found = error::<EchoRequest>(&bytes);
    assert_eq!(
        (found.message(), found.field(), found.offset()),
        ("EchoRequest", "message", 20)
    );
    assert_eq!(
        found.to_string(),
        "cannot read EchoRequest.message at byte 20: the text is not UTF-8"
    );
    let inside = [b"\xa2\x64tags\x80\x68messages\x81", &*bytes].concat();
    let found = error::<ComplexRequest>(&inside);
    assert_eq!(
        (found.message(), found.field(), found.offset()),
        ("EchoRequest", "message", 37)
    );
}

#[test]
fn length_beyond_the_end_fails() {
    // 2^40 elements, 2^60 bytes.
    let list = b"\xa2\x64tags\x9b\0\0\x01\0\0\0\0\0\x68messages\x80";
    let problem = Problem::TooLong {
        length: 1 << 40,
        left: 10,
    };
    assert_eq!(error::<ComplexRequest>(list).problem(), &problem);
    let text = echo(b"\x00", b"\x7b\x10\0\0\0\0\0\0\0abc");
    assert_eq!(
        echo_problem(&text),
        Problem::TooLong {
            length: 1 << 60,
            left: 3
        }
    );
    let bytes = b"\xa1\x64data\x5b\xff\xff\xff\xff\xff\xff\xff\xff";
    let problem = Problem::TooLong {
        length: u64::MAX,
        left: 0,
    };
    assert_eq!(error::<BytesPayload>(bytes).problem(), &problem);
    // A message contains at least its keys, so 3 bytes cannot hold 2 messages.
    let messages = b"\xa2\x64tags\x80\x68messages\x82abc";
    let problem = Problem::TooLong { length: 2, left: 3 };
    assert_eq!(error::<ComplexRequest>(messages).problem(), &problem);
}

#[test]
fn map_longer_than_its_fields_fails() {
    let bytes = b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff\x67message\x60\x67delayMs\x00";
    assert_eq!(echo_problem(bytes), Problem::Ends);
}

#[test]
fn deeply_nested_arrays_do_not_overflow_stack() {
    let nest = vec![0x81; 200_000];
    for bytes in [nest.clone(), echo(b"\x00", &nest)] {
        assert!(matches!(
            echo_problem(&bytes),
            Problem::Type { found: 0x81, .. }
        ));
    }
    let list = [b"\xa2\x64tags", &*nest].concat();
    assert!(matches!(
        error::<ComplexRequest>(&list).problem(),
        Problem::Type {
            expected: "text",
            found: 0x81
        }
    ));
}

#[test]
fn duplicate_key_fails_even_with_null() {
    let bytes = b"\xa3\x67delayMs\x00\x67message\x60\x67delayMs\x00";
    let found = error::<EchoRequest>(bytes);
    assert_eq!(
        (found.problem(), found.field()),
        (&Problem::DuplicateKey, "delay_ms")
    );
    let bytes = b"\xa4\x64note\xf6\x64note\xf6\x64tags\x80\x68messages\x80";
    assert_eq!(
        error::<ComplexRequest>(bytes).problem(),
        &Problem::DuplicateKey
    );
}

#[test]
fn unknown_and_missing_keys_fail() {
    let bytes = b"\xa3\x67delayMs\x00\x67message\x60\x61x\x00";
    assert_eq!(echo_problem(bytes), Problem::UnknownKey);
    let found = error::<EchoRequest>(b"\xa1\x67delayMs\x00");
    assert_eq!(
        (found.problem(), found.field()),
        (&Problem::Missing, "message")
    );
    assert_eq!(echo_problem(b"\xa0"), Problem::Missing);
    // Null is allowed only for optional fields.
    assert!(matches!(
        echo_problem(&echo(b"\xf6", b"\x60")),
        Problem::Type { .. }
    ));
}

#[test]
fn indefinite_lengths_fail() {
    for bytes in [
        b"\xbf\x67delayMs\x00\x67message\x60\xff".to_vec(),
        echo(b"\x00", b"\x7f\x61a\xff"),
    ] {
        assert_eq!(echo_problem(&bytes), Problem::Indefinite, "{bytes:x?}");
    }
    let bytes = b"\xa2\x64tags\x9f\xff\x68messages\x80";
    assert_eq!(
        error::<ComplexRequest>(bytes).problem(),
        &Problem::Indefinite
    );
    assert_eq!(
        error::<BytesPayload>(b"\xa1\x64data\x5f\xff").problem(),
        &Problem::Indefinite
    );
}

#[test]
fn longer_forms_than_needed_fail() {
    for delay in [
        &b"\x18\x17"[..],
        b"\x19\x00\xff",
        b"\x1a\x00\x00\xff\xff",
        b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff",
    ] {
        assert_eq!(
            echo_problem(&echo(delay, b"\x60")),
            Problem::NotShortest,
            "{delay:x?}"
        );
    }
    assert_eq!(
        echo_problem(&echo(b"\x00", b"\x78\x01a")),
        Problem::NotShortest
    );
    assert_eq!(
        echo_problem(b"\xb8\x02\x67delayMs\x00\x67message\x60"),
        Problem::NotShortest
    );
    assert_eq!(
        echo_problem(b"\xa2\x78\x07delayMs\x00\x67message\x60"),
        Problem::NotShortest
    );
}

#[test]
fn negative_number_fails() {
    let negative = b"\xa3\x64tags\x80\x67retries\x20\x68messages\x80";
    assert!(matches!(
        error::<ComplexRequest>(negative).problem(),
        Problem::Type { .. }
    ));
    let largest = echo(b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", b"\x60");
    let delay_ms = EchoRequest::decode_cbor(&largest).map(|request| request.delay_ms);
    assert_eq!(delay_ms, Ok(u64::MAX));
}

#[test]
fn trailing_and_missing_bytes_fail() {
    let whole = echo(b"\x18\x20", b"\x63abc");
    let longer = [&*whole, b"\x00"].concat();
    assert_eq!(echo_problem(&longer), Problem::Trailing(1));
    for len in 0..whole.len() {
        assert!(EchoRequest::decode_cbor(&whole[..len]).is_err(), "{len}");
    }
    assert_eq!(echo_problem(b""), Problem::Ends);
}

#[test]
fn tags_simple_values_and_reserved_heads_fail() {
    for delay in [
        &b"\xc1\x00"[..],
        b"\xf7",
        b"\xe0",
        b"\xff",
        b"\x1c",
        b"\x1f",
        b"\xf5",
    ] {
        let problem = echo_problem(&echo(delay, b"\x60"));
        assert!(
            matches!(problem, Problem::Type { .. }),
            "{delay:x?}: {problem}"
        );
    }
}

#[test]
fn unknown_enum_value_fails() {
    let bytes = b"\xa3\x65label\x60\x66amount\x64many\x67numbers\x80";
    let found = error::<crate::shapes::Inner>(bytes);
    assert_eq!(
        (found.problem(), found.field()),
        (&Problem::UnknownValue, "amount")
    );
}
