//! Checks of a server's responses, made before its speed counts. The correct narinfos, signatures
//! and NARs are those that the real Nix wrote into its cache.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::workload::{NarInfoText, Workload, hash_part};
use crate::http::Connection;
use crate::server::Endpoint;

/// A hash part that no store contains: its 160 bits are all zero.
const ABSENT: &str = "00000000000000000000000000000000";

/// The header of a client that accepts zstd.
pub(super) const ACCEPT_ZSTD: &str = "Accept-Encoding: zstd\r\n";

/// The checks of one server. Each NAR is checked once.
pub(super) struct Checks<'a> {
    workload: &'a Workload,
    endpoint: Endpoint,
    connection: Connection,
    /// The checked target of each path's NAR.
    nars: BTreeMap<String, String>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(workload: &'a Workload, endpoint: &Endpoint) -> Checks<'a> {
        Checks {
            workload,
            endpoint: endpoint.clone(),
            connection: Connection::new(&endpoint.origin),
            nars: BTreeMap::new(),
        }
    }

    fn target(&self, hash: &str) -> String {
        format!("{}/{hash}.narinfo", self.endpoint.origin.prefix)
    }

    /// The target of a path's narinfo, which is correct and signed.
    pub(super) fn narinfo(&mut self, path: &str) -> Result<String> {
        let target = self.target(hash_part(path));
        self.read_narinfo(&target, path)?;
        Ok(target)
    }

    fn read_narinfo(&mut self, target: &str, path: &str) -> Result<NarInfoText> {
        let (head, body) = self.connection.fetch(target, "")?;
        ensure!(head.status == 200, "{target}: status {}", head.status);
        let seen = NarInfoText(String::from_utf8(body).context("the narinfo is not UTF-8")?);
        compare(&seen, &self.workload.narinfo(path)?).with_context(|| target.to_string())?;
        Ok(seen)
    }

    /// The target of a narinfo that does not exist.
    pub(super) fn absent(&mut self) -> Result<String> {
        let target = self.target(ABSENT);
        let (head, _) = self.connection.fetch(&target, "")?;
        ensure!(head.status == 404, "{target}: status {}", head.status);
        Ok(target)
    }

    /// The target of a path's NAR, which is correct in every byte.
    pub(super) fn nar(&mut self, path: &str) -> Result<String> {
        if let Some(target) = self.nars.get(path) {
            return Ok(target.clone());
        }
        let target = self.nar_target(path)?;
        let (head, body) = self.connection.fetch(&target, "")?;
        ensure!(head.status == 200, "{target}: status {}", head.status);
        ensure!(
            body == self.workload.nar(path)?,
            "{target} differs from the NAR of Nix"
        );
        self.nars.insert(path.into(), target.clone());
        Ok(target)
    }

    fn nar_target(&mut self, path: &str) -> Result<String> {
        let narinfo = self.target(hash_part(path));
        let seen = self.read_narinfo(&narinfo, path)?;
        let url = seen.get("URL").unwrap_or_default();
        ensure!(
            !url.contains("://"),
            "{narinfo}: its URL {url} is on another server"
        );
        Ok(format!(
            "{}/{}",
            self.endpoint.origin.prefix,
            url.trim_start_matches('/')
        ))
    }

    /// The target of a path's NAR, which the server sends compressed by zstd. `timeout` is for a
    /// server that compresses in the background.
    pub(super) fn compressed(
        &mut self,
        path: &str,
        timeout: Duration,
        scratch: &Path,
    ) -> Result<String> {
        let target = self.nar_target(path)?;
        let deadline = Instant::now() + timeout;
        let body = loop {
            let (head, body) = self.connection.fetch(&target, ACCEPT_ZSTD)?;
            ensure!(head.status == 200, "{target}: status {}", head.status);
            if head.header("content-encoding") == Some("zstd") || target.ends_with(".zst") {
                break body;
            }
            ensure!(Instant::now() < deadline, "the server does not send zstd");
            thread::sleep(Duration::from_millis(50));
        };
        ensure!(
            unzstd(&body, scratch)? == self.workload.nar(path)?,
            "{target} differs from the NAR of Nix"
        );
        Ok(target)
    }
}

/// Compares the signed fields and the signature; the URL and other fields may differ. An Ed25519
/// signature is determined by text and key.
fn compare(seen: &NarInfoText, expected: &NarInfoText) -> Result<()> {
    for field in ["StorePath", "NarHash", "NarSize", "Sig"] {
        let (seen, expected) = (seen.get(field), expected.get(field));
        ensure!(
            seen.is_some() && seen == expected,
            "{field} is {seen:?}, and {expected:?} in the cache of Nix"
        );
    }
    let references = |narinfo: &NarInfoText| {
        let all = narinfo.get("References").unwrap_or_default();
        all.split(' ').map(String::from).collect::<Vec<_>>()
    };
    ensure!(
        references(seen) == references(expected),
        "the references differ from those of Nix"
    );
    Ok(())
}

fn unzstd(body: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let file = scratch.join("response.zst");
    fs::write(&file, body).with_context(|| format!("cannot write {}", file.display()))?;
    let output = Command::new("zstd")
        .arg("-dcq")
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start zstd")?;
    ensure!(output.status.success(), "zstd cannot decode the response");
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "StorePath: /nix/store/a-b\nURL: nar/x.nar\nCompression: none\n\
        NarHash: sha256:1\nNarSize: 5\nReferences: c-d\nSig: k:s\n";

    #[test]
    fn narinfo_may_differ_only_in_unsigned_fields() {
        let expected = NarInfoText(GOOD.into());
        let with = |from: &str, to: &str| compare(&NarInfoText(GOOD.replace(from, to)), &expected);
        assert!(with("nar/x.nar", "nar/y.nar?hash=z").is_ok());
        for (from, to) in [
            ("a-b", "a-c"),
            ("sha256:1", "sha256:2"),
            ("NarSize: 5", "NarSize: 6"),
            ("References: c-d", "References: "),
            ("Sig: k:s\n", ""),
        ] {
            assert!(with(from, to).is_err(), "{to}");
        }
    }
}
