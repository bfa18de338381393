//! `floe doctor` finds what does not work, and changes nothing.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{
    CommandOutput, Corpus, corpus, create_certificates, find_tool, nixes, run, scratch, tree,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::push::{key, source_root};
use crate::resume::first_file;
use crate::server_process::ServerProcess;
use crate::support::floe;
use crate::tmpfs_mount::mount;

fn doctor(args: &[&str]) -> Command {
    let mut command = floe(["doctor", "--json"]);
    command.args(args);
    command
}

/// Returns the findings of a severity in a part, as one text.
fn findings(output: &CommandOutput, part: &str, severity: &str) -> String {
    let json = output.json();
    let found = json["findings"].as_array().unwrap().iter();
    let found = found.filter(|it| it["part"] == part && it["severity"] == severity);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = found.map(|it| format!("{}; {}\n", text(&it["message"]), text(&it["remedy"])));
    found.collect()
}

fn install(corpus: &Corpus, root: &Path) {
    let from = corpus.file_url("zstd");
    let args = ["install", "--trusted-public-keys", &corpus.key, "--from"];
    run(floe(args)
        .arg(from)
        .arg("--root")
        .arg(root)
        .arg(&corpus.root))
    .expect(0);
}

#[test]
fn every_part_is_checked() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let before = tree(&root);
    let cache = corpus.file_url("zstd");
    let args = ["--root", root.to_str().unwrap(), "--from", &cache];
    let keys = ["--trusted-public-keys", &corpus.key];
    let found = run(doctor(&args).args(keys)).expect(0);
    assert_eq!(found.json()["problems"], 0, "{}", found.stdout);
    let fine = |part: &str| findings(&found, part, "ok");
    let paths = format!("has {} paths", corpus.paths.len());
    assert!(fine("store").contains(&paths), "{}", fine("store"));
    assert!(fine("caches").contains(&cache), "{}", fine("caches"));
    assert!(fine("caches").contains("narinfos per second"));
    assert!(fine("fileSystem").contains("keeps all 14 properties"));
    assert!(!fine("configuration").is_empty());
    assert_eq!(tree(&root), before);
    let text = run(floe(["doctor"]).args(args).args(keys)).expect(0).stdout;
    for title in ["configuration\n", "caches\n", "store\n", "file system\n"] {
        assert!(text.contains(title), "{text}");
    }
}

/// A server with TLS, whose certificate ends soon and whose key is not trusted.
#[test]
fn server_is_described() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    let certificates = create_certificates(&openssl, scratch.path());
    let (secret, public) = key(&scratch);
    let [certificate, private] = &certificates.server_files;
    let tls = ["--tls-cert", certificate, "--tls-key", private];
    let keys = ["--secret-key-file", &secret];
    let store = source_root(&corpus);
    let server = ServerProcess::start(
        &store,
        &[tls, [keys[0], keys[1], "--threads", "1"]].concat(),
    );
    let url = server.url();
    let trusting = |trusted: &str| {
        let args = ["--root", &store, "--from", &url, "--trusted-public-keys"];
        let mut command = doctor(&args);
        run(command
            .arg(trusted)
            .args(["--option", "ssl-cert-file", &certificates.authority]))
    };
    let found = trusting(&public).expect(0);
    let fine = findings(&found, "caches", "ok");
    for part in ["HTTP/", "a reply in ", "priority ", "certificate until "] {
        assert!(fine.contains(part), "{fine}");
    }
    let warned = findings(&found, "caches", "warning");
    assert!(warned.contains("ends in 1 days"), "{warned}");
    let refused = trusting(&corpus.key).expect(1);
    let problem = findings(&refused, "caches", "problem");
    assert!(problem.contains("signs as team-1"), "{problem}");
    // Without the authority, the certificate is refused.
    let args = ["--root", &store, "--from", &url];
    let refused = run(&mut doctor(&args)).expect(1);
    let problem = findings(&refused, "caches", "problem");
    assert!(problem.contains("certificate"), "{problem}");
}

#[test]
fn broken_configuration_is_explained() {
    let scratch = scratch();
    let (secret, _) = key(&scratch);
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    let [conf, user] = ["conf", "user"].map(|name| scratch.join(name));
    fs::create_dir_all(&conf).unwrap();
    let nix_conf = conf.join("nix.conf");
    fs::write(
        &nix_conf,
        format!("connect-timeout = 7\nsubsituters = x\nsecret-key-files = {secret} /absent.key\n"),
    )
    .unwrap();
    fs::write(&user, "connect-timeout = 9\nhttp2 = false\n").unwrap();
    let netrc = conf.join("netrc");
    fs::write(&netrc, "machine a login b password c\n").unwrap();
    fs::set_permissions(&netrc, Permissions::from_mode(0o644)).unwrap();
    let root = scratch.join("root").display().to_string();
    let run_doctor = || {
        let mut command = doctor(&["--offline", "--root", &root]);
        command.env("NIX_CONF_DIR", &conf);
        run(command.env("NIX_USER_CONF_FILES", &user))
    };
    let found = run_doctor().expect(1);
    let warned = findings(&found, "configuration", "warning");
    for part in [
        "has the setting subsituters; use substituters",
        &format!("connect-timeout of {}:1 has no effect", nix_conf.display()),
        "other users can read (mode 0644)",
        "other users can read the passwords in",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    let problem = findings(&found, "configuration", "problem");
    assert!(problem.contains("/absent.key"), "{problem}");
    assert!(!Path::new(&root).exists());
    fs::write(&nix_conf, "connect-timeout = never\n").unwrap();
    let problem = findings(&run_doctor().expect(1), "configuration", "problem");
    assert!(problem.contains("connect-timeout"), "{problem}");
}

#[test]
fn damaged_store_is_found_and_left_alone() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    // A repair without a source remembers the damage.
    let place = first_file(&root.join(&corpus.root[1..])).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o644)).unwrap();
    fs::write(&place, "x").unwrap();
    let empty = scratch.join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let from = format!("file://{}", empty.display());
    let mut repair = floe(["verify", "--repair", "--from", &from, "--root"]);
    run(repair.arg(&root).arg(&corpus.root)).expect(3);
    let file = root.join("nix/var/nix/db/db.sqlite");
    let database = rusqlite::Connection::open(&file).unwrap();
    let damage = "update ValidPaths set hash = 'sha256:zz' where path = ?1";
    assert_eq!(database.execute(damage, [&corpus.root]).unwrap(), 1);
    database.pragma_update(None, "foreign_keys", false).unwrap();
    let lost = "delete from ValidPaths where path like '%-libonig%'";
    assert_eq!(database.execute(lost, []).unwrap(), 1);
    drop(database);
    let args = ["--offline", "--root", root.to_str().unwrap()];
    let before = tree(&root);
    let found = run(&mut doctor(&args)).expect(1);
    assert_eq!(tree(&root), before);
    let problem = findings(&found, "store", "problem");
    assert!(
        problem.contains("rows refer to paths that have no row; floe rebuild-db"),
        "{problem}"
    );
    assert!(problem.contains("try floe verify --repair"), "{problem}");
    assert!(
        problem.contains("the contents of 1 path are damaged"),
        "{problem}"
    );
    // The header of the database.
    let mut bytes = fs::read(&file).unwrap();
    bytes[..16].fill(b'x');
    fs::write(&file, bytes).unwrap();
    let found = run(&mut doctor(&args)).expect(1);
    let problem = findings(&found, "store", "problem");
    assert!(problem.contains("floe rebuild-db"), "{problem}");
}

/// A cache that is away, one for another store directory, and one that is none.
#[test]
fn unusable_caches_are_problems() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let other = corpus.cache_copy("zstd", &scratch.join("other"));
    fs::write(other.join("nix-cache-info"), "StoreDir: /other/store\n").unwrap();
    let other = format!("file://{}", other.display());
    let root = scratch.join("root").display().to_string();
    let args = [
        "--root",
        &root,
        "--from",
        "http://127.0.0.1:1",
        "--from",
        &other,
    ];
    let found = run(doctor(&args).args(["--from", "file:///absent/cache"])).expect(1);
    let problem = findings(&found, "caches", "problem");
    for part in [
        "http://127.0.0.1:1",
        "paths for /other/store",
        "/absent/cache",
    ] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
    assert_eq!(found.json()["problems"], 3, "{}", found.stdout);
}

#[test]
fn daemon_and_file_system_are_described() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        let daemon = nix.daemon(&root, "");
        let found = run(&mut doctor(&["--offline", "--store", &daemon.uri()])).expect(0);
        let fine = findings(&found, "store", "ok");
        assert!(fine.contains("a daemon, "), "{fine}");
    }
    let Some(mount) = mount("size=64m,noexec") else {
        return;
    };
    let root = mount.mount_point().join("root").display().to_string();
    let mut mkdir = Command::new("mkdir");
    mount
        .run(mkdir.args(["-p", &format!("{root}/nix/store")]))
        .expect(0);
    let found = mount.run(&doctor(&["--offline", "--root", &root]));
    let problem = findings(&found.expect(1), "fileSystem", "problem");
    assert!(problem.contains("noexec"), "{problem}");
}

/// A server that accepts connections and never replies.
#[test]
fn silent_server_ends_the_check_soon() {
    let scratch = scratch();
    let root = scratch.join("root").display().to_string();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let mut command = doctor(&["--root", &root, "--from", &url, "--option"]);
    command.args(["stalled-download-timeout", "1"]);
    let found = run(&mut command).expect(1);
    let problem = findings(&found, "caches", "problem");
    assert!(problem.contains(&url), "{problem}");
    // The other parts are checked all the same.
    assert!(!findings(&found, "store", "ok").is_empty());

    // An interrupt prints what is known by then.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let mut command = doctor(&["--root", &root, "--from", &url]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let connection = server.accept().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let mut stdout = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    assert!(stdout.contains("does not exist yet"), "{stdout}");
    assert!(stderr.contains("a diagnosis changes nothing"), "{stderr}");
    drop(connection);
}

/// A process that keeps the whole database, and a store directory that is gone.
#[test]
fn locked_and_unmounted_stores_are_problems() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let args = ["--offline", "--root", root.to_str().unwrap()];
    let file = root.join("nix/var/nix/db/db.sqlite");
    let database = rusqlite::Connection::open(file).unwrap();
    database
        .pragma_update(None, "journal_mode", "delete")
        .unwrap();
    database.execute_batch("begin exclusive").unwrap();
    let found = run(&mut doctor(&args)).expect(1);
    let problem = findings(&found, "store", "problem");
    assert!(problem.contains("locked"), "{problem}");
    database.execute_batch("rollback").unwrap();
    drop(database);
    run(&mut doctor(&args)).expect(0);
    fs::rename(root.join("nix/store"), scratch.join("away")).unwrap();
    let found = run(&mut doctor(&args)).expect(1);
    let problem = findings(&found, "store", "problem");
    assert!(
        problem.contains("is no directory, but its database exists"),
        "{problem}"
    );
    assert!(!root.join("nix/store").exists());
}
