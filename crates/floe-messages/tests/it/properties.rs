//! What holds for every message and for any bytes.

use floe_messages::{
    ClosureReply, Compression, CopyRequest, Empty, Error, ErrorKind, Message as _, PathInfo,
    PathInfoRequest, ProblemKind, Progress, ReuseBy, VerifyProblem, VerifyReply,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::every::{encoded, every};
use crate::shapes::{BytesPayload, ComplexRequest, EchoRequest, EveryType};

/// Each codec gives back what it was given, also behind other bytes in the buffer.
macro_rules! comes_back {
    ($type:ident, $message:expr) => {{
        let message: $type = $message;
        let mut cbor = Vec::new();
        message.encode_cbor(&mut cbor);
        prop_assert_eq!(&$type::decode_cbor(&cbor).unwrap(), &message);
        let mut flat = b"before".to_vec();
        message.encode_flat(&mut flat);
        prop_assert_eq!(&flat[..6], b"before");
        let again = $type::decode_flat(&flat[6..]).unwrap();
        prop_assert_eq!(&again, &message);
        // What was decoded is itself a message that can be encoded.
        let mut second = Vec::new();
        again.encode_flat(&mut second);
        prop_assert_eq!(&second[..], &flat[6..]);
        second.clear();
        again.encode_cbor(&mut second);
        prop_assert_eq!(second, cbor);
    }};
}

/// What decoding accepts is a message like any other: it means the same after another round.
macro_rules! means_the_same_again {
    ($type:ident, $decode:ident, $encode:ident, $bytes:expr) => {{
        let bytes: &[u8] = $bytes;
        if let Ok(message) = $type::$decode(bytes) {
            let mut again = Vec::new();
            message.$encode(&mut again);
            let second = $type::$decode(&again).unwrap();
            prop_assert_eq!(&second, &message);
        }
    }};
}

macro_rules! harmless {
    ($bytes:expr, $($type:ident)*) => {{
        $(
            means_the_same_again!($type, decode_cbor, encode_cbor, $bytes);
            means_the_same_again!($type, decode_flat, encode_flat, $bytes);
        )*
    }};
}

proptest! {
    #[test]
    fn a_message_of_every_type_comes_back(every in every()) {
        comes_back!(EveryType, every.message());
    }

    #[test]
    fn another_cbor_library_writes_the_same_and_reads_ours(every in every()) {
        let mut ours = Vec::new();
        every.message().encode_cbor(&mut ours);
        let oracle = every.oracle();
        prop_assert_eq!(&ours, &encoded(&oracle));
        let read: ciborium::Value = ciborium::from_reader(&*ours).unwrap();
        prop_assert_eq!(read, oracle);
    }

    #[test]
    fn small_shapes_come_back(
        texts in vec("\\PC{0,20}", 0..5),
        delay_ms: u64,
        note in option::of(".{0,3}"),
        retries: Option<u64>,
        data: Vec<u8>,
    ) {
        let requests = texts.iter().map(|text| EchoRequest { message: text, delay_ms });
        comes_back!(ComplexRequest, ComplexRequest {
            messages: requests.collect(),
            tags: texts.iter().map(String::as_str).collect(),
            note: note.as_deref(),
            retries,
        });
        comes_back!(BytesPayload, BytesPayload { data: &data });
        comes_back!(Empty, Empty {});
    }

    #[test]
    fn the_messages_of_libfloe_come_back(
        texts in vec("\\PC{0,20}", 6),
        lists in vec(vec("[ -~]{0,20}", 0..4), 3),
        optional in vec(option::of("\\PC{0,9}"), 6),
        numbers in vec(any::<u64>(), 6),
        flag: bool,
        value in 0..6usize,
    ) {
        let list = |i: usize| lists[i].iter().map(String::as_str).collect();
        let text = |i: usize| &*texts[i];
        let optional = |i: usize| optional[i].as_deref();
        comes_back!(Error, Error {
            kind: ErrorKind::ALL[value],
            message: text(0),
            causes: list(0),
        });
        comes_back!(CopyRequest, CopyRequest {
            from: list(0),
            to: text(0),
            store_dir: optional(0),
            paths: list(1),
            trusted_public_keys: list(2),
            no_check_sigs: flag,
            jobs: flag.then_some(numbers[0]),
            optimise: !flag,
            reuse: list(2),
            reuse_by: flag.then_some(ReuseBy::ALL[value % ReuseBy::ALL.len()]),
            no_check_space: flag,
        });
        comes_back!(PathInfoRequest, PathInfoRequest {
            store: text(0),
            store_dir: optional(0),
            path: text(1),
        });
        let info = |i: usize| PathInfo {
            path: text(i),
            nar_hash: text(i + 1),
            nar_size: numbers[i],
            references: list(i),
            deriver: optional(i),
            signatures: list(0),
            content_address: optional(i + 1),
            url: optional(i + 2),
            compression: flag.then_some(Compression::ALL[value]),
            file_hash: optional(i + 3),
            file_size: flag.then_some(numbers[i + 1]),
        };
        comes_back!(ClosureReply, ClosureReply { infos: (0..3).map(info).collect() });
        let fault = |i: usize| VerifyProblem {
            kind: ProblemKind::ALL[value],
            subject: text(i),
            message: text(i + 1),
        };
        comes_back!(VerifyReply, VerifyReply {
            paths: numbers[0],
            nar_bytes: numbers[1],
            links: numbers[2],
            problems: (0..3).map(fault).collect(),
        });
        comes_back!(Progress, Progress {
            elapsed_ms: numbers[0],
            paths_done: numbers[1],
            paths_total: numbers[2],
            nar_bytes_done: numbers[3],
            nar_bytes_total: numbers[4],
            download_bytes: numbers[5],
        });
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        harmless!(&bytes, EveryType EchoRequest ComplexRequest BytesPayload Empty Error PathInfo);
    }

    #[test]
    fn what_was_changed_on_the_way_does_no_harm(
        every in every(),
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
        len in option::of(any::<Index>()),
        more in vec(any::<u8>(), 0..3),
    ) {
        for encode in [EveryType::encode_cbor, EveryType::encode_flat] {
            let mut bytes = Vec::new();
            encode(&every.message(), &mut bytes);
            for (at, change) in &changes {
                let at = at.index(bytes.len());
                bytes[at] ^= change;
            }
            if let Some(len) = len {
                bytes.truncate(len.index(bytes.len()));
            }
            bytes.extend_from_slice(&more);
            // The header of flat says the length, and would refuse most of it else.
            if bytes.starts_with(b"FLO1") && bytes.len() >= 16 {
                let len = bytes.len() as u32;
                bytes[4..8].copy_from_slice(&len.to_le_bytes());
            }
            harmless!(&bytes, EveryType);
        }
    }
}
