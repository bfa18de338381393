//! Properties of the worker protocol, with one function per fuzz target.
//!
//! The fuzz targets call these functions with bytes from libFuzzer. The tests of floe-wire call
//! them with the committed corpus.

use floe_format::{StoreDir, StorePath};
use floe_wire::serve;
use floe_wire::worker::{Request, ServerEvent, ServerInfo, ServerSession, Version};
use floe_wire::{ClientEvent, ClientSession, Protocol, WireError};

/// Checks that the events of a client do not depend on how the daemon's bytes are cut into pieces.
pub fn check_worker_client(data: &[u8]) {
    let whole = client_events(data, data.len().max(1));
    check_equal(client_events(data, 1), &whole);
    check_equal(client_events(data, 13), &whole);
}

/// Checks that the events of a daemon do not depend on how the client's bytes are cut into pieces,
/// and that each request is written as it was read.
pub fn check_worker_server(data: &[u8]) {
    let whole = server_events(data, data.len().max(1));
    check_equal(server_events(data, 1), &whole);
    check_equal(server_events(data, 13), &whole);
}

/// Checks that the events of `nix-store --serve` do not depend on how the client's bytes are cut
/// into pieces.
pub fn check_serve_server(data: &[u8]) {
    let whole = serve_events(data, data.len().max(1));
    assert_eq!(serve_events(data, 1), whole);
    assert_eq!(serve_events(data, 13), whole);
}

/// The events as texts, and the fault that ended them. Data is joined.
type Events = (Vec<String>, Vec<u8>, Option<WireError>);

/// Checks that bytes in pieces have the same events. Where zstd finds invalid bytes, it may drop
/// valid ones that arrived in the same piece.
fn check_equal(pieces: Events, whole: &Events) {
    let is_of_zstd = |events: &Events| matches!(events.2, Some(WireError::Compression { .. }));
    if !is_of_zstd(&pieces) && !is_of_zstd(whole) {
        assert_eq!(pieces, *whole);
    }
}

fn client_events(data: &[u8], piece_len: usize) -> Events {
    let dir = StoreDir::default();
    let mut client = ClientSession::new(Protocol::Worker, dir.clone(), &mut Vec::new());
    let path = StorePath::parse("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello").expect("a valid path");
    let paths = [path.clone()].into();
    let requests = [
        Request::QueryPathInfo(path.clone()),
        Request::QueryValidPaths {
            paths,
            substitute: false,
            lock: false,
        },
        Request::QueryPathFromHashPart(path.hash_part()),
        Request::NarFromPath(path.clone()),
        Request::QueryClosureInfos([path.clone()].into()),
        Request::Compress,
        Request::AddTempRoot(path),
    ];
    for request in &requests {
        client.expect(request.reply_kind());
    }
    let (mut events, mut contents) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece_len) {
        for piece in piece.chunks(client.space().len()) {
            client.space()[..piece.len()].copy_from_slice(piece);
            client.fill(piece.len());
            loop {
                match client.next_event() {
                    Ok(None) => break,
                    Ok(Some(ClientEvent::NarData(data))) => contents.extend_from_slice(data),
                    Ok(Some(event)) => events.push(format!("{event:?}")),
                    Err(fault) => return (events, contents, without_len(fault)),
                }
            }
        }
    }
    (events, contents, None)
}

fn server_events(data: &[u8], piece_len: usize) -> Events {
    let dir = StoreDir::default();
    let version = Version::OFFERED;
    let mut server = ServerSession::new(dir.clone(), ServerInfo::default(), version);
    let (mut events, mut contents) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece_len) {
        for piece in piece.chunks(server.space().len()) {
            server.space()[..piece.len()].copy_from_slice(piece);
            server.fill(piece.len());
            loop {
                match server.next_event(&mut Vec::new()) {
                    Ok(None) => break,
                    Ok(Some(ServerEvent::Data(data))) => contents.extend_from_slice(data),
                    Ok(Some(ServerEvent::Request(request))) => {
                        check_request(&request, &dir);
                        events.push(format!("{request:?}"));
                    }
                    Ok(Some(event)) => events.push(format!("{event:?}")),
                    Err(fault) => return (events, contents, without_len(fault)),
                }
            }
        }
    }
    (events, contents, None)
}

fn serve_events(data: &[u8], piece_len: usize) -> Events {
    let mut server = serve::ServerSession::new(StoreDir::default());
    let (mut events, mut contents) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece_len) {
        for piece in piece.chunks(server.space().len()) {
            server.space()[..piece.len()].copy_from_slice(piece);
            server.fill(piece.len());
            loop {
                match server.next_event(&mut Vec::new()) {
                    Ok(None) => break,
                    Ok(Some(serve::ServerEvent::Data(data))) => contents.extend_from_slice(data),
                    Ok(Some(event)) => events.push(format!("{event:?}")),
                    Err(fault) => {
                        // The pieces decide how much of a broken NAR comes before its fault.
                        if let WireError::Nar { .. } = fault {
                            contents.clear();
                        }
                        return (events, contents, without_len(fault));
                    }
                }
            }
        }
    }
    (events, contents, None)
}

/// Checks that a request means the same after it was written and read.
fn check_request(request: &Request, dir: &StoreDir) {
    let mut bytes = Vec::new();
    if !request.write(&mut bytes, dir) {
        // floe does not send it.
        return;
    }
    let mut input = floe_wire::Input::new(&bytes);
    assert_eq!(Request::parse(&mut input, dir).as_ref(), Ok(request));
    assert_eq!(input.len_read(), bytes.len());
}

/// The peer's bytes are shown and counted as far as they have arrived, which depends on the pieces.
fn without_len(fault: WireError) -> Option<WireError> {
    Some(match fault {
        WireError::Unexpected { .. } => WireError::Unexpected { len: 0 },
        WireError::Magic { .. } => WireError::Magic {
            beginning: String::new(),
        },
        fault => fault,
    })
}
