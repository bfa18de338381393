//! One address with 2,000 connections, beside a client with another address.

use floe_testkit::corpus;
use floe_testkit::http_client::{Client, narinfo_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server_process::ServerProcess;

const CONNECTIONS: usize = 2000;

#[test]
fn client_is_served_beside_2000_connections_of_another_address() {
    let Some(corpus) = corpus("jq") else { return };
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let serve = ServerProcess::start(corpus.store(), &[]);
    let narinfo = narinfo_of(&corpus.root);
    let whole = serve.get(&narinfo);
    let nar = format!("/{}", whole.narinfo_field("URL"));
    let unread = format!("GET {nar} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut others: Vec<Client> = (0..CONNECTIONS).map(|_| serve.connect_from(2)).collect();
    let mut client = serve.connect_from(3);
    for (number, other) in others.iter_mut().enumerate() {
        match number % 3 {
            0 => assert_eq!(other.request("GET", &narinfo, "").status, 200),
            1 => other.send(b"GET / HTTP/1.1\r\nHost: h\r\nX: "),
            _ => other.send(unread.as_bytes()),
        }
        // The other address has the rest of the connections all the time.
        if number % 100 == 0 {
            assert_eq!(client.request("GET", &narinfo, "").body, whole.body);
        }
    }
    let metrics = client.request("GET", "/metrics", "");
    let open = metrics.text().lines().find_map(|line| {
        let count = line.strip_prefix("floe_connections_open ")?;
        count.parse::<usize>().ok()
    });
    assert_eq!(open, Some(CONNECTIONS + 1));
    for _ in 0..100 {
        let mut new = serve.connect_from(3);
        assert_eq!(new.request("GET", &narinfo, "").body, whole.body);
    }
    assert_eq!(serve.stop(), "");
}
