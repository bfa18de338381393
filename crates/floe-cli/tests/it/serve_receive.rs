//! `floe serve --receive`: a server that receives uploads into a binary cache.

mod arriving_nars;
mod into_store;
mod limits;
mod pins;
mod proxy;
mod realisations;
mod uploads;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::http_client::{Client, Response};
use floe_testkit::{Corpus, Scratch, corpus, nixes, run, scratch, wait_until};
use rustix::process::Signal;

use crate::push::{key, key_named, source_root};
use crate::serve_logins::{add_token, bearer};
use crate::serve_options::serve as server_command;
use crate::server_process::ServerProcess;
use crate::support::floe;
use uploads::{hash, nar, narinfo, part};

/// A server with a small store that receives uploads.
struct Receiving {
    scratch: Scratch,
    server: ServerProcess,
    /// The directory of the cache.
    directory: PathBuf,
    logins: PathBuf,
    /// A token that may read and push.
    token: String,
    /// The public key of the server.
    public_key: String,
    /// A path of the store.
    in_store: String,
}

impl Receiving {
    #[track_caller]
    fn start(args: &[&str]) -> Receiving {
        Receiving::start_in(scratch(), "--receive", args)
    }

    /// Starts a server that receives into the place of an option.
    #[track_caller]
    fn start_in(scratch: Scratch, option: &str, args: &[&str]) -> Receiving {
        let root = scratch.join("root");
        let file = scratch.join("file");
        fs::write(&file, "contents").unwrap();
        let mut add = floe(["add", "--name", "in-store", "--to"]);
        let added = run(add.arg(&root).arg(&file)).expect(0);
        let logins = scratch.join("logins");
        let token = add_token(&logins, &["ci", "--scope", "read,push"]);
        let (_, public_key) = key_named(&scratch, "server-1");
        let directory = scratch.join("cache");
        Receiving {
            server: serve_with(&scratch, option, args),
            in_store: added.stdout.trim().to_owned(),
            scratch,
            directory,
            logins,
            token,
            public_key,
        }
    }

    /// Returns a netrc file with the token.
    fn netrc(&self) -> String {
        let file = self.scratch.join("netrc");
        let text = format!("machine 127.0.0.1 login any password {}\n", self.token);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn push(&self, corpus: &Corpus) -> Command {
        let root = source_root(corpus);
        let mut push = floe(["push", "--to", &self.server.url(), "--root", &root]);
        push.args(["--option", "netrc-file", &self.netrc()]);
        push.arg(&corpus.root);
        push
    }

    fn put(&self, target: &str, body: &[u8]) -> Response {
        put(&mut self.server.connect(), &self.token, target, body)
    }

    fn get(&self, target: &str) -> Response {
        self.server.get_with(target, &bearer(&self.token))
    }

    /// Returns the names of all files of the cache.
    fn files(&self) -> Vec<String> {
        let folders = ["", "nar/", "realisations/", "leases/"];
        let mut names = Vec::new();
        for folder in folders {
            let Ok(entries) = fs::read_dir(self.directory.join(folder)) else {
                continue;
            };
            let files = entries.map(Result::unwrap).filter(|it| it.path().is_file());
            names.extend(files.map(|it| format!("{folder}{}", it.file_name().display())));
        }
        names.sort();
        names
    }

    /// Replaces the key of the server by another one, and lets the server read it. Returns the
    /// public key.
    fn replace_key(&self, name: &str) -> String {
        let (file, public) = key_named(&self.scratch, name);
        fs::copy(file, self.scratch.join("server-1.sec")).unwrap();
        let before = self.server.stderr().len();
        self.server.signal(Signal::HUP);
        wait_until("the reload", || {
            self.server.stderr()[before..].contains("reloaded")
        });
        public
    }

    fn verify(&self) {
        let uri = format!("file://{}", self.directory.display());
        run(&mut floe(["cache", "verify", "--contents", &uri])).expect(0);
    }
}

/// Starts the server of the files in `scratch`.
#[track_caller]
fn serve(scratch: &Scratch, args: &[&str]) -> ServerProcess {
    serve_with(scratch, "--receive", args)
}

/// Starts the server of the files in `scratch`, which receives into the place of an option. If
/// there is a nix.conf among them, the server reads it.
#[track_caller]
fn serve_with(scratch: &Scratch, option: &str, args: &[&str]) -> ServerProcess {
    let [cache, logins, key] =
        ["cache", "logins", "server-1.sec"].map(|name| scratch.join(name).display().to_string());
    let own = [option, &cache, "--auth-file", &logins];
    let key = ["--secret-key-file", &key];
    let mut server = server_command(&["serve", "--listen", "127.0.0.1:0", "--store"]);
    server.arg(scratch.join("root"));
    if scratch.join("nix.conf").exists() {
        server.env("NIX_CONF_DIR", scratch.join(""));
    }
    ServerProcess::spawn(server.args([&own, &key[..], args].concat()))
}

/// Uploads an object over a connection.
#[track_caller]
fn put(client: &mut Client, token: &str, target: &str, body: &[u8]) -> Response {
    let login = bearer(token);
    let len = body.len();
    let head = format!("PUT {target} HTTP/1.1\r\nHost: h\r\n{login}Content-Length: {len}\r\n\r\n");
    client.send(&[head.as_bytes(), body].concat());
    client.read_response(false).unwrap()
}

/// Installs a corpus from the server with every Nix and with floe, each with one key.
fn check_installs(receiving: &Receiving, corpus: &Corpus, key: &str) {
    let (url, netrc) = (receiving.server.url(), receiving.netrc());
    for nix in nixes() {
        let root = receiving
            .scratch
            .join(&format!("nix-{}-{}", nix.version, key.len()));
        let mut copy = nix.command("nix", ["copy", "--from", &url, "--to"]);
        copy.arg(&root).args(["--trusted-public-keys", key]);
        copy.args(["--option", "netrc-file", &netrc]);
        run(copy.arg(&corpus.root)).expect(0);
        nix.verify(&root, corpus.paths.len());
        fs::remove_dir_all(root.join("nix/store")).unwrap_or_default();
    }
    let root = receiving.scratch.join(&format!("floe-{}", key.len()));
    let mut install = floe(["install", "--from", &url, "--root"]);
    install.arg(&root).args(["--trusted-public-keys", key]);
    install.args(["--option", "netrc-file", &netrc]);
    run(install.arg(&corpus.root)).expect(0);
}

#[test]
fn floe_pushes_and_all_clients_install() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&[]);
    let (secret, public) = key(&receiving.scratch);
    let mut push = receiving.push(&corpus);
    run(push.args(["--secret-key-file", &secret])).expect(0);
    receiving.verify();
    check_installs(&receiving, &corpus, &public);
    // The server has signed the paths, too.
    check_installs(&receiving, &corpus, &receiving.public_key);
    let again = run(&mut receiving.push(&corpus)).expect(0);
    again.stderr_contains("nothing to do");
    let metrics = add_token(&receiving.logins, &["prometheus", "--scope", "metrics"]);
    receiving.server.signal(rustix::process::Signal::HUP);
    floe_testkit::wait_until("the new login", || {
        let response = receiving.server.get_with("/metrics", &bearer(&metrics));
        response.status == 200
    });
    let response = receiving.server.get_with("/metrics", &bearer(&metrics));
    let received = format!(
        "floe_uploads_total{{result=\"received\"}} {}\n",
        2 * corpus.paths.len()
    );
    assert!(response.text().contains(&received), "{}", response.text());
    assert_eq!(
        receiving.server.stop(),
        "reloaded certificates, keys and logins\n"
    );
}

#[test]
fn push_without_a_key_tells_that_the_server_may_sign() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&[]);
    let pushed = run(&mut receiving.push(&corpus)).expect(0);
    pushed.stderr_contains("clients refuse them unless the server signs them");
    check_installs(&receiving, &corpus, &receiving.public_key);
}

#[test]
fn nix_copies_to_the_server() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let receiving = Receiving::start(&[]);
        let (secret, public) = key(&receiving.scratch);
        for compression in ["xz", "none", "zstd"] {
            let to = format!(
                "{}?secret-key={secret}&compression={compression}&write-nar-listing=1",
                receiving.server.url()
            );
            let mut copy = nix.command("nix", ["copy", "--to", &to, "--no-check-sigs", "--from"]);
            copy.arg(source_root(&corpus)).arg(&corpus.root);
            copy.args(["--option", "netrc-file", &receiving.netrc()]);
            run(copy.arg("--refresh")).expect(0);
            receiving.verify();
            if compression == "xz" {
                check_installs(&receiving, &corpus, &public);
            }
            // The next one writes all paths again.
            for file in receiving.files() {
                if file.ends_with(".narinfo") {
                    fs::remove_file(receiving.directory.join(file)).unwrap();
                }
            }
        }
        assert!(receiving.files().iter().any(|name| name.ends_with(".ls")));
        assert_eq!(receiving.server.stop(), "", "{}", nix.version);
    }
}

/// A reference may be in the live store of the server alone.
#[test]
fn references_may_be_in_the_store() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let libc = corpus
        .paths
        .iter()
        .find(|it| it.contains("-libc6-"))
        .unwrap();
    let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
    install
        .arg(&root)
        .args(["--trusted-public-keys", &corpus.key]);
    run(install.arg(libc)).expect(0);
    let logins = scratch.join("logins");
    let token = add_token(&logins, &["ci", "--scope", "read,push"]);
    key_named(&scratch, "server-1");
    let server = serve(&scratch, &[]);
    let receiving = Receiving {
        directory: scratch.join("cache"),
        public_key: String::new(),
        in_store: libc.clone(),
        scratch,
        server,
        logins,
        token,
    };
    run(&mut receiving.push(&corpus)).expect(0);
    let narinfo = |path: &str| format!("{}.narinfo", &path["/nix/store/".len()..][..32]);
    assert!(receiving.files().contains(&narinfo(&corpus.root)));
    assert!(!receiving.files().contains(&narinfo(libc)));
    // Clients get both from the server.
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &receiving.server.url(),
    ]);
    install.args(["--option", "netrc-file", &receiving.netrc(), "--root"]);
    run(install
        .arg(receiving.scratch.join("other"))
        .arg(&corpus.root))
    .expect(0);
}

/// Everyone reads, and few push.
#[test]
fn public_servers_need_logins_for_uploads_alone() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&["--public-read"]);
    let (secret, public) = key(&receiving.scratch);
    let anonymous = |target: &str, body: &[u8]| {
        let head = format!(
            "PUT {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = receiving.server.connect();
        client.send(&[head.as_bytes(), body].concat());
        client.read_response(false).unwrap().status
    };
    assert_eq!(anonymous("/nar/x.nar", b"x"), 401);
    let mut push = receiving.push(&corpus);
    run(push.args(["--secret-key-file", &secret])).expect(0);
    let root = receiving.scratch.join("other");
    let mut install = floe(["install", "--from", &receiving.server.url(), "--root"]);
    install.arg(root).args(["--trusted-public-keys", &public]);
    run(install.arg(&corpus.root)).expect(0);
    let target = format!("/{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
    let public = receiving.server.get(&target);
    assert_eq!(public.status, 200);
    assert!(!public.head.contains("private"), "{}", public.head);
    assert_eq!(receiving.get(&target).status, 200);
    assert_eq!(
        receiving.server.get_with(&target, &bearer("wrong")).status,
        401
    );
    assert_eq!(receiving.server.get("/metrics").status, 401);
    let pusher = add_token(&receiving.logins, &["pusher", "--scope", "push"]);
    receiving.server.signal(rustix::process::Signal::HUP);
    floe_testkit::wait_until("the new login", || {
        receiving.server.get_with(&target, &bearer(&pusher)).status == 200
    });
}

#[test]
fn server_needs_logins_to_receive() {
    let receiving = Receiving::start(&[]);
    let cache = receiving.scratch.join("other").display().to_string();
    let root = receiving.scratch.join("root").display().to_string();
    let args = ["serve", "--store", &root, "--receive", &cache, "--check"];
    run(&mut floe(args))
        .expect(2)
        .stderr_contains("add --auth-file FILE");
    assert!(!Path::new(&cache).exists());
    // A check makes nothing either, and finds out what the server could not use.
    let logins = receiving.logins.display().to_string();
    let file = receiving.scratch.join("file").display().to_string();
    for (option, place, code) in [
        ("--receive", &cache, 0),
        ("--receive-into-store", &cache, 0),
        ("--receive", &file, 1),
    ] {
        let args = ["serve", "--check", "--port", "0", "--root", &root];
        let mut check = floe(args);
        check.args(["--auth-file", &logins, option, place]);
        let ran = run(&mut check).expect(code);
        assert_eq!(
            ran.stdout.contains(&format!("{} {cache}", &option[2..])),
            code == 0
        );
    }
    assert!(!Path::new(&cache).exists());
    // A server that does not receive allows no upload.
    let server = ServerProcess::start(&root, &[]);
    let response = put(&mut server.connect(), "x", "/nar/x.nar", b"x");
    assert_eq!(response.status, 405);
}

#[test]
fn replaced_keys_sign_uploads() {
    let receiving = Receiving::start(&[]);
    let contents = nar("one");
    let upload = |letter: &str| {
        let nar = receiving.put(&format!("/nar/{}.nar", hash(&contents)), &contents);
        assert_eq!(nar.status, 201);
        let target = format!("/{}.narinfo", part(letter));
        let text = narinfo(letter, "web", &contents, "");
        assert_eq!(receiving.put(&target, text.as_bytes()).status, 201);
        let text = receiving.get(&target).text().to_owned();
        ["server-1", "server-2"].map(|name| text.contains(&format!("Sig: {name}:")))
    };
    assert_eq!(upload("a"), [true, false]);
    receiving.replace_key("server-2");
    assert_eq!(upload("b"), [false, true]);
}
