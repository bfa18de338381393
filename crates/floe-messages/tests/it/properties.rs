//! Properties of every message and of arbitrary bytes.

use floe_messages::{
    ClosureReply, Compression, CopyRequest, Empty, Error, ErrorKind, Message as _, NetworkOptions,
    PathInfo, PathInfoRequest, ProblemKind, Progress, ReuseBy, VerifyProblem, VerifyReply,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::every::{encoded, every};
use crate::shapes::{BytesPayload, ComplexRequest, EchoRequest, EveryType};

/// Checks that each codec round-trips a message, also behind other bytes in the buffer.
macro_rules! round_trips {
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
        // A decoded message can be encoded again.
        let mut second = Vec::new();
        again.encode_flat(&mut second);
        prop_assert_eq!(&second[..], &flat[6..]);
        second.clear();
        again.encode_cbor(&mut second);
        prop_assert_eq!(second, cbor);
    }};
}

/// Checks that a decoded message keeps its meaning after another round trip.
macro_rules! keeps_its_meaning {
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
            keeps_its_meaning!($type, decode_cbor, encode_cbor, $bytes);
            keeps_its_meaning!($type, decode_flat, encode_flat, $bytes);
        )*
    }};
}

proptest! {
    #[test]
    fn every_type_round_trips(every in every()) {
        round_trips!(EveryType, every.message());
    }

    #[test]
    fn cbor_agrees_with_another_library(every in every()) {
        let mut ours = Vec::new();
        every.message().encode_cbor(&mut ours);
        let expected = every.reference_value();
        prop_assert_eq!(&ours, &encoded(&expected));
        let read: ciborium::Value = ciborium::from_reader(&*ours).unwrap();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn small_messages_round_trip(
        texts in vec("\\PC{0,20}", 0..5),
        delay_ms: u64,
        note in option::of(".{0,3}"),
        retries: Option<u64>,
        data: Vec<u8>,
    ) {
        let requests = texts.iter().map(|text| EchoRequest { message: text, delay_ms });
        round_trips!(ComplexRequest, ComplexRequest {
            messages: requests.collect(),
            tags: texts.iter().map(String::as_str).collect(),
            note: note.as_deref(),
            retries,
        });
        round_trips!(BytesPayload, BytesPayload { data: &data });
        round_trips!(Empty, Empty {});
    }

    #[test]
    fn libfloe_messages_round_trip(
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
        round_trips!(Error, Error {
            kind: ErrorKind::ALL[value],
            message: text(0),
            causes: list(0),
        });
        let network = || NetworkOptions {
            http_proxy: optional(0),
            https_proxy: optional(1),
            no_proxy: optional(2),
            netrc_files: list(1),
            certificates: optional(3),
            connections: flag.then_some(numbers[0]),
            connect_timeout_ms: (!flag).then_some(numbers[1]),
            stall_timeout_ms: flag.then_some(numbers[2]),
            attempts: flag.then_some(numbers[3]),
            narinfo_disk_cache: optional(4),
            narinfo_positive_ttl: flag.then_some(numbers[4]),
            narinfo_negative_ttl: (!flag).then_some(numbers[5]),
        };
        round_trips!(CopyRequest, CopyRequest {
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
            network: network(),
        });
        round_trips!(PathInfoRequest, PathInfoRequest {
            store: text(0),
            store_dir: optional(0),
            path: text(1),
            network: network(),
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
        round_trips!(ClosureReply, ClosureReply { infos: (0..3).map(info).collect() });
        let fault = |i: usize| VerifyProblem {
            kind: ProblemKind::ALL[value],
            subject: text(i),
            message: text(i + 1),
        };
        round_trips!(VerifyReply, VerifyReply {
            paths: numbers[0],
            nar_bytes: numbers[1],
            links: numbers[2],
            problems: (0..3).map(fault).collect(),
        });
        round_trips!(Progress, Progress {
            elapsed_ms: numbers[0],
            paths_done: numbers[1],
            paths_total: numbers[2],
            nar_bytes_done: numbers[3],
            nar_bytes_total: numbers[4],
            download_bytes: numbers[5],
        });
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        harmless!(&bytes, EveryType EchoRequest ComplexRequest BytesPayload Empty Error PathInfo);
    }

    #[test]
    fn changed_messages_never_panic(
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
            // Corrects the length in the header, because a wrong one would reject most messages.
            if bytes.starts_with(b"FLO1") && bytes.len() >= 16 {
                let len = bytes.len() as u32;
                bytes[4..8].copy_from_slice(&len.to_le_bytes());
            }
            harmless!(&bytes, EveryType);
        }
    }
}
