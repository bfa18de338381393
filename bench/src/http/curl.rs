//! Requests over TLS by curl, whose TLS library is independent of floe's.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Head, RESPONSE_TIMEOUT, read_body, read_head};

/// Fetches a URL from a server with this certificate, and writes the body to `sink`. `extra` holds
/// additional header lines, each with its `\r\n`.
pub(super) fn get(
    url: &str,
    certificate: &Path,
    extra: &str,
    sink: &mut dyn Write,
) -> Result<Head> {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--http1.1"])
        // The response as it was sent, with its head.
        .args(["--include", "--raw"])
        .args(["--max-time", &RESPONSE_TIMEOUT.as_secs().to_string()])
        // Proxies of the environment are for other machines.
        .args(["--noproxy", "*"])
        .arg("--cacert")
        .arg(certificate);
    for line in extra.lines() {
        command.args(["--header", line]);
    }
    let output = command
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .context("cannot start curl")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", stderr.trim());
    let mut response = output.stdout.as_slice();
    let head = read_head(&mut response)?;
    read_body(&mut response, &head, sink)?;
    Ok(head)
}
