//! What a server answers must be right before its speed counts. The real Nix wrote what is right:
//! its cache holds every narinfo, signature and NAR.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::http::Connection;
use super::peers::Endpoint;
use super::workload::{Narinfo, Workload, hash_part};

/// A hash part that no store has: its 160 bits are all zero.
pub(super) const ABSENT: &str = "00000000000000000000000000000000";

/// What a client of a row asks for.
pub(super) const ZSTD: &str = "Accept-Encoding: zstd\r\n";

/// The checks of one server, each made once.
pub(super) struct Checks<'a> {
    work: &'a Workload,
    site: Endpoint,
    connection: Connection,
    /// Where a path's NAR lies.
    nars: BTreeMap<String, String>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(work: &'a Workload, site: &Endpoint) -> Checks<'a> {
        Checks {
            work,
            site: site.clone(),
            connection: Connection::new(&site.origin),
            nars: BTreeMap::new(),
        }
    }

    fn target(&self, hash: &str) -> String {
        format!("{}/{hash}.narinfo", self.site.origin.prefix)
    }

    /// What to ask for to get the narinfo of a path, which is right and signed.
    pub(super) fn narinfo(&mut self, path: &str) -> Result<String> {
        let target = self.target(hash_part(path));
        self.read(&target, path)?;
        Ok(target)
    }

    fn read(&mut self, target: &str, path: &str) -> Result<Narinfo> {
        let (head, body) = self.connection.fetch(target, "")?;
        ensure!(head.status == 200, "{target}: status {}", head.status);
        let seen = Narinfo(String::from_utf8(body).context("a narinfo that is no text")?);
        compare(&seen, &self.work.narinfo(path)?).with_context(|| target.to_string())?;
        Ok(seen)
    }

    /// What to ask for to be told that there is no such path.
    pub(super) fn absent(&mut self) -> Result<String> {
        let target = self.target(ABSENT);
        let (head, _) = self.connection.fetch(&target, "")?;
        ensure!(head.status == 404, "{target}: status {}", head.status);
        Ok(target)
    }

    /// What to ask for to get the NAR of a path, whose every byte is right.
    pub(super) fn nar(&mut self, path: &str) -> Result<String> {
        if let Some(target) = self.nars.get(path) {
            return Ok(target.clone());
        }
        let target = self.nar_target(path)?;
        let (head, body) = self.connection.fetch(&target, "")?;
        ensure!(head.status == 200, "{target}: status {}", head.status);
        ensure!(
            body == self.work.nar(path)?,
            "{target} is another NAR than Nix's"
        );
        self.nars.insert(path.into(), target.clone());
        Ok(target)
    }

    fn nar_target(&mut self, path: &str) -> Result<String> {
        let narinfo = self.target(hash_part(path));
        let seen = self.read(&narinfo, path)?;
        let url = seen.get("URL").unwrap_or_default();
        ensure!(
            !url.contains("://"),
            "{narinfo}: its URL {url} is at another place"
        );
        Ok(format!(
            "{}/{}",
            self.site.origin.prefix,
            url.trim_start_matches('/')
        ))
    }

    /// What to ask for, with `ZSTD`, to get the NAR of a path compressed. `patience` is for a
    /// server that compresses beside its work.
    pub(super) fn compressed(
        &mut self,
        path: &str,
        patience: Duration,
        scratch: &Path,
    ) -> Result<String> {
        let target = self.nar_target(path)?;
        let deadline = Instant::now() + patience;
        let body = loop {
            let (head, body) = self.connection.fetch(&target, ZSTD)?;
            ensure!(head.status == 200, "{target}: status {}", head.status);
            if head.header("content-encoding") == Some("zstd") || target.ends_with(".zst") {
                break body;
            }
            ensure!(Instant::now() < deadline, "it does not send zstd");
            thread::sleep(Duration::from_millis(50));
        };
        ensure!(
            unzstd(&body, scratch)? == self.work.nar(path)?,
            "{target} is another NAR than Nix's"
        );
        Ok(target)
    }
}

/// A narinfo may say more than another, and name its NAR otherwise; what is signed is the same,
/// and so is the signature, for Ed25519 knows only one for each text and key.
fn compare(seen: &Narinfo, expected: &Narinfo) -> Result<()> {
    for field in ["StorePath", "NarHash", "NarSize", "Sig"] {
        let (seen, expected) = (seen.get(field), expected.get(field));
        ensure!(
            seen.is_some() && seen == expected,
            "{field} is {seen:?} where Nix has {expected:?}"
        );
    }
    let references = |narinfo: &Narinfo| {
        let all = narinfo.get("References").unwrap_or_default();
        all.split(' ').map(String::from).collect::<Vec<_>>()
    };
    ensure!(
        references(seen) == references(expected),
        "other references than Nix has"
    );
    Ok(())
}

fn unzstd(body: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let file = scratch.join("answer.zst");
    fs::write(&file, body).with_context(|| format!("writing {}", file.display()))?;
    let output = Command::new("zstd")
        .arg("-dcq")
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting zstd (apt-get install zstd)")?;
    ensure!(output.status.success(), "zstd cannot read the answer");
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "StorePath: /nix/store/a-b\nURL: nar/x.nar\nCompression: none\n\
        NarHash: sha256:1\nNarSize: 5\nReferences: c-d\nSig: k:s\n";

    #[test]
    fn a_narinfo_may_lie_elsewhere_but_say_nothing_else() {
        let expected = Narinfo(GOOD.into());
        let with = |from: &str, to: &str| compare(&Narinfo(GOOD.replace(from, to)), &expected);
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
