//! The page at `/` for people.

use floe_testkit::{corpus, scratch};

use crate::push::key_named;
use crate::server_process::ServerProcess;

/// Browsers get a page with the real address and key, other clients the same as text.
#[test]
fn landing_page_tells_how_to_use_the_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (secret, public) = key_named(&scratch, "page-1");
    let server = ServerProcess::start(corpus.store(), &["--secret-key-file", &secret]);
    let browser = "Accept: text/html,application/xhtml+xml\r\n";
    let page = |fields: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: cache.example.org\r\n{fields}\r\n");
        let mut client = server.connect();
        client.send(head.as_bytes());
        client.read_response(false).unwrap()
    };
    let html = page(browser);
    assert_eq!(html.field("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = html.field("Content-Security-Policy").unwrap().to_owned();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    let line = format!("extra-trusted-public-keys = {public}\n");
    for page in [&html, &page("")] {
        assert!(
            page.text()
                .contains("extra-substituters = http://cache.example.org\n")
        );
        assert!(page.text().contains(&line), "{}", page.text());
    }
    let https = page(&format!("{browser}X-Forwarded-Proto: https\r\n"));
    assert!(
        https
            .text()
            .contains("substituters = [ &quot;https://cache.example.org&quot; ];")
    );
    // The page tells nothing of the contents, and takes no text of the client.
    assert!(
        !html
            .text()
            .contains(&corpus.root["/nix/store/".len()..][..32])
    );
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: <b>h\r\n{browser}\r\n").as_bytes());
    let odd = client.read_response(false).unwrap();
    assert!(!odd.text().contains("<b>") && odd.text().contains("cache.example.org"));
    server.stop();
    let server = ServerProcess::start(corpus.store(), &["--no-landing-page"]);
    assert_eq!(server.get("/").status, 404);
}
