//! The certificate of the servers with TLS, and how OpenSSL, the library of wrk, connects to them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::http::Origin;

/// A certificate for one address that signs itself, so it is also the one that clients trust.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) file: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Creates a certificate and its key, on the curve P-256, in a directory.
    pub(crate) fn create(directory: &Path, address: Ipv4Addr) -> Result<Certificate> {
        let (file, key) = (directory.join("tls.pem"), directory.join("tls.key"));
        let mut command = Command::new("openssl");
        command
            .args(["req", "-x509", "-nodes", "-days", "30"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", "/CN=floe bench"])
            .args(["-addext", &format!("subjectAltName=IP:{address}")])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&file);
        let (succeeded, printed) = run(&mut command)?;
        ensure!(succeeded, "openssl req: {printed}");
        Ok(Certificate { file, key })
    }
}

/// Returns the TLS version and the cipher suite that OpenSSL negotiates with a server.
pub(crate) fn negotiated(origin: &Origin) -> Result<String> {
    let (succeeded, printed) = run(client(origin)?.arg("-brief"))?;
    ensure!(succeeded, "openssl s_client: {printed}");
    let value = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name));
    let version = value("Protocol version: ");
    let parts = version.zip(value("Ciphersuite: "));
    let (version, suite) = parts.with_context(|| format!("openssl printed:\n{printed}"))?;
    Ok(format!("{version}, {suite}"))
}

/// Writes the settings of OpenSSL with which each connection makes a full handshake.
///
/// wrk keeps the session of a connection and resumes it in the next one. OpenSSL has no setting
/// against that in TLS 1.3. In TLS 1.2 a client without tickets can only resume a session that the
/// server has stored, and neither floe nor nginx stores sessions.
pub(crate) fn full_handshakes(directory: &Path) -> Result<PathBuf> {
    let file = directory.join("full-handshakes.cnf");
    fs::write(&file, FULL_HANDSHAKES)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

const FULL_HANDSHAKES: &str = "\
openssl_conf = modules
[modules]
ssl_conf = ssl
[ssl]
system_default = full_handshakes
[full_handshakes]
MaxProtocol = TLSv1.2
Options = -SessionTicket
";

/// Checks that each new connection makes a full handshake with these settings of OpenSSL. Returns
/// the TLS version and the cipher suite.
pub(crate) fn check_full_handshakes(origin: &Origin, settings: &Path) -> Result<String> {
    let mut command = client(origin)?;
    command.env(OPENSSL_CONF, settings).arg("-reconnect");
    let (succeeded, printed) = run(&mut command)?;
    ensure!(succeeded, "openssl s_client: {printed}");
    full_handshake(&printed)
}

/// The variable with the name of OpenSSL's settings.
pub(crate) const OPENSSL_CONF: &str = "OPENSSL_CONF";

/// The first connection of `s_client -reconnect`, and five more with its session.
const HANDSHAKES: usize = 6;

/// Reads the lines `New, TLSv1.2, Cipher is …` and `Reused, TLSv1.2, Cipher is …`, one for each
/// connection.
fn full_handshake(printed: &str) -> Result<String> {
    let new: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("New, "))
        .collect();
    let count = new.len();
    ensure!(
        count == HANDSHAKES,
        "{count} of {HANDSHAKES} connections made a full handshake"
    );
    Ok(new[0].replace("Cipher is ", ""))
}

/// A connection of OpenSSL that ends after the handshake.
fn client(origin: &Origin) -> Result<Command> {
    let certificate = origin.certificate.as_ref();
    let certificate = certificate.context("the server has no certificate")?;
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-verify_return_error", "-connect"])
        .arg(&origin.authority)
        .arg("-CAfile")
        .arg(certificate);
    Ok(command)
}

/// Runs openssl. Returns whether it succeeded, and all that it printed.
fn run(command: &mut Command) -> Result<(bool, String)> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.context("cannot start openssl; try apt-get install openssl")?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Ok((output.status.success(), printed))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Child;

    use floe_testkit::find_tool;
    use tempfile::TempDir;

    use super::*;
    use crate::http::Connection;

    /// `openssl s_server`, which sends the files of a directory.
    struct Server {
        child: Child,
        directory: TempDir,
        origin: Origin,
    }

    impl Server {
        /// `None` if openssl or curl is missing.
        fn start(options: &[&str]) -> Option<Server> {
            let openssl = find_tool("openssl", "openssl")?;
            find_tool("curl", "curl")?;
            let directory = TempDir::new().unwrap();
            fs::write(directory.path().join("narinfo"), "hello\n").unwrap();
            let certificate = Certificate::create(directory.path(), Ipv4Addr::LOCALHOST).unwrap();
            let mut child = Command::new(openssl)
                .args(["s_server", "-accept", "127.0.0.1:0", "-WWW"])
                .arg("-cert")
                .arg(&certificate.file)
                .arg("-key")
                .arg(&certificate.key)
                .args(options)
                .current_dir(&directory)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let port = lines.find_map(|line| {
                let line = line.unwrap();
                line.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok()
            });
            // Read the rest, because a full pipe would stop the server.
            std::thread::spawn(move || lines.count());
            let mut origin = Origin::local(port.unwrap());
            origin.certificate = Some(certificate.file);
            Some(Server {
                child,
                directory,
                origin,
            })
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn response_over_tls_needs_the_right_certificate() {
        let Some(server) = Server::start(&[]) else {
            return;
        };
        let fetch = |origin: &Origin| Connection::new(origin).fetch("/narinfo", "");
        let (head, body) = fetch(&server.origin).unwrap();
        assert_eq!((head.status, body.as_slice()), (200, &b"hello\n"[..]));
        let other = server.directory.path().join("other");
        fs::create_dir(&other).unwrap();
        let mut origin = server.origin.clone();
        origin.certificate = Some(
            Certificate::create(&other, Ipv4Addr::LOCALHOST)
                .unwrap()
                .file,
        );
        let problem = format!("{:#}", fetch(&origin).unwrap_err());
        assert!(problem.contains("certificate"), "{problem}");
        assert!(negotiated(&origin).is_err());
    }

    #[test]
    fn negotiated_version_and_cipher_are_found() {
        for (options, expected) in [
            (&["-tls1_2"][..], "TLSv1.2, ECDHE-ECDSA-AES256-GCM-SHA384"),
            (&["-tls1_3"], "TLSv1.3, TLS_AES_256_GCM_SHA384"),
        ] {
            let Some(server) = Server::start(options) else {
                return;
            };
            assert_eq!(negotiated(&server.origin).unwrap(), expected);
        }
    }

    #[test]
    fn server_that_stores_sessions_fails_the_handshake_check() {
        for (options, handshakes) in [(&["-no_cache"][..], 6), (&[], 1)] {
            let Some(server) = Server::start(options) else {
                return;
            };
            let settings = full_handshakes(server.directory.path()).unwrap();
            let checked = check_full_handshakes(&server.origin, &settings);
            if handshakes == HANDSHAKES {
                let expected = "TLSv1.2, ECDHE-ECDSA-AES256-GCM-SHA384";
                assert_eq!(checked.unwrap(), expected);
            } else {
                let problem = checked.unwrap_err().to_string();
                assert!(problem.starts_with("1 of 6"), "{problem}");
            }
        }
    }
}
