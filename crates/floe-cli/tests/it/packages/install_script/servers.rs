//! Servers of a release: `install.sh` accepts nothing from a server that it does not know.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{CommandOutput, Nginx, find_tool, nginx, run};

use super::{Served, link_tools, served};

/// A release behind nginx with a certificate that no authority has issued.
struct WithTls {
    served: Served,
    nginx: Nginx,
    certificate: String,
}

fn with_tls() -> Option<WithTls> {
    let served = served()?;
    let openssl = find_tool("openssl", "openssl")?;
    let file = |name: &str| served.scratch.join(name).display().to_string();
    let (key, certificate) = (file("tls.key"), file("tls.pem"));
    let mut request = Command::new(openssl);
    request.args(["req", "-x509", "-nodes", "-days", "2"]);
    request.args(["-newkey", "rsa:2048"]);
    request.args(["-subj", "/CN=floe test server", "-addext"]);
    request.args(["subjectAltName=IP:127.0.0.1", "-keyout", &key, "-out"]);
    run(request.arg(&certificate)).expect(0);
    // The wget of busybox can verify signatures with SHA-1 only.
    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl; listen 127.0.0.1:PORT2; \
         ssl_certificate {certificate}; ssl_certificate_key {key}; \
         ssl_ciphers DEFAULT:@SECLEVEL=0; \
         rewrite ^/plain/(.*)$ http://127.0.0.1:PORT2/$1 redirect;"
    );
    Some(WithTls {
        nginx: nginx(&served.release(), &extra)?,
        certificate,
        served,
    })
}

impl WithTls {
    /// Installs with a PATH of these programs.
    fn install(&self, directory: &str, bin: &Path) -> CommandOutput {
        let url = format!("https://127.0.0.1:{}{directory}", self.nginx.port(1));
        let mut script = Command::new(find_tool("sh", "dash").unwrap());
        script.arg(self.served.scratch.join("install.sh"));
        script.args(["--url", &url, "--signer", &self.served.signer, "--prefix"]);
        script.arg(self.prefix()).env("PATH", bin);
        script.env("CURL_CA_BUNDLE", &self.certificate);
        run(&mut script)
    }

    fn prefix(&self) -> PathBuf {
        self.served.scratch.join("prefix")
    }

    /// Makes a directory with the programs of a small system and these.
    fn programs(&self, name: &str, more: &[(&str, &Path)]) -> PathBuf {
        let bin = self.served.scratch.join(name);
        fs::create_dir(&bin).unwrap();
        link_tools(&bin).unwrap();
        for (name, place) in more {
            symlink(place, bin.join(name)).unwrap();
        }
        bin
    }

    #[track_caller]
    fn assert_refused(&self, ran: CommandOutput, messages: &[&str]) {
        let ran = ran.expect(1);
        for message in messages {
            assert!(ran.stderr.contains(message), "{message}: {}", ran.stderr);
        }
        assert!(!self.prefix().exists());
    }
}

/// Writes a program like the ssh-keygen of OpenSSH 8.0.
fn old_ssh_keygen(directory: &Path) -> PathBuf {
    let program = directory.join("old-ssh-keygen");
    fs::write(
        &program,
        "#!/bin/sh\necho 'unknown option -- Y' >&2\nexit 1\n",
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn wget_without_certificates_needs_a_signature() {
    let Some(with_tls) = with_tls() else { return };
    let (Some(busybox), Some(ssh_keygen)) = (
        find_tool("busybox", "busybox"),
        find_tool("ssh-keygen", "openssh-client"),
    ) else {
        return;
    };
    let old = old_ssh_keygen(with_tls.served.scratch.path());
    let unchecked = "wget did not check the certificate of the server";
    for (name, more, cause) in [
        ("none", &[][..], "there is no ssh-keygen"),
        ("old", &[("ssh-keygen", &*old)], "older than OpenSSH 8.1"),
    ] {
        let more = [&[("wget", &*busybox)], more].concat();
        let bin = with_tls.programs(name, &more);
        let ran = with_tls.install("", &bin);
        with_tls.assert_refused(ran, &[unchecked, cause, "try installing curl"]);
    }
    let programs = [("wget", &*busybox), ("ssh-keygen", &*ssh_keygen)];
    let bin = with_tls.programs("signed", &programs);
    with_tls.install("", &bin).expect(0);
    assert!(with_tls.prefix().join("bin/floe").exists());
}

#[test]
fn redirect_to_plain_http_is_refused() {
    let Some(with_tls) = with_tls() else { return };
    let (Some(curl), Some(wget)) = (find_tool("curl", "curl"), find_tool("wget", "wget")) else {
        return;
    };
    let bin = with_tls.programs("curl", &[("curl", &*curl)]);
    let ran = with_tls.install("/plain", &bin);
    with_tls.assert_refused(ran, &["cannot fetch", "/plain/SHA256SUMS"]);
    assert!(with_tls.nginx.log().contains("/plain/SHA256SUMS"));
    // wget follows the redirect, and there is no ssh-keygen.
    let script = with_tls.served.scratch.join("wget");
    let text = format!(
        "#!/bin/sh\nexec {} --ca-certificate={} \"$@\"\n",
        wget.display(),
        with_tls.certificate
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let with_wget = with_tls.programs("with-wget", &[("wget", &*script)]);
    let ran = with_tls.install("/plain", &with_wget);
    with_tls.assert_refused(ran, &["there is no ssh-keygen; try installing curl"]);
    // Both accept the server itself.
    for bin in [&bin, &with_wget] {
        let installed = with_tls.install("", bin).expect(0);
        let notice = "The signature was not checked: there is no ssh-keygen.";
        assert!(installed.stderr.contains(notice), "{}", installed.stderr);
        fs::remove_dir_all(with_tls.prefix()).unwrap();
    }
}

#[test]
fn old_ssh_keygen_counts_as_none() {
    let Some(served) = served() else { return };
    let bin = served.scratch.join("bin");
    fs::create_dir(&bin).unwrap();
    let old = old_ssh_keygen(served.scratch.path());
    symlink(old, bin.join("ssh-keygen")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut script = served.script(&["--prefix"]);
    script.arg(served.scratch.join("prefix")).env("PATH", path);
    run(&mut script)
        .expect(0)
        .stderr_contains("not checked: ssh-keygen is older than OpenSSH 8.1");
}

#[test]
fn directory_replaces_the_server() {
    let Some(served) = served() else { return };
    let prefix = served.scratch.join("prefix");
    let mut script = Command::new("sh");
    script.arg(served.scratch.join("install.sh")).arg("--url");
    script.arg(served.release()).arg("--prefix").arg(&prefix);
    let installed = run(&mut script).expect(0);
    let warned = installed.stderr.contains("this script knows no key");
    assert!(warned, "{}", installed.stderr);
    run(Command::new(prefix.join("bin/floe")).arg("--version")).expect(0);
    assert_eq!(served.server.requests().len(), 0);
}
