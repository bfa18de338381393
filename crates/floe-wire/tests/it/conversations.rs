//! Conversations of floe with daemons of Nix 2.8.0 and 2.34.8, recorded on their socket: a path of
//! 880 bytes is added, and read.

use std::fs;
use std::path::Path;

use floe_format::StoreDir;
use floe_wire::worker::{Reply, Request, ServerEvent, ServerInfo, ServerSession, Version};
use floe_wire::{ClientEvent, ClientSession, Protocol};

/// Returns the bytes of one side. The fuzz targets begin with them.
fn recorded(target: &str, name: &str) -> Vec<u8> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    fs::read(corpus.join(target).join(name)).unwrap()
}

/// Returns the requests of the client, and the bytes of the NAR that it sent.
fn requests(name: &str) -> (Vec<Request>, Vec<u8>) {
    let bytes = recorded("worker_server", name);
    let version = Version::OFFERED;
    let mut server = ServerSession::new(StoreDir::default(), ServerInfo::default(), version);
    server.space()[..bytes.len()].copy_from_slice(&bytes);
    server.fill(bytes.len());
    let (mut requests, mut nar) = (Vec::new(), Vec::new());
    while let Some(event) = server.next_event(&mut Vec::new()).unwrap() {
        match event {
            ServerEvent::Request(request) => requests.push(request),
            ServerEvent::Data(data) => nar.extend_from_slice(data),
            ServerEvent::Opened(_) | ServerEvent::DataEnd => {}
        }
    }
    (requests, nar)
}

/// Returns the replies of the daemon, and the bytes of the NAR that it sent.
fn replies(name: &str, requests: &[Request]) -> (ServerInfo, Vec<Reply>, Vec<u8>) {
    let bytes = recorded("worker_client", name);
    let mut client = ClientSession::new(Protocol::Worker, StoreDir::default(), &mut Vec::new());
    for request in requests {
        client.expect(request.reply_kind());
    }
    client.space()[..bytes.len()].copy_from_slice(&bytes);
    client.fill(bytes.len());
    let (mut info, mut replies, mut nar) = (ServerInfo::default(), Vec::new(), Vec::new());
    while let Some(event) = client.next_event().unwrap() {
        match event {
            ClientEvent::Opened(found) => info = found,
            ClientEvent::Replied(reply) => replies.push(reply),
            ClientEvent::NarData(data) => nar.extend_from_slice(data),
            ClientEvent::NarEnd | ClientEvent::Log(_) => {}
            ClientEvent::Failed(error) => panic!("{error:?}"),
        }
    }
    assert!(client.is_idle());
    (info, replies, nar)
}

#[test]
fn added_path_has_its_temporary_root_before_its_nar() {
    for version in ["2.8.0", "2.34.8"] {
        let (requests, nar) = requests(&format!("{version}-to"));
        let [
            Request::AddTempRoot(root),
            Request::QueryValidPaths {
                paths,
                substitute: false,
                ..
            },
            Request::AddToStoreNar {
                info,
                repair: false,
                dont_check_sigs: true,
            },
            Request::AddTempRoot(_),
            Request::QueryValidPaths { .. },
        ] = &*requests
        else {
            panic!("{requests:?}");
        };
        assert_eq!(root.name(), "tree");
        assert_eq!(*paths, [root.clone()].into());
        assert_eq!((&info.path, info.nar_size), (root, 880));
        assert_eq!(nar.len(), 880);
        let (server, replies, _) = replies(&format!("{version}-to"), &requests);
        assert_eq!(server.nix_version.as_deref(), Some(version));
        let trust = (version == "2.34.8").then_some(true);
        assert_eq!(server.trusts_client, trust);
        let done = Reply::Done;
        let (none, all) = ([].into(), [root.clone()].into());
        let expected = [
            done.clone(),
            Reply::Paths(none),
            Reply::Added,
            done,
            Reply::Paths(all),
        ];
        assert_eq!(replies, expected);
    }
}

#[test]
fn read_path_has_the_nar_that_was_added() {
    for version in ["2.8.0", "2.34.8"] {
        let (requests, _) = requests(&format!("{version}-from"));
        let [Request::QueryPathInfo(path), Request::NarFromPath(again)] = &*requests else {
            panic!("{requests:?}");
        };
        assert_eq!(path, again);
        let (_, replies, nar) = replies(&format!("{version}-from"), &requests);
        let [Reply::PathInfo(Some(info)), Reply::Nar] = &*replies else {
            panic!("{replies:?}");
        };
        assert_eq!((info.nar_size, nar.len()), (880, 880));
        let (_, added) = self::requests(&format!("{version}-to"));
        assert_eq!(nar, added);
    }
}
