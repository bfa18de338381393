//! Uploads that the server adds to its live store.

mod several_clients;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use floe_testkit::{Corpus, Nix, corpus, nixes, ran_in_pid_namespace, run, scratch, wait_until};
use rusqlite::Connection;
use rustix::process::{Signal, geteuid};

use super::uploads::{hash, nar, narinfo, part};
use super::{Receiving, check_installs, put, serve_with};
use crate::push::{key_named, source_root};
use crate::serve_logins::add_token;
use crate::support::floe;

const OPTION: &str = "--receive-into-store";

/// A server that adds uploads to its store, and the key of those who push.
pub(super) struct IntoStore {
    pub(super) receiving: Receiving,
    /// The file of the secret key.
    pub(super) secret: String,
    /// The public key.
    pub(super) public: String,
    pub(super) root: PathBuf,
}

impl IntoStore {
    /// Starts a server that trusts the key of those who push.
    #[track_caller]
    pub(super) fn start(args: &[&str]) -> IntoStore {
        let scratch = scratch();
        let (secret, public) = key_named(&scratch, "team-1");
        let text = format!("trusted-public-keys = {public}\n");
        fs::write(scratch.join("nix.conf"), text).unwrap();
        let root = scratch.join("root");
        IntoStore {
            receiving: Receiving::start_in(scratch, OPTION, args),
            secret,
            public,
            root,
        }
    }

    /// Pushes a corpus, signed.
    pub(super) fn push(&self, corpus: &Corpus) -> Command {
        let mut push = self.receiving.push(corpus);
        push.args(["--secret-key-file", &self.secret]);
        push
    }

    /// The names of the files that wait for their narinfos.
    fn waiting(&self) -> Vec<String> {
        let names = fs::read_dir(self.receiving.directory.join("nar")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().display().to_string());
        names.collect()
    }

    /// The base names of the valid paths.
    fn valid(&self) -> BTreeSet<String> {
        valid(&self.root)
    }

    pub(super) fn has(&self, path: &str) -> bool {
        has(&self.root, path)
    }

    fn verify(&self) {
        run(floe(["verify", "--root"]).arg(&self.root)).expect(0);
    }
}

/// The base names of the valid paths of a store.
fn valid(root: &Path) -> BTreeSet<String> {
    let database = root.join("nix/var/nix/db/db.sqlite");
    let connection = Connection::open(database).unwrap();
    let mut query = connection.prepare("select path from ValidPaths").unwrap();
    let paths = query.query_map((), |row| row.get::<_, String>(0)).unwrap();
    let base_name = |path: String| path["/nix/store/".len()..].to_owned();
    paths.map(|path| base_name(path.unwrap())).collect()
}

fn has(root: &Path, path: &str) -> bool {
    valid(root).contains(path.trim_start_matches("/nix/store/"))
}

#[test]
fn nix_copies_into_the_store() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let store = IntoStore::start(&[]);
        let url = store.receiving.server.url();
        let copy = |parameters: &str| {
            let to = format!("{url}?write-nar-listing=1{parameters}");
            let mut copy = nix.command("nix", ["copy", "--to", &to, "--no-check-sigs", "--from"]);
            copy.arg(source_root(&corpus)).arg(&corpus.root);
            copy.args(["--option", "netrc-file", &store.receiving.netrc()]);
            run(copy.arg("--refresh"))
        };
        // The store trusts as that of Nix does.
        let refused = copy("");
        assert_ne!(refused.code, Some(0));
        refused.stderr_contains("403");
        assert_eq!(store.valid().len(), 1);
        copy(&format!("&secret-key={}", store.secret)).expect(0);
        nix.verify(&store.root, corpus.paths.len() + 1);
        assert_eq!(store.waiting(), [""; 0], "{}", nix.version);
        check_installs(&store.receiving, &corpus, &store.receiving.public_key);
        copy(&format!("&secret-key={}", store.secret)).expect(0);
        assert_eq!(store.receiving.server.stop(), "", "{}", nix.version);
    }
}

#[test]
fn floe_pushes_into_the_store() {
    let Some(corpus) = corpus("curl") else { return };
    let store = IntoStore::start(&[]);
    let refused = run(&mut store.receiving.push(&corpus)).expect(4);
    refused.stderr_contains("no key that the server trusts has signed it");
    assert_eq!(store.valid().len(), 1);
    run(&mut store.push(&corpus)).expect(0);
    for nix in nixes() {
        nix.verify(&store.root, corpus.paths.len() + 1);
    }
    check_installs(&store.receiving, &corpus, &store.receiving.public_key);
    assert_eq!(store.waiting(), [""; 0]);
    run(&mut store.push(&corpus))
        .expect(0)
        .stderr_contains("nothing to do");
    assert_eq!(store.receiving.server.stop(), "");
}

#[test]
fn unsigned_paths_need_an_option() {
    let Some(corpus) = corpus("jq") else { return };
    let store = IntoStore::start(&["--receive-no-check-sigs"]);
    run(&mut store.receiving.push(&corpus)).expect(0);
    store.verify();
    assert!(store.has(&corpus.root));
    assert_eq!(store.receiving.server.stop(), "");
}

#[test]
fn only_true_paths_are_added() {
    let store = IntoStore::start(&["--receive-no-check-sigs"]);
    let receiving = &store.receiving;
    let limited = add_token(&receiving.logins, &["web", "--scope", "push=web-"]);
    receiving.server.signal(Signal::HUP);
    let (one, other) = (nar("one"), nar("other"));
    let target = |letter: &str| format!("/{}.narinfo", part(letter));
    let file = |nar: &[u8]| format!("/nar/{}.nar", hash(nar));
    let refuse = |status: u16, letter: &str, narinfo: &str, reason: &str| {
        let before = store.valid();
        let response = receiving.put(&target(letter), narinfo.as_bytes());
        let text = response.text().to_owned();
        assert_eq!(response.status, status, "{text}");
        assert!(text.contains(reason), "{text:?} lacks {reason:?}");
        assert_eq!(store.valid(), before);
    };
    let good = narinfo("a", "web", &one, "");
    refuse(409, "a", &good, "upload it first");
    assert_eq!(receiving.put(&file(&one), &one).status, 201);
    // A client asks whether the file is there.
    assert_eq!(receiving.get(&file(&one)).body, one);
    let change = |from: &str, to: &str| good.replacen(from, to, 1);
    let right = format!("NarHash: sha256:{}", hash(&one));
    let wrong = format!("NarHash: sha256:{}", hash(&other));
    refuse(400, "a", &change(&right, &wrong), "NAR hash");
    let size = format!("NarSize: {}", one.len());
    refuse(400, "a", &change(&size, "NarSize: 8"), "NAR size");
    refuse(400, "a", &change(&size, "NarSize: 9999"), "NAR size");
    refuse(
        400,
        "a",
        &change("Compression: none", "Compression: xz"),
        "cannot be decompressed",
    );
    for url in ["../x.nar", "nar/../x", "/etc/passwd", "nar/.x"] {
        let url = format!("URL: {url}\n");
        let changed = change(&format!("URL: nar/{}.nar\n", hash(&one)), &url);
        refuse(400, "a", &changed, "");
    }
    let absent = narinfo("a", "web", &one, &format!("{}-libx", part("d")));
    refuse(409, "a", &absent, "push them first");
    let ca = format!("{good}CA: fixed:r:sha256:{}\n", hash(&one));
    refuse(400, "a", &ca, "content address");
    let response = put(
        &mut receiving.server.connect(),
        &limited,
        &target("a"),
        good.as_bytes(),
    );
    // "web" does not begin with "web-".
    wait_until("the new login", || response.status != 401);
    assert_eq!(response.status, 403, "{}", response.text());

    assert_eq!(receiving.put(&target("a"), good.as_bytes()).status, 201);
    assert_eq!(store.waiting(), [""; 0]);
    assert!(store.has(&format!("{}-web", part("a"))));
    assert!(
        receiving
            .get(&target("a"))
            .text()
            .contains("Sig: server-1:")
    );
    // The same path again is no error, and another one under its name is.
    assert_eq!(receiving.put(&target("a"), good.as_bytes()).status, 201);
    let changed = narinfo("a", "web", &other, "");
    refuse(409, "a", &changed, "another NAR hash");
    // Another path has the contents of a file that is gone, and refers to itself and others.
    let base = receiving.in_store.trim_start_matches("/nix/store/");
    let references = format!("{a}-web {b}-x {base}", a = part("a"), b = part("b"));
    let same = narinfo("b", "x", &one, &references);
    assert_eq!(receiving.put(&target("b"), same.as_bytes()).status, 201);
    store.verify();
    for nix in nixes() {
        nix.verify(&store.root, 3);
    }
    assert_eq!(
        store.receiving.server.stop(),
        "reloaded certificates, keys and logins\n"
    );
}

/// Only signatures by trusted keys are added to a path of the store.
#[test]
fn signatures_are_added_to_valid_paths() {
    let Some(corpus) = corpus("jq") else { return };
    let store = IntoStore::start(&[]);
    run(&mut store.push(&corpus)).expect(0);
    let target = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    let info = |key: &str| {
        let mut info = floe(["info", "--json", "--root"]);
        let text = run(info.arg(&store.root).arg(&corpus.root))
            .expect(0)
            .stdout;
        text.matches(&format!("\"{key}:")).count()
    };
    assert_eq!((info("team-1"), info("server-1")), (1, 0));
    let text = store.receiving.get(&target).text().to_owned();
    assert!(text.contains("Sig: server-1:"), "{text}");
    let junk = "x-1:".to_owned() + &"A".repeat(86) + "==";
    let text = format!("{text}Sig: {junk}\n");
    assert_eq!(store.receiving.put(&target, text.as_bytes()).status, 201);
    assert_eq!((info("team-1"), info("server-1"), info("x-1")), (1, 1, 0));
}

/// A store trusts the keys that its server has now.
#[test]
fn replaced_keys_are_trusted() {
    let Some(corpus) = corpus("jq") else { return };
    let store = IntoStore::start(&[]);
    let scratch = &store.receiving.scratch;
    let [old, new] = ["server-1", "server-2"].map(|name| scratch.join(name).display().to_string());
    fs::copy(scratch.join("server-1.sec"), &old).unwrap();
    store.receiving.replace_key("server-2");
    fs::copy(scratch.join("server-1.sec"), &new).unwrap();
    let push = |key: &str| {
        let mut push = store.receiving.push(&corpus);
        run(push.args(["--secret-key-file", key]))
    };
    let refused = push(&old).expect(4);
    refused.stderr_contains("no key that the server trusts has signed it");
    push(&new).expect(0);
    store.verify();
}

/// Pushed paths stay until a client can have made a root for them, beside collections of Nix.
#[test]
fn collections_of_nix_keep_new_paths() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        let store = IntoStore::start(&[]);
        let collections = collect_during(&nix, &store, || {
            run(&mut store.push(&corpus)).expect(0);
        });
        assert!(collections > 0);
        nix.store(&store.root, ["--gc"]);
        nix.verify(&store.root, corpus.paths.len());
        assert!(store.has(&corpus.root), "{}", nix.version);
        let link = store.root.join("nix/var/nix/gcroots/root");
        std::os::unix::fs::symlink(&corpus.root, &link).unwrap();
        let root = store.root.clone();
        let Receiving {
            server,
            scratch: _scratch,
            ..
        } = store.receiving;
        assert_eq!(server.stop(), "");
        nix.store(&root, ["--gc"]);
        assert!(has(&root, &corpus.root), "{}", nix.version);
        fs::remove_file(link).unwrap();
        nix.store(&root, ["--gc"]);
        assert_eq!(valid(&root), BTreeSet::new());
    }
}

/// Runs collections of Nix until the end of `work`. Returns their number.
fn collect_during(nix: &Nix, store: &IntoStore, work: impl FnOnce()) -> usize {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let collections = scope.spawn(move || {
            let mut count = 0;
            loop {
                nix.store(&store.root, ["--gc"]);
                count += 1;
                if ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                    return count;
                }
            }
        });
        work();
        drop(end);
        collections.join().unwrap()
    })
}

#[test]
fn kept_paths_are_collected_later() {
    let Some(corpus) = corpus("jq") else { return };
    let store = IntoStore::start(&["--receive-keep", "1"]);
    run(&mut store.push(&corpus)).expect(0);
    let nix = nixes().remove(0);
    wait_until("the end of the roots", || {
        nix.store(&store.root, ["--gc"]);
        !store.has(&corpus.root)
    });
    run(&mut store.push(&corpus)).expect(0);
    nix.verify(&store.root, corpus.paths.len());
    assert_eq!(store.receiving.server.stop(), "");
}

#[test]
fn uploads_without_narinfos_are_deleted() {
    let store = IntoStore::start(&["--receive-keep", "1"]);
    let contents = nar("one");
    let target = format!("/nar/{}.nar", hash(&contents));
    let young = format!("/nar/{}.nar", hash(&nar("other")));
    assert_eq!(store.receiving.put(&target, &contents).status, 201);
    assert_eq!(store.receiving.put(&young, &nar("other")).status, 201);
    let file = store.receiving.directory.join(&target[1..]);
    let file = File::options().write(true).open(file).unwrap();
    let old = SystemTime::now() - Duration::from_secs(3700);
    file.set_modified(old).unwrap();
    wait_until("the end of the upload", || {
        store.receiving.get(&target).status == 404
    });
    assert_eq!(store.receiving.get(&young).status, 200);
}

#[test]
fn uploads_do_not_wait_in_the_store() {
    let scratch = scratch();
    let root = scratch.join("root");
    fs::create_dir_all(root.join("nix/store")).unwrap();
    let link = scratch.join("link");
    std::os::unix::fs::symlink(root.join("nix/store"), &link).unwrap();
    let logins = scratch.join("logins");
    add_token(&logins, &["ci", "--scope", "push"]);
    let mut serve = floe(["serve", "--listen", "127.0.0.1:0", "--store"]);
    serve
        .arg(&root)
        .arg(OPTION)
        .arg(&link)
        .arg("--auth-file")
        .arg(&logins);
    run(&mut serve)
        .expect(1)
        .stderr_contains("it is in the store");
}

#[test]
fn killed_servers_leave_a_valid_store() {
    let Some(corpus) = corpus("curl") else { return };
    let store = IntoStore::start(&[]);
    let mut killed = 0;
    let mut server = None;
    for round in 0..4 {
        let valid = store.valid().len();
        let current = server.as_ref().unwrap_or(&store.receiving.server);
        let url = current.url();
        let mut push = floe(["push", "--to", &url, "--root", &source_root(&corpus)]);
        push.args(["--secret-key-file", &store.secret]);
        push.args(["--option", "netrc-file", &store.receiving.netrc()]);
        push.args(["--option", "download-attempts", "1"]);
        let mut push = push.arg(&corpus.root).spawn().unwrap();
        wait_until("a path", || store.valid().len() > valid + round);
        current.signal(Signal::KILL);
        killed += usize::from(!push.wait().unwrap().success());
        server = Some(serve_with(&store.receiving.scratch, OPTION, &[]));
        store.verify();
    }
    assert!(killed > 0, "no push was interrupted");
    let receiving = Receiving {
        server: server.unwrap(),
        ..store.receiving
    };
    let store = IntoStore { receiving, ..store };
    run(&mut store.push(&corpus)).expect(0);
    store.verify();
    // The next server deletes the trees of killed ones whose paths are valid now.
    let root = store.root.clone();
    let Receiving {
        server, scratch, ..
    } = store.receiving;
    assert_eq!(server.stop(), "");
    let _server = serve_with(&scratch, OPTION, &[]);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
    let names = fs::read_dir(root.join("nix/store")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().display().to_string());
    let names = names.filter(|name| name != ".links");
    assert_eq!(names.collect::<BTreeSet<_>>(), valid(&root));
}

#[test]
fn full_store_is_reported() {
    if !geteuid().is_root() {
        return;
    }
    let mut store = IntoStore::start(&[]);
    let (small, large) = (nar("small"), nar(&"large".repeat(400_000)));
    let place = store.root.join("nix/store");
    let mount = |args: &[&str]| {
        let status = Command::new(args[0]).args(&args[1..]).arg(&place).status();
        assert!(status.unwrap().success());
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let args = ["--receive-no-check-sigs"];
    store.receiving.server = serve_with(&store.receiving.scratch, OPTION, &args);
    let mut client = store.receiving.server.connect();
    let mut add = |letter: &str, nar: &[u8]| {
        let token = &store.receiving.token;
        let text = narinfo(letter, "web", nar, "");
        put(&mut client, token, &format!("/nar/{}.nar", hash(nar)), nar);
        let target = format!("/{}.narinfo", part(letter));
        put(&mut client, token, &target, text.as_bytes())
    };
    let refused = add("a", &large);
    let added = add("b", &small);
    mount(&["umount", "--lazy"]);
    assert_eq!(
        refused.status,
        507,
        "{}: {}",
        refused.text(),
        store.receiving.server.stderr()
    );
    assert_eq!(added.status, 201, "{}", added.text());
}
