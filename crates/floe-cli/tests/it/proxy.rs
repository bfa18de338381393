//! Caches behind a proxy (tinyproxy) that environment variables name.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use floe_testkit::{
    CommandOutput, Corpus, Scratch, corpus, free_ports, nginx, run, scratch, tree, with_free_ports,
};

use crate::support::floe;
use floe_testkit::create_certificates;
use floe_testkit::find_tool;

/// A tinyproxy process on its own port. It is killed on drop.
struct Proxy {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Proxy {
    /// Starts tinyproxy with additional configuration lines. If it is not installed, records a
    /// skip and returns `None`.
    fn start(scratch: &Scratch, extra: &str) -> Option<Proxy> {
        let program = find_tool("tinyproxy", "tinyproxy-bin")?;
        let name = |port, end| scratch.join(&format!("tinyproxy-{port}.{end}"));
        let start = |[port]: [u16; 1]| {
            let text = format!(
                "Port {port}\nListen 127.0.0.1\nLogFile \"{}\"\nPidFile \"{}\"\n\
                 LogLevel Connect\nMaxClients 100\nTimeout 60\n{extra}\n",
                name(port, "log").display(),
                name(port, "pid").display()
            );
            fs::write(name(port, "conf"), text).unwrap();
            Command::new(&program)
                .args(["-d", "-c"])
                .arg(name(port, "conf"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        // tinyproxy writes its pid file once it listens.
        let (process, [port]) = with_free_ports(start, |[port]| name(port, "pid").exists());
        let log = name(port, "log");
        Some(Proxy { process, port, log })
    }

    /// Returns how many requests with this method it has received.
    fn requests(&self, method: &str) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let is_one = |line: &&str| line.contains("Request") && line.contains(method);
        log.lines().filter(is_one).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}

/// Installs a corpus with exactly these proxy variables.
fn install(
    corpus: &Corpus,
    from: &str,
    root: &Scratch,
    variables: &[(&str, &str)],
) -> CommandOutput {
    let mut command = floe(["install", "--from", from, "--root"]);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.env_remove("NIX_SSL_CERT_FILE");
    command.envs(variables.iter().copied());
    command.arg(root.path());
    run(command.args(["--trusted-public-keys", &corpus.key, &corpus.root]))
}

#[test]
fn proxy_variables_and_no_proxy_are_honoured() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let files = scratch();
    let Some(proxy) = Proxy::start(&files, "") else {
        return;
    };
    let certificates = create_certificates(&openssl, files.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl; {}", certificates.server);
    let Some(server) = nginx(&corpus.dir, &extra) else {
        return;
    };
    let plain = format!("{}/cache-zstd", server.url());
    let secure = format!("https://127.0.0.1:{}/cache-zstd", server.port(1));
    let proxy_url = format!("http://127.0.0.1:{}", proxy.port);
    let requests = 1 + 2 * corpus.paths.len();
    let assert_installed = |ran: CommandOutput, root: &Scratch| {
        ran.expect(0);
        assert!(
            tree(root.path()) == tree(&corpus.store()),
            "the trees differ"
        );
    };

    let root = scratch();
    assert_installed(
        install(&corpus, &plain, &root, &[("http_proxy", &proxy_url)]),
        &root,
    );
    assert_eq!(proxy.requests("GET"), requests);
    assert_eq!(server.log().lines().count(), requests);

    for exceptions in ["127.0.0.1", "*"] {
        let root = scratch();
        let bypass = [("http_proxy", proxy_url.as_str()), ("no_proxy", exceptions)];
        assert_installed(install(&corpus, &plain, &root, &bypass), &root);
        assert_eq!(
            proxy.requests("GET"),
            requests,
            "the proxy was used despite no_proxy"
        );
    }

    let root = scratch();
    let variables = [
        ("HTTPS_PROXY", proxy_url.as_str()),
        ("SSL_CERT_FILE", &certificates.authority),
    ];
    assert_installed(install(&corpus, &secure, &root, &variables), &root);
    assert!(
        proxy.requests("CONNECT") > 0,
        "no request went through the proxy"
    );
    assert_eq!(
        proxy.requests("GET"),
        requests,
        "the proxy saw a plain-text request"
    );
}

#[test]
fn proxy_credentials_are_required_and_sent_to_proxy_only() {
    let Some(corpus) = corpus("jq") else { return };
    let files = scratch();
    let Some(proxy) = Proxy::start(&files, "BasicAuth floe-user hunter2") else {
        return;
    };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let from = format!("{}/cache-zstd", server.url());
    let with = |login: &str| format!("http://{login}127.0.0.1:{}", proxy.port);

    let root = scratch();
    let refused = install(&corpus, &from, &root, &[("http_proxy", &with(""))]);
    refused
        .expect(4)
        .stderr_contains("proxy")
        .stderr_contains("USER:PASSWORD");
    let wrong = install(
        &corpus,
        &from,
        &root,
        &[("http_proxy", &with("floe-user:wrong4@"))],
    );
    assert!(
        !wrong.expect(4).stderr.contains("wrong4"),
        "the message contains the password"
    );
    assert_eq!(server.log(), "", "a request reached the server");

    let right = with("floe-user:hunter2@");
    install(&corpus, &from, &root, &[("http_proxy", &right)]).expect(0);
    assert!(
        tree(root.path()) == tree(&corpus.store()),
        "the trees differ"
    );
}

#[test]
fn unreachable_proxy_is_named_in_the_error() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let from = format!("{}/cache-zstd", server.url());
    let [port] = free_ports();
    let unreachable = format!("http://127.0.0.1:{port}");
    let root = scratch();
    let ran = install(
        &corpus,
        &from,
        &root,
        &[("http_proxy", &unreachable), ("NIX_CONFIG", ONE_ATTEMPT)],
    );
    ran.expect(4)
        .stderr_contains("Connection refused")
        .stderr_contains(&unreachable);
    assert_eq!(server.log(), "", "a request bypassed the proxy");
}

#[test]
fn failed_direct_connection_does_not_mention_the_proxy() {
    let Some(corpus) = corpus("jq") else { return };
    let [port] = free_ports();
    let unreachable = format!("http://127.0.0.1:{port}");
    let proxy = "http://proxy.invalid:3128";
    let root = scratch();
    let install = |exceptions: &str| {
        let variables = [
            ("http_proxy", proxy),
            ("no_proxy", exceptions),
            ("NIX_CONFIG", ONE_ATTEMPT),
        ];
        install(&corpus, &unreachable, &root, &variables).expect(4)
    };
    install("other.example").stderr_contains(proxy);
    for exceptions in [
        "127.0.0.1",
        "other.example, 127.0.0.0/8",
        "other.example 127.0.0.0/8",
    ] {
        let ran = install(exceptions).stderr_contains("Connection refused");
        assert!(!ran.stderr.contains("proxy"), "{}", ran.stderr);
    }
}

/// Makes failing requests fail at once.
const ONE_ATTEMPT: &str = "download-attempts = 1";

#[test]
fn config_shows_proxy_and_its_source() {
    let config = |args: &[&str]| {
        let mut command = floe([&["config"], args].concat());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.env("ALL_PROXY", "http://me:hunter2@proxy.example:3128");
        run(command.env("https_proxy", "socks5h://other.example")).expect(0)
    };
    let shown = config(&[]).stdout;
    assert!(!shown.contains("hunter2"), "{shown}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    let http = line("# http-proxy: ");
    assert!(
        http.contains("http://proxy.example:3128") && http.ends_with("ALL_PROXY"),
        "{http}"
    );
    let json = config(&["--json"]).json();
    assert_eq!(json["https-proxy"]["value"], "socks5h://other.example");
    assert_eq!(json["https-proxy"]["source"]["variable"], "https_proxy");
    assert_eq!(json.get("no-proxy"), None);
}

/// The other source would hide the mistake from the user.
#[test]
fn unusable_proxy_is_an_error_even_beside_another_source() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let mut command = floe(["install", "--from", &corpus.file_url("zstd")]);
    command.args(["--from", "http://127.0.0.1:9", "--root"]);
    command.arg(&root).arg(&corpus.root);
    run(command.env("http_proxy", "ftp://proxy.example.org"))
        .expect(2)
        .stderr_contains("cannot use the proxy");
    assert!(!root.exists());
}
