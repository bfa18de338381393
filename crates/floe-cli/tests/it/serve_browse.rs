//! `/browse`: pages about the store.

mod screenshots;

use std::collections::BTreeSet;
use std::fs;

use floe_testkit::http_client::{Response, hash_part};
use floe_testkit::{Scratch, corpus, run, scratch, wait_until};
use rustix::process::Signal;

use crate::push::key_named;
use crate::serve_logins::{add_token, bearer};
use crate::serve_options::serve;
use crate::server_process::ServerProcess;
use crate::support::floe;

const BROWSE: &str = "--status-browse";

/// Returns the targets of the links on a page.
fn links(page: &Response) -> Vec<String> {
    let parts = page.text().split("href=\"").skip(1);
    parts
        .filter_map(|part| Some(part.split_once('"')?.0.to_owned()))
        .collect()
}

/// Every page and every link of a closure can be followed, and the figures are true.
#[test]
fn pages_lead_through_the_store() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (secret, _) = key_named(&scratch, "browse-1");
    let args = [BROWSE, "--secret-key-file", &secret];
    let server = ServerProcess::start(corpus.store(), &args);
    assert!(links(&server.get("/browse")).contains(&"/browse".into()));
    let browser = server.get_with("/", "Accept: text/html\r\n");
    assert!(links(&browser).contains(&"/browse".into()));
    let mut seen = BTreeSet::new();
    let mut open = vec![format!("/browse/{}", hash_part(&corpus.root))];
    while let Some(target) = open.pop() {
        if !seen.insert(target.clone()) {
            continue;
        }
        let page = server.get(&target);
        // No log has been kept.
        let expected = if target.starts_with("/log/") {
            404
        } else {
            200
        };
        assert_eq!(page.status, expected, "{target}");
        if target.starts_with("/browse/") {
            assert_eq!(page.field("Cache-Control"), Some("no-store"), "{target}");
            open.extend(links(&page));
        }
    }
    let paths = seen.iter().filter(|it| it.starts_with("/browse/"));
    assert_eq!(paths.count(), corpus.paths.len());
    let root = server.get(&format!("/browse/{}", hash_part(&corpus.root)));
    let closure = format!("in {} paths", corpus.paths.len());
    assert!(root.text().contains(&closure), "{}", root.text());
    assert!(root.text().contains("browse-1:"), "the signature");
    let libc = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    let libc = server.get(&format!("/browse/{}", hash_part(libc.unwrap())));
    assert!(
        libc.text().contains(&corpus.root["/nix/store/".len()..]),
        "a referrer"
    );
    let overview = server.get("/browse");
    let count = format!("<dt>Paths</dt><dd>{}</dd>", corpus.paths.len());
    assert!(overview.text().contains(&count), "{}", overview.text());
    // The server is younger than an hour.
    for time in ["Last hour", "Last 24 hours"] {
        let text = overview.text();
        let (_, traffic) = text.split_once(&format!("<dt>{time}</dt><dd>")).unwrap();
        let (requests, _) = traffic.split_once(" requests, ").unwrap();
        let requests: usize = requests.parse().unwrap();
        assert!(requests >= corpus.paths.len(), "{text}");
    }
    assert_eq!(
        server.get(&format!("/browse/{}", "0".repeat(32))).status,
        404
    );
    assert_eq!(server.stop(), "");
}

#[test]
fn search_finds_names_and_hashes() {
    let Some(corpus) = corpus("jq") else { return };
    let server = ServerProcess::start(corpus.store(), &[BROWSE]);
    let found = |text: &str| {
        // A form encodes a plus so, and a space as a plus.
        let encoded = text.replace('+', "%2B").replace(' ', "+");
        let page = server.get(&format!("/browse?q={encoded}"));
        assert_eq!(page.status, 200, "{text}");
        let paths = links(&page)
            .into_iter()
            .filter(|it| it.starts_with("/browse/"));
        paths.count()
    };
    let (base, part) = (&corpus.root["/nix/store/".len()..], hash_part(&corpus.root));
    assert_eq!(found(part), 1);
    assert_eq!(found(&base.to_uppercase()), 1);
    assert_eq!(found(&corpus.root), 1);
    assert_eq!(found(&corpus.root.replace('/', "%2F")), 1);
    assert_eq!(found(&format!("{}/bin/jq", corpus.root)), 1);
    assert_eq!(found(" LIBC6 "), found("libc6"));
    assert!(found("lib") > 1 && found("-") == corpus.paths.len());
    // The store directory is no name, and nothing has a meaning of its own.
    for text in [
        "store",
        "%25",
        "_",
        "*",
        "%27%20or%201%3d1--",
        "%00",
        "%ff",
        "&lt;",
    ] {
        assert_eq!(found(text), 0, "{text}");
    }
    let odd = server.get("/browse?q=%3Cscript%3E%22%1b");
    assert!(
        odd.text().contains("&lt;script&gt;&quot;\u{fffd}"),
        "{}",
        odd.text()
    );
    assert!(!odd.text().contains("<script"));
    let policy = odd.field("Content-Security-Policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    server.stop();
}

/// A list of the store would publish its contents, so only some may see it.
#[test]
fn only_some_may_browse() {
    let Some(corpus) = corpus("jq") else { return };
    let closed = ServerProcess::start(corpus.store(), &[]);
    assert_eq!(closed.get("/browse").status, 404);
    closed.stop();
    let scratch = scratch();
    let logins = scratch.join("logins");
    let [reader, watcher] =
        ["read", "status"].map(|scope| bearer(&add_token(&logins, &[scope, "--scope", scope])));
    let file = scratch.join("serve.toml");
    let settings = |more: &str| {
        let text = format!("auth_file = '{}'\n{more}", logins.display());
        fs::write(&file, text).unwrap();
    };
    settings("");
    let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
    command.arg(corpus.store()).arg("--config").arg(&file);
    let server = ServerProcess::spawn(&mut command);
    let statuses = || {
        let target = format!("/browse/{}", hash_part(&corpus.root));
        [&reader, &watcher, ""].map(|login| {
            let status = server.get_with("/browse", login).status;
            assert_eq!(server.get_with(&target, login).status, status);
            status
        })
    };
    assert_eq!(statuses(), [403, 200, 401]);
    let reload = |more: &str| {
        let before = server.stderr().len();
        settings(more);
        server.signal(Signal::HUP);
        wait_until("the reload", || {
            server.stderr()[before..].contains("changed")
        });
    };
    reload("public_read = true\n");
    assert_eq!(statuses(), [403, 200, 401]);
    reload("public_read = true\nstatus_browse = true\n");
    assert_eq!(statuses(), [200, 200, 200]);
    reload("status_browse = true\n");
    assert_eq!(statuses(), [200, 200, 401]);
    server.stop();
}

/// Adds a tree to a store. Returns the path.
fn add(scratch: &Scratch, tree: &str) -> String {
    let mut add = floe(["add", "--to"]);
    add.arg(scratch.join("root")).arg(scratch.join(tree));
    run(&mut add).expect(0).stdout.trim().to_owned()
}

/// Names and pages of the store are texts to a browser, and run nothing.
#[test]
fn contents_of_the_store_are_harmless() {
    let scratch = scratch();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let name = "<img src=x onerror=alert(1)>\"'\u{1b}[31m\n&.html";
    fs::write(tree.join(name), "<script>document.title = 'ran'</script>").unwrap();
    fs::write(
        tree.join("a.svg"),
        "<svg xmlns='http://www.w3.org/2000/svg'/>",
    )
    .unwrap();
    let path = add(&scratch, "tree");
    let server = ServerProcess::start(scratch.join("root"), &[BROWSE]);
    let directory = server.get(&format!("/serve/{}/", hash_part(&path)));
    assert!(!directory.text().contains("<img"), "{}", directory.text());
    assert!(!directory.text().contains('\u{1b}'));
    let policy = |response: &Response| {
        assert_eq!(response.status, 200);
        assert_eq!(response.field("X-Content-Type-Options"), Some("nosniff"));
        response
            .field("Content-Security-Policy")
            .unwrap()
            .to_owned()
    };
    assert!(policy(&directory).starts_with("default-src 'none'"));
    let files = links(&directory);
    assert_eq!(files.len(), 2);
    for file in files {
        let file = server.get(&file);
        let policy = policy(&file);
        assert!(policy.starts_with("sandbox; "), "{policy}");
        assert!(policy.contains("script-src 'none'"), "{policy}");
    }
    server.stop();
}

#[test]
fn directories_lead_up_and_down() {
    let scratch = scratch();
    fs::create_dir_all(scratch.join("tree/a b/c")).unwrap();
    fs::write(scratch.join("tree/a b/c/file"), "text").unwrap();
    let path = add(&scratch, "tree");
    let server = ServerProcess::start(scratch.join("root"), &[BROWSE]);
    let root = format!("/serve/{}/", hash_part(&path));
    let down = ["tree/", "tree/a b", "tree/a b/c"];
    let mut places = vec![root];
    for heading in down {
        let page = server.get(places.last().unwrap());
        assert!(
            page.text().contains(&format!("<h1>{heading}</h1>")),
            "{}",
            page.text()
        );
        let links = links(&page);
        let parent = places.iter().rev().nth(1);
        assert_eq!(links.first().filter(|_| links.len() == 2), parent);
        places.push(links.last().unwrap().clone());
    }
    assert_eq!(server.get(places.last().unwrap()).text(), "text");
    assert_eq!(server.stop(), "");
}

#[test]
fn large_directories_are_listed() {
    const ENTRIES: usize = 100_000;
    let scratch = scratch();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..ENTRIES {
        fs::write(tree.join(format!("entry-{number}")), "").unwrap();
    }
    let path = add(&scratch, "tree");
    let server = ServerProcess::start(scratch.join("root"), &[BROWSE]);
    let page = server.get(&format!("/serve/{}/", hash_part(&path)));
    assert_eq!((page.status, links(&page).len()), (200, ENTRIES));
    server.stop();
}
