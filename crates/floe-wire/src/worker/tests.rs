//! Tests of the messages, in both directions and in pieces.

mod compression;
mod requests;

use std::io::Write as _;

use floe_format::nar::write as nar;
use floe_format::{PathInfo, StoreDir, StorePath};
use proptest::prelude::*;

use super::*;
use crate::client::{ClientEvent, ClientSession};
use crate::compression::{Compressor, compressor};
use crate::protocol::Protocol;
use requests::{info, request};

/// Returns a reply that fits the request.
fn reply(request: &Request, info: &PathInfo, is_present: bool) -> Reply {
    match request.reply_kind() {
        ReplyKind::Done => Reply::Done,
        ReplyKind::Added(_) => Reply::Added,
        ReplyKind::Path => Reply::Path(is_present.then(|| info.path.clone())),
        ReplyKind::Paths => Reply::Paths(info.references.clone()),
        ReplyKind::PathInfo(path) => {
            let info = PathInfo {
                path,
                ..info.clone()
            };
            Reply::PathInfo(is_present.then(|| Box::new(info)))
        }
        ReplyKind::Verified => Reply::Verified {
            has_problems: is_present,
        },
        ReplyKind::Collected => Reply::Collected,
        ReplyKind::Nothing => Reply::Nothing,
        ReplyKind::Boolean => Reply::Boolean(is_present),
        ReplyKind::Text => Reply::Text(info.path.to_string()),
        ReplyKind::Texts => Reply::Texts(vec![info.path.to_string(); 2]),
        ReplyKind::AddedInfo => Reply::AddedInfo(Box::new(info.clone())),
        ReplyKind::OutputMap => {
            let path = is_present.then(|| info.path.clone());
            Reply::OutputMap([("out".to_owned(), path)].into())
        }
        ReplyKind::SubstitutableInfo => {
            Reply::SubstitutableInfo(is_present.then(|| substitutable(info)))
        }
        ReplyKind::SubstitutableInfos => {
            Reply::SubstitutableInfos([(info.path.clone(), substitutable(info))].into())
        }
        ReplyKind::Missing => Reply::Missing(Box::new(MissingPaths {
            will_build: info.references.clone(),
            will_substitute: [info.path.clone()].into(),
            unknown: [].into(),
            download_size: 1,
            nar_size: info.nar_size,
        })),
        ReplyKind::Roots => Reply::Roots(vec![("/link".into(), info.path.clone())]),
        ReplyKind::Garbage => Reply::Garbage {
            paths: vec![info.path.to_string()],
            bytes: info.nar_size,
        },
        ReplyKind::BuildResult => Reply::BuildResult(failed_build()),
        ReplyKind::BuildResults => Reply::BuildResults(vec![("x".into(), failed_build())]),
        ReplyKind::Nar(_) => Reply::Nar,
        ReplyKind::Compressed => Reply::Compressed,
        ReplyKind::PathInfos => Reply::PathInfos(vec![info.clone(); 2]),
    }
}

fn substitutable(info: &PathInfo) -> SubstitutableInfo {
    SubstitutableInfo {
        deriver: info.deriver.clone(),
        references: info.references.clone(),
        download_size: 7,
        nar_size: info.nar_size,
    }
}

fn failed_build() -> BuildResult {
    BuildResult {
        status: 9,
        message: "cannot build".into(),
        outputs: [(
            "sha256:00!out".to_owned(),
            StorePath::parse("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello").unwrap(),
        )]
        .into(),
    }
}

fn log_message() -> impl Strategy<Value = LogMessage> {
    let field = prop_oneof![
        any::<u64>().prop_map(Field::Number),
        ".{0,10}".prop_map(Field::Text),
    ];
    let fields = prop::collection::vec(field, 0..3);
    let error = (
        any::<u64>(),
        ".{0,30}",
        prop::collection::vec(".{0,9}", 0..3),
    );
    prop_oneof![
        ".{0,40}".prop_map(LogMessage::Next),
        (any::<[u64; 4]>(), ".{0,20}", fields.clone()).prop_map(
            |([id, level, kind, parent], text, fields)| LogMessage::StartActivity {
                id,
                level,
                kind,
                text,
                fields,
                parent
            }
        ),
        any::<u64>().prop_map(LogMessage::StopActivity),
        (any::<[u64; 2]>(), fields).prop_map(|([id, kind], fields)| LogMessage::Result {
            id,
            kind,
            fields
        }),
        error.prop_map(|(level, message, traces)| {
            LogMessage::Error(DaemonError {
                level,
                message,
                traces,
            })
        }),
        Just(LogMessage::Last),
    ]
}

/// Parses a message from all shorter beginnings, which are incomplete, and then whole.
fn parse_whole<T: std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&mut Input<'_>) -> Result<T, WireError>,
) -> T {
    for len in 0..bytes.len() {
        match parse(&mut Input::new(&bytes[..len])) {
            Err(WireError::Incomplete { needed, .. }) => {
                assert!(needed > len && needed <= bytes.len(), "{needed} of {len}");
            }
            other => panic!("{len} of {} bytes give {other:?}", bytes.len()),
        }
    }
    let mut input = Input::new(bytes);
    let parsed = parse(&mut input).unwrap();
    assert_eq!(input.len_read(), bytes.len());
    parsed
}

/// One direction of a connection, which compresses from some place on.
#[derive(Default)]
struct Direction {
    /// The bytes before the compression.
    bytes: Vec<u8>,
    compressor: Option<Compressor<Vec<u8>>>,
}

impl Direction {
    fn send(&mut self, bytes: &[u8]) {
        match &mut self.compressor {
            Some(compressor) => {
                compressor.write_all(bytes).unwrap();
                compressor.flush().unwrap();
            }
            None => self.bytes.extend_from_slice(bytes),
        }
    }

    fn compress(&mut self) {
        self.compressor = Some(compressor(Vec::new()).unwrap());
    }

    fn into_bytes(self) -> Vec<u8> {
        let compressed = self.compressor.iter().flat_map(|it| it.get_ref().iter());
        self.bytes.iter().chain(compressed).copied().collect()
    }
}

/// Removes all requests to compress but for the first one, because there is only one.
fn compress_once(requests: &mut Vec<(Request, PathInfo, Option<bool>)>) {
    let mut is_first = true;
    requests.retain(|(request, ..)| {
        *request != Request::Compress || std::mem::replace(&mut is_first, false)
    });
}

proptest! {
    #[test]
    fn request_parses_to_itself(request in request()) {
        let dir = StoreDir::default();
        let mut bytes = Vec::new();
        assert!(request.write(&mut bytes, &dir));
        prop_assert_eq!(parse_whole(&bytes, |input| Request::parse(input, &dir)), request);
    }

    #[test]
    fn reply_parses_to_itself(request in request(), info in info(), is_present in any::<bool>()) {
        let (dir, kind) = (StoreDir::default(), request.reply_kind());
        let reply = reply(&request, &info, is_present);
        for minor in [32, 37] {
            let version = Version { major: 1, minor };
            let mut bytes = Vec::new();
            reply.write(&mut bytes, &dir, version);
            let parsed = parse_whole(&bytes, |input| Reply::parse(input, &kind, (&dir, version)));
            prop_assert_eq!(&parsed, &reply);
        }
    }

    #[test]
    fn log_message_parses_to_itself(message in log_message()) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        prop_assert_eq!(parse_whole(&bytes, LogMessage::parse), message);
    }

    #[test]
    fn server_info_parses_to_itself(
        minor in 32..38_u8,
        name in "[0-9.]{1,8}",
        trusts_client in any::<Option<bool>>(),
    ) {
        let version = Version { major: 1, minor };
        let info = ServerInfo {
            nix_version: version.has_server_name().then_some(name),
            trusts_client: trusts_client.filter(|_| version.has_trust()),
        };
        let mut bytes = Vec::new();
        info.write(version, &mut bytes);
        prop_assert_eq!(parse_whole(&bytes, |input| ServerInfo::parse(input, version)), info);
    }

    #[test]
    fn sessions_understand_each_other_in_any_pieces(
        mut requests in prop::collection::vec((request(), info(), any::<Option<bool>>()), 0..6),
        log in prop::collection::vec("[a-z]{0,9}", 0..3),
        minor in 32..45_u8,
        piece_len in 1..400_usize,
    ) {
        compress_once(&mut requests);
        let dir = StoreDir::default();
        let mut sent = Direction::default();
        let mut client = ClientSession::new(Protocol::Worker, dir.clone(), &mut sent.bytes);
        for (request, ..) in &requests {
            let mut message = Vec::new();
            assert!(request.write(&mut message, &dir));
            client.expect(request.reply_kind());
            if request.has_frames() {
                message.extend_from_slice(&crate::frames::header(5));
                message.extend_from_slice(b"frame");
                message.extend_from_slice(&crate::frames::END);
            }
            sent.send(&message);
            if *request == Request::Compress {
                sent.compress();
            }
        }
        let server_info = ServerInfo::default();
        let version = Version { major: 1, minor };
        let mut server = ServerSession::new(dir, server_info, version);
        let mut returned = Direction::default();
        let (mut received, mut frames) = (Vec::new(), Vec::new());
        let respond = |server: &ServerSession, number: usize, returned: &mut Direction| {
            let mut output = Vec::new();
            for line in &log {
                LogMessage::Next(line.clone()).write(&mut output);
            }
            let (request, info, outcome) = &requests[number];
            match outcome {
                Some(is_present) => server.reply(&reply(request, info, *is_present), &mut output),
                None => server.fail(DaemonError::default(), &mut output),
            }
            if let (Request::NarFromPath(_), Some(_)) = (request, outcome) {
                nar::begin(&mut output);
                nar::symlink(&mut output, b"target");
            }
            returned.send(&output);
            if let (Request::Compress, Some(_)) = (request, outcome) {
                returned.compress();
            }
        };
        for piece in sent.into_bytes().chunks(piece_len) {
            server.space()[..piece.len()].copy_from_slice(piece);
            server.fill(piece.len());
            loop {
                let mut greeting = Vec::new();
                let event = server.next_event(&mut greeting).unwrap();
                returned.send(&greeting);
                let event = match event {
                    None => break,
                    Some(ServerEvent::Data(data)) => {
                        frames.extend_from_slice(data);
                        continue;
                    }
                    Some(ServerEvent::Request(request)) => {
                        let is_added = request.has_frames();
                        received.push(request);
                        !is_added
                    }
                    Some(ServerEvent::DataEnd) => true,
                    Some(ServerEvent::Opened(found)) => {
                        prop_assert_eq!(found, version.min(Version::OFFERED));
                        false
                    }
                };
                if event {
                    respond(&server, received.len() - 1, &mut returned);
                }
            }
        }
        prop_assert!(server.is_idle());
        prop_assert!(received.iter().eq(requests.iter().map(|(request, ..)| request)));
        let added = received.iter().filter(|it| it.has_frames());
        prop_assert_eq!(frames, b"frame".repeat(added.count()));

        let (mut number, mut lines, mut is_open) = (0, 0, false);
        let mut nar_len = 0;
        for piece in returned.into_bytes().chunks(piece_len) {
            client.space()[..piece.len()].copy_from_slice(piece);
            client.fill(piece.len());
            while let Some(event) = client.next_event().unwrap() {
                match event {
                    ClientEvent::Opened(_) => is_open = true,
                    ClientEvent::Log(_) => lines += 1,
                    ClientEvent::Replied(found) => {
                        let (request, info, outcome) = &requests[number];
                        prop_assert_eq!(found, reply(request, info, outcome.unwrap()));
                        number += 1;
                    }
                    ClientEvent::Failed(_) => {
                        prop_assert_eq!(requests[number].2, None);
                        number += 1;
                    }
                    ClientEvent::NarData(data) => nar_len += data.len(),
                    ClientEvent::NarEnd => {
                        prop_assert!(nar_len > 0);
                        nar_len = 0;
                    }
                }
            }
        }
        prop_assert!(is_open && client.is_idle() && nar_len == 0);
        prop_assert_eq!((number, lines), (requests.len(), requests.len() * log.len()));
    }
}

fn client_after(bytes: &[u8]) -> ClientSession {
    let mut client = ClientSession::new(Protocol::Worker, StoreDir::default(), &mut Vec::new());
    client.space()[..bytes.len()].copy_from_slice(bytes);
    client.fill(bytes.len());
    client
}

#[test]
fn banner_of_a_shell_is_shown() {
    let mut client = client_after(b"Welcome to host!\n");
    let error = client.next_event().unwrap_err();
    assert!(error.to_string().contains("Welcome to host!"), "{error}");
    let mut client = client_after(b"hi\n");
    assert_eq!(client.next_event(), Ok(None));
    assert!(client.error_at_end().unwrap().to_string().contains("hi"));
}

#[test]
fn old_daemon_is_refused_with_its_version() {
    let mut greeting = Vec::new();
    output::number(&mut greeting, SERVER_MAGIC);
    output::number(&mut greeting, 1 << 8 | 21);
    let error = client_after(&greeting).next_event().unwrap_err();
    assert!(error.to_string().contains("version 1.21"), "{error}");
}

#[test]
fn huge_lengths_are_refused_before_their_contents() {
    let dir = StoreDir::default();
    for (kind, numbers) in [
        (ReplyKind::Paths, vec![u64::MAX]),
        (ReplyKind::Paths, vec![1, 1 << 40, 0, 0, 0, 0, 0]),
        (ReplyKind::Path, vec![1 << 20]),
        (ReplyKind::PathInfos, vec![CLOSURE_LEN_MAX as u64 + 1]),
    ] {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|it: &u64| it.to_le_bytes())
            .collect();
        let error =
            Reply::parse(&mut Input::new(&bytes), &kind, (&dir, Version::OFFERED)).unwrap_err();
        assert!(matches!(error, WireError::TooLong { .. }), "{error}");
    }
}

#[test]
fn bytes_without_a_request_are_refused() {
    let mut bytes = Vec::new();
    output::number(&mut bytes, SERVER_MAGIC);
    output::number(&mut bytes, Version::MINIMUM.to_number());
    LogMessage::Last.write(&mut bytes);
    LogMessage::Next("line".into()).write(&mut bytes);
    let mut client = client_after(&bytes);
    assert!(matches!(
        client.next_event(),
        Ok(Some(ClientEvent::Opened(_)))
    ));
    assert!(matches!(
        client.next_event(),
        Err(WireError::Unexpected { .. })
    ));
}

#[test]
fn padding_of_other_bytes_than_zeros_is_refused() {
    let mut bytes = Vec::new();
    output::text(&mut bytes, "abc");
    bytes[12] = 1;
    let error = Input::new(&bytes).bytes("a text", 10).unwrap_err();
    assert_eq!(error, WireError::Padding { what: "a text" });
}

/// Nix up to 2.23 sends its version after the reply to its first number.
#[test]
fn daemon_replies_to_the_first_number() {
    let info = ServerInfo::default();
    let mut server = ServerSession::new(StoreDir::default(), info, Version::OFFERED);
    let (mut sent, mut replies) = (Vec::new(), Vec::new());
    crate::output::number(&mut sent, CLIENT_MAGIC);
    server.space()[..sent.len()].copy_from_slice(&sent);
    server.fill(sent.len());
    assert_eq!(server.next_event(&mut replies), Ok(None));
    assert_eq!(replies.len(), 16);
    assert!(!server.is_idle());
}

#[test]
fn signature_in_no_known_form_is_dropped() {
    let dir = StoreDir::default();
    let mut bytes = Vec::new();
    output::boolean(&mut bytes, true);
    output::text(&mut bytes, "");
    output::text(&mut bytes, "00".repeat(32));
    output::number(&mut bytes, 0);
    for number in [1, 120, 0] {
        output::number(&mut bytes, number);
    }
    output::texts(&mut bytes, ["junk", "also:no base64"].into_iter());
    output::text(&mut bytes, "");
    let path = StorePath::parse("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello").unwrap();
    let reply = Reply::parse(
        &mut Input::new(&bytes),
        &ReplyKind::PathInfo(path),
        (&dir, Version::OFFERED),
    );
    let Ok(Reply::PathInfo(Some(info))) = reply else {
        panic!("{reply:?}");
    };
    assert!(info.signatures.is_empty() && info.nar_size == 120);
}
