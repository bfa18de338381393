//! The page at `/` for people.

use std::process::Command;

use floe_testkit::{corpus, nixes, run, scratch};

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

/// The text of the page after a heading, which a reader copies.
fn code_after(html: &str, heading: &str) -> String {
    let (_, rest) = html.split_once(&format!("<h2>{heading}</h2>")).unwrap();
    let (_, rest) = rest.split_once("<pre><code>").unwrap();
    let (code, _) = rest.split_once("</code></pre>").unwrap();
    let marks = [
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&amp;", "&"),
    ];
    let unescape = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    marks.into_iter().fold(code.to_owned(), unescape)
}

#[test]
fn commands_and_settings_of_the_page_work() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (secret, _) = key_named(&scratch, "page-1");
    let server = ServerProcess::start(corpus.store(), &["--secret-key-file", &secret]);
    let (url, mut client) = (server.url(), server.connect());
    let host = url.strip_prefix("http://").unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n");
    client.send(head.as_bytes());
    let page = client.read_response(false).unwrap();
    let command = code_after(page.text(), "For one command");
    let command = command.replace("/nix/store/HASH-NAME", &corpus.root);
    let [nixos, flake] = ["With NixOS", "With a flake"].map(|it| code_after(page.text(), it));
    for (number, nix) in nixes().into_iter().enumerate() {
        let root = scratch.join(&format!("root-{number}"));
        let ready = nix.command("nix-store", [""; 0]);
        let environment = ready
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let mut shell = Command::new("sh");
        shell.envs(environment);
        shell.env("NIX_REMOTE", format!("local?root={}", root.display()));
        let program = nix.program("nix-store");
        let command = command.replacen("nix-store", &program.display().to_string(), 1);
        run(shell.args(["-euc", &command])).expect(0);
        assert!(root.join(&corpus.root[1..]).exists());
        for text in [&nixos, &flake] {
            let expression = format!("{{ {text} }}");
            let arguments = ["--eval", "--strict", "-E", &expression];
            let values = run(&mut nix.command("nix-instantiate", arguments)).expect(0);
            assert!(values.stdout.contains(&url), "{}", values.stdout);
            assert!(values.stdout.contains("page-1:"), "{}", values.stdout);
        }
    }
    assert_eq!(server.stop(), "");
}
