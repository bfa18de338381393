//! Real clients of `floe serve`: every Nix, floe, curl, and nginx as a reverse proxy.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_testkit::http_client::{hash_part, narinfo_of};
use floe_testkit::{
    Corpus, Nix, Scratch, corpora, corpus, nginx, nixes, run, scratch, tree, wait_until,
};
use serde_json::Value;

use crate::serve_options::serve;
use crate::serve_responses::logs::compress;
use crate::server_process::ServerProcess;
use crate::support::floe;
use floe_testkit::find_tool;

/// Serves a corpus and signs with its key.
fn serve_signed(corpus: &Corpus, args: &[&str]) -> ServerProcess {
    let key = corpus.dir.join("key.sec").display().to_string();
    let mut all = vec!["--secret-key-file", &key];
    all.extend(args);
    ServerProcess::start(corpus.store(), &all)
}

/// Returns a Nix command that trusts a key.
pub(crate) fn nix_trusting(nix: &Nix, key: &str, tool: &str, args: &[&str]) -> Command {
    let mut command = nix.command(tool, args);
    let settings = format!("require-sigs = true\ntrusted-public-keys = {key}\n");
    command.env("NIX_CONFIG", settings);
    command
}

#[track_caller]
pub(crate) fn assert_closure_valid(nix: &Nix, corpus: &Corpus, root: &Path) {
    nix.verify(root, corpus.paths.len());
    let (ours, theirs) = (
        tree_without_owners(root),
        tree_without_owners(&corpus.store()),
    );
    assert!(ours == theirs, "{}: the trees differ", nix.version);
}

/// Lists every file of a store without its owner, because the copying user owns the files.
fn tree_without_owners(root: &Path) -> Vec<String> {
    let lines = tree(root).into_iter();
    let words = lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    words
        .map(|mut words| {
            words.remove(2);
            words.join(" ")
        })
        .collect()
}

#[test]
fn nix_copies_signed_closure() {
    for nix in &nixes() {
        for corpus in corpora() {
            for args in [&[][..], &["--compress", "always"]] {
                let serve = serve_signed(&corpus, args);
                let scratch = scratch();
                let root = scratch.join("root");
                let url = serve.url();
                let copy = ["copy", "--from", &url, &corpus.root, "--to"];
                run(nix_trusting(nix, &corpus.key, "nix", &copy).arg(&root)).expect(0);
                assert_closure_valid(nix, &corpus, &root);
                assert_eq!(serve.stop(), "");
            }
        }
    }
}

#[test]
fn nix_rejects_unsigned_or_foreign_signed_closure() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let (unsigned, signed) = (
            ServerProcess::start(corpus.store(), &[]),
            serve_signed(&corpus, &[]),
        );
        let other = "other-1:QR0XcYb1/L8bZuxi6UuFe5t1wm1vFQWSEePl5kOXuo0=";
        for (serve, key) in [(&unsigned, corpus.key.as_str()), (&signed, other)] {
            let scratch = scratch();
            let url = serve.url();
            let copy = ["copy", "--from", &url, &corpus.root, "--to"];
            let ran = run(nix_trusting(nix, key, "nix", &copy).arg(scratch.join("root")));
            assert_ne!(ran.code, Some(0), "{}", nix.version);
            ran.stderr_contains("signature");
        }
        let scratch = scratch();
        let root = scratch.join("root");
        let url = unsigned.url();
        let copy = [
            "copy",
            "--no-check-sigs",
            "--from",
            &url,
            &corpus.root,
            "--to",
        ];
        run(nix.command("nix", copy).arg(&root)).expect(0);
        assert_closure_valid(nix, &corpus, &root);
    }
}

#[test]
fn nix_store_realises_from_server_as_substituter() {
    for nix in &nixes() {
        for corpus in corpora() {
            let serve = serve_signed(&corpus, &[]);
            let scratch = scratch();
            let root = scratch.join("root");
            let mut command = nix.command("nix-store", ["--store"]);
            command.arg(&root).args(["-r", &corpus.root]);
            let settings = format!(
                "substituters = {}\ntrusted-public-keys = {}\n",
                serve.url(),
                corpus.key
            );
            let ran = run(command.env("NIX_CONFIG", settings)).expect(0);
            assert!(!ran.stderr.contains("warning: error"), "{}", ran.stderr);
            // Nix prints the download sizes of the narinfos.
            assert!(!ran.stderr.contains("0.00 MiB download"), "{}", ran.stderr);
            assert_closure_valid(nix, &corpus, &root);
        }
    }
}

#[test]
fn nix_queries_with_head_and_copies_to_another_cache() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let scratch = scratch();
        let log = scratch.join("access.log");
        let log_name = log.display().to_string();
        let serve = serve_signed(&corpus, &["--access-log", &log_name]);
        // Before a copy to an HTTP cache, Nix queries it by HEAD. All paths exist, so Nix uploads
        // nothing.
        let url = serve.url();
        let store = corpus.store().display().to_string();
        let copy = ["copy", "--store", &store, "--to", &url, &corpus.root];
        run(&mut nix.command("nix", copy)).expect(0);
        let asked = fs::read_to_string(&log).unwrap();
        assert!(!asked.contains("PUT"), "{}: {asked}", nix.version);
        let heads = asked.matches("\"HEAD /").count();
        let to = format!("file://{}", scratch.join("cache").display());
        let copy = ["copy", "--from", &url, "--to", &to, &corpus.root];
        run(&mut nix_trusting(nix, &corpus.key, "nix", &copy)).expect(0);
        let asked = fs::read_to_string(&log).unwrap();
        let narinfos = asked.matches(".narinfo HTTP/1.1\" 200").count();
        assert!(
            heads + narinfos >= corpus.paths.len(),
            "{}: {asked}",
            nix.version
        );
        for path in &corpus.paths {
            assert!(
                scratch.join("cache").join(&narinfo_of(path)[1..]).exists(),
                "{path}"
            );
        }
    }
}

/// Returns path infos without the fields in which a file cache and a server differ.
fn comparable_path_infos(nix: &Nix, store: &str, root: &str) -> Vec<Value> {
    let mut infos = nix.path_infos(store, root);
    for info in &mut infos {
        let info = info.as_object_mut().unwrap();
        for key in ["url", "compression", "downloadHash", "downloadSize"] {
            info.remove(key);
        }
    }
    infos
}

#[test]
fn path_infos_equal_those_of_a_file_cache() {
    for nix in &nixes() {
        for corpus in corpora() {
            let serve = serve_signed(&corpus, &[]);
            let ours = comparable_path_infos(nix, &serve.url(), &corpus.root);
            let theirs = comparable_path_infos(nix, &corpus.file_url("none"), &corpus.root);
            assert_eq!(ours.len(), corpus.paths.len());
            assert_eq!(ours, theirs, "{}", nix.version);
        }
    }
}

/// Writes a log to `file`, or compressed to `file.bz2`.
fn write_log(file: &Path, compressed: bool) {
    let text = b"built with care\n";
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    if compressed {
        let file = format!("{}.bz2", file.display());
        fs::write(file, compress(text)).unwrap();
    } else {
        fs::write(file, text).unwrap()
    }
}

#[test]
fn nix_reads_logs() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let infos = comparable_path_infos(nix, &corpus.store().display().to_string(), &corpus.root);
        let info = infos
            .iter()
            .find(|info| info["path"] == corpus.root)
            .unwrap();
        let deriver = info["deriver"].as_str().unwrap();
        let deriver = deriver.rsplit('/').next().unwrap();
        for compressed in [false, true] {
            let scratch = scratch();
            let file = scratch.join(&format!("drvs/{}/{}", &deriver[..2], &deriver[2..]));
            write_log(&file, compressed);
            let root = corpus.store();
            let store = format!(
                "local?root={}&log={}",
                root.display(),
                scratch.path().display()
            );
            let serve = ServerProcess::start(store, &[]);
            let url = serve.url();
            let ran = run(&mut nix.command("nix", ["log", "--store", &url, &corpus.root]));
            let text = ran.expect(0).stdout;
            assert!(text.contains("built with care"), "{}: {text}", nix.version);
        }
    }
}

#[test]
fn nix_reads_derivation_log_from_default_log_directory() {
    for nix in &nixes() {
        for compressed in [false, true] {
            let scratch = scratch();
            let root = scratch.join("root");
            let mut command = nix.command("nix-instantiate", ["--expr", DERIVATION, "--store"]);
            let drv = run(command.arg(&root)).expect(0).stdout.trim().to_owned();
            let name = drv.rsplit('/').next().unwrap();
            let directory = root.join("nix/var/log/nix/drvs").join(&name[..2]);
            write_log(&directory.join(&name[2..]), compressed);
            let serve = ServerProcess::start(&root, &[]);
            let ran = run(&mut nix.command("nix", ["log", "--store", &serve.url(), &drv]));
            let text = ran.expect(0).stdout;
            assert!(text.contains("built with care"), "{}: {text}", nix.version);
        }
    }
}

/// A derivation that is never built.
const DERIVATION: &str = "derivation { name = \"x\"; system = \"x\"; builder = \"/bin/x\"; }";

#[test]
fn nix_lists_reads_and_verifies_served_paths() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let serve = serve_signed(&corpus, &[]);
        let url = serve.url();
        let directory = format!("{}/usr/bin", corpus.root);
        let file = format!("{directory}/jq");
        let list = ["store", "ls", "--store", &url, "-R", &corpus.root];
        let list = run(&mut nix.command("nix", list)).expect(0).stdout;
        assert!(list.contains("usr/bin/jq"), "{}: {list}", nix.version);
        let cat = ["store", "cat", "--store", &url, &file];
        let output = nix.command("nix", cat).output().unwrap();
        let real = corpus.store().join(&file[1..]);
        assert!(output.stdout == fs::read(real).unwrap(), "{}", nix.version);
        let verify = ["store", "verify", "--store", &url, "-r", &corpus.root];
        run(&mut nix_trusting(nix, &corpus.key, "nix", &verify)).expect(0);
        let unsigned = ServerProcess::start(corpus.store(), &[]);
        let url = unsigned.url();
        let verify = ["store", "verify", "--store", &url, "-r", &corpus.root];
        let ran = run(&mut nix_trusting(nix, &corpus.key, "nix", &verify));
        assert_ne!(
            ran.code,
            Some(0),
            "{}: verified an unsigned closure",
            nix.version
        );
    }
}

#[test]
fn floe_installs_from_server() {
    for corpus in corpora() {
        let scratch = scratch();
        let side = scratch.join("side").display().to_string();
        for args in [
            &[][..],
            &["--compress", "always"],
            &["--compressed-cache", &side],
        ] {
            let serve = serve_signed(&corpus, args);
            let root = scratch.join(&format!("root-{}", args.len()));
            let mut command = floe(["install", "--trusted-public-keys", &corpus.key, "--from"]);
            command.arg(serve.url()).arg("--root").arg(&root);
            run(command.arg(&corpus.root)).expect(0);
            assert!(tree(&root) == tree(&corpus.store()), "{args:?}");
            assert_eq!(serve.stop(), "");
        }
    }
}

/// Runs curl. Returns its exit code and the downloaded bytes.
fn curl(scratch: &Scratch, args: &[&str]) -> (Option<i32>, Vec<u8>) {
    let file = scratch.join("response");
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--output"])
        .arg(&file);
    let ran = run(command.args(args));
    (ran.code, fs::read(&file).unwrap_or_default())
}

#[test]
fn curl_downloads_resumes_and_decompresses() {
    if find_tool("curl", "curl").is_none() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let serve = serve_signed(&corpus, &["--compress", "always"]);
    let url = format!(
        "{}/{}",
        serve.url(),
        serve.get(&narinfo_of(&corpus.root)).narinfo_field("URL")
    );
    let (code, whole) = curl(&scratch, &[&url]);
    assert_eq!(code, Some(0));
    assert_eq!(curl(&scratch, &["--head", &url]).0, Some(0));
    assert_eq!(
        curl(&scratch, &["--http1.0", &url]),
        (Some(0), whole.clone())
    );
    let half = whole.len() / 2;
    fs::write(scratch.join("response"), &whole[..half]).unwrap();
    assert_eq!(
        curl(&scratch, &["--continue-at", "-", &url]),
        (Some(0), whole.clone())
    );
    let zstd = ["-H", "Accept-Encoding: zstd", &url];
    let (code, body) = curl(&scratch, &zstd);
    assert_eq!(code, Some(0));
    assert!(body.len() < whole.len() && zstd::decode_all(&*body).unwrap() == whole);
    let absent = format!("{}/{}.narinfo", serve.url(), "0".repeat(32));
    assert_eq!(curl(&scratch, &[&absent]).0, Some(22));
}

#[test]
fn unix_socket_serves_the_same_responses() {
    if find_tool("curl", "curl").is_none() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let tcp = ServerProcess::start(corpus.store(), &[]);
    let socket = scratch.join("socket");
    let mut command = serve(&["serve", "--socket"]);
    command.arg(&socket).arg("--store").arg(corpus.store());
    let unix = ServerProcess::spawn(&mut command);
    let socket_name = socket.display().to_string();
    for path in &corpus.paths {
        let narinfo = tcp.get(&narinfo_of(path));
        let nar = format!("/{}", narinfo.narinfo_field("URL"));
        for (target, expected) in [
            (narinfo_of(path), narinfo.body.clone()),
            (nar.clone(), tcp.get(&nar).body),
        ] {
            let url = format!("http://floe{target}");
            let got = curl(&scratch, &["--unix-socket", &socket_name, &url]);
            assert!(got == (Some(0), expected), "{target}");
        }
    }
    assert_eq!(unix.stop(), "");
    assert!(!socket.exists());
}

/// Returns an nginx location that proxies `/cache/` to a server.
fn proxy_to(target: &str) -> String {
    format!(
        "location /cache/ {{ proxy_pass {target}; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_max_temp_file_size 0; }}"
    )
}

#[test]
fn server_works_behind_nginx_with_a_path_prefix() {
    if find_tool("curl", "curl").is_none() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    let key = corpus.dir.join("key.sec");
    for nix in &nixes() {
        // Either the proxy strips the prefix, or the server is configured with it.
        let plain = serve_signed(&corpus, &[]);
        let mut command = serve(&[
            "nix-serve",
            "-l",
            "127.0.0.1:0",
            "--path",
            "/cache",
            "--store",
        ]);
        command.arg(corpus.store()).env("NIX_SECRET_KEY_FILE", &key);
        let prefixed = ServerProcess::spawn(&mut command);
        assert_eq!(prefixed.get("/nix-cache-info").status, 404);
        assert_eq!(prefixed.get("/cachenix-cache-info").status, 404);
        for target in [
            format!("{}/", plain.url()),
            format!("{}/cache/", prefixed.url()),
        ] {
            let scratch = scratch();
            let Some(nginx) = nginx(scratch.path(), &proxy_to(&target)) else {
                return;
            };
            let url = format!("{}/cache", nginx.url());
            let root = scratch.join("root");
            let copy = ["copy", "--from", &url, &corpus.root, "--to"];
            run(nix_trusting(nix, &corpus.key, "nix", &copy).arg(&root)).expect(0);
            assert_closure_valid(nix, &corpus, &root);
            let mut command = floe(["install", "--trusted-public-keys", &corpus.key, "--from"]);
            let installed_by_floe: PathBuf = scratch.join("installed_by_floe");
            run(command
                .arg(&url)
                .arg("--root")
                .arg(&installed_by_floe)
                .arg(&corpus.root))
            .expect(0);
            let page = format!("{url}/serve/{}/", hash_part(&corpus.root));
            assert_eq!(curl(&scratch, &[&page]).0, Some(0));
        }
        assert_eq!(plain.stop(), "");
    }
}

#[test]
fn killed_clients_leak_no_connections() {
    if find_tool("curl", "curl").is_none() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    let serve = serve_signed(&corpus, &[]);
    let path = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    let url = format!(
        "{}/{}",
        serve.url(),
        serve.get(&narinfo_of(path)).narinfo_field("URL")
    );
    for _ in 0..5 {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--limit-rate",
            "100K",
            "--output",
            "/dev/null",
            &url,
        ]);
        let mut client = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        // The client is killed at some point of its work.
        std::thread::sleep(std::time::Duration::from_millis(100));
        client.kill().unwrap();
        client.wait().unwrap();
        assert_eq!(serve.get("/nix-cache-info").status, 200);
    }
    let descriptors = || {
        fs::read_dir(format!("/proc/{}/fd", serve.pid()))
            .unwrap()
            .count()
    };
    let fresh = serve_signed(&corpus, &[]);
    let least = fs::read_dir(format!("/proc/{}/fd", fresh.pid()))
        .unwrap()
        .count();
    // Each worker opens its own view of the store, one or two descriptors each.
    wait_until("connections remain open", || descriptors() <= least + 40);
    assert_eq!(serve.stop(), "");
}
