//! The static binary of `cargo xtask dist` in an empty root directory, run by a user who may write
//! only in the home directory. Runs only with `cargo xtask test --full`, which builds the binary.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_testkit::{
    CommandOutput, Corpus, NOBODY_UID, Scratch, copy_program, corpus, nginx, nixes, run, scratch,
    skip, tree, wait_until,
};

use floe_testkit::create_certificates;
use floe_testkit::find_tool;

use crate::packages::unpack_static_binary;

/// A root directory that contains only the binary and a home directory.
struct EmptyRoot {
    chroot: PathBuf,
    scratch: Scratch,
}

impl EmptyRoot {
    fn new(floe: &Path, chroot: PathBuf) -> EmptyRoot {
        let scratch = scratch();
        copy_program(floe, &scratch.join("floe"));
        fs::create_dir(scratch.join("home")).unwrap();
        chown(scratch.join("home"), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        EmptyRoot { chroot, scratch }
    }

    /// Creates a file in `/etc` of the root directory.
    fn write(&self, name: &str, text: &str) {
        let etc = self.scratch.join("etc");
        fs::create_dir_all(&etc).unwrap();
        fs::write(etc.join(name), text).unwrap();
    }

    /// Runs `floe install` from a URL into the store `/home/STORE`.
    fn install(&self, corpus: &Corpus, from: &str, store: &str) -> CommandOutput {
        self.install_with(&[], corpus, from, store)
    }

    /// Does the same with additional options.
    fn install_with(
        &self,
        more: &[&str],
        corpus: &Corpus,
        from: &str,
        store: &str,
    ) -> CommandOutput {
        let mut command = Command::new(&self.chroot);
        command
            .arg(format!("--userspec={NOBODY_UID}:{NOBODY_UID}"))
            .arg("--groups=")
            .arg(self.scratch.path())
            .args(["/floe", "install", "--json", "--from", from])
            .args(["--trusted-public-keys", &corpus.key])
            .args(["--root", &format!("/home/{store}"), &corpus.root])
            .args(more);
        run(command.env_clear())
    }

    /// Asserts that a store contains the complete corpus.
    #[track_caller]
    fn assert_installed(&self, corpus: &Corpus, store: &str) {
        let root = self.scratch.join("home").join(store);
        let own = format!(" {NOBODY_UID}:{NOBODY_UID} ");
        let installed: Vec<String> = tree(&root)
            .iter()
            .map(|line| line.replacen(&own, " 0:0 ", 1))
            .collect();
        assert!(
            installed == tree(&corpus.store()),
            "{store}: the trees differ"
        );
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
    }
}

/// A dnsmasq that knows one name and logs its queries.
struct NameServer {
    process: Child,
    log: PathBuf,
}

impl NameServer {
    fn start(program: &Path, directory: &Path) -> NameServer {
        let log = directory.join("dnsmasq.log");
        let process = Command::new(program)
            .args(["--no-daemon", "--conf-file=/dev/null", "--no-resolv"])
            .args([
                "--no-hosts",
                "--bind-interfaces",
                "--user=root",
                "--pid-file",
            ])
            .arg(format!("--listen-address={NAME_SERVER}"))
            .arg("--address=/depot.floe.test/127.0.0.1")
            .arg("--log-queries")
            .arg(format!("--log-facility={}", log.display()))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // When dnsmasq holds the port, binding fails. It writes its first log line after that.
        wait_until("dnsmasq does not listen", || {
            UdpSocket::bind((NAME_SERVER, 53)).is_err() && log.exists()
        });
        NameServer { process, log }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}

#[test]
fn static_binary_installs_by_host_name_in_empty_root() {
    let unpacked = scratch();
    let platform = format!("{}-linux", std::env::consts::ARCH);
    let Some(floe) = unpack_static_binary(&platform, unpacked.path()) else {
        return;
    };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("chroot", "only root may change the root directory");
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let Some(chroot) = find_tool("chroot", "coreutils") else {
        return;
    };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let files = scratch();
    let certificates = create_certificates(&openssl, files.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl; {}", certificates.server);
    let Some(server) = nginx(&corpus.dir, &extra) else {
        return;
    };
    let Some(dnsmasq) = find_tool("dnsmasq", "dnsmasq-base") else {
        return;
    };
    let loader = run(Command::new("ldd").arg(&floe));
    assert!(
        loader.stdout.contains("statically linked"),
        "{}",
        loader.stdout
    );
    let from = |host: &str| {
        let port = server.url().rsplit(':').next().unwrap().to_owned();
        format!("http://{host}:{port}/cache-zstd")
    };

    let empty = EmptyRoot::new(&floe, chroot);
    let fetched = empty.install(&corpus, &from("localhost"), "by-localhost");
    assert_eq!(fetched.expect(0).json()["copied"], corpus.paths.len());
    empty.assert_installed(&corpus, "by-localhost");
    // There is no name server. The error must contain the unknown host name.
    let unknown = empty.install(&corpus, &from("cache.floe.test"), "unknown");
    unknown.expect(4).stderr_contains("cache.floe.test");

    // The built-in certificates of Mozilla are used, and do not trust the private authority.
    let secure = format!("https://127.0.0.1:{}/cache-zstd", server.port(1));
    let stranger = empty.install(&corpus, &secure, "stranger");
    stranger.expect(4).stderr_contains("certificate");
    let authority = empty.scratch.join("ca.pem");
    fs::copy(&certificates.authority, &authority).unwrap();
    let trusting = ["--option", "ssl-cert-file", "/ca.pem"];
    let by_tls = empty.install_with(&trusting, &corpus, &secure, "by-tls");
    by_tls.expect(0);
    empty.assert_installed(&corpus, "by-tls");

    empty.write("hosts", "127.0.0.1 cache.floe.test\n");
    empty
        .install(&corpus, &from("cache.floe.test"), "by-file")
        .expect(0);
    empty.assert_installed(&corpus, "by-file");

    let name_server = NameServer::start(&dnsmasq, empty.scratch.path());
    empty.write(
        "resolv.conf",
        &format!("nameserver {NAME_SERVER}\nsearch floe.test\n"),
    );
    for (host, store) in [("depot.floe.test", "by-server"), ("depot", "by-search")] {
        let before = fs::read_to_string(&name_server.log).unwrap().len();
        empty.install(&corpus, &from(host), store).expect(0);
        empty.assert_installed(&corpus, store);
        let log = fs::read_to_string(&name_server.log).unwrap();
        assert!(
            log[before..].contains("query[A] depot.floe.test"),
            "{host}: the name server was not queried: {log}"
        );
    }
}

/// A loopback address that no other program uses. resolv.conf cannot name a port, so the server
/// needs port 53.
const NAME_SERVER: &str = "127.9.8.7";
