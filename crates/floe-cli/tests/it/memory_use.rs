//! Peak memory use of an install.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use floe_testkit::{corpora, nginx, scratch};

use crate::support::floe;

/// Returns the peak resident memory of a child in bytes, or `None` if it has ended.
fn peak_memory(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[test]
fn install_uses_less_than_160_mib() {
    for corpus in corpora() {
        let Some(server) = nginx(&corpus.dir, "") else {
            return;
        };
        for compression in ["none", "zstd", "xz"] {
            let root = scratch();
            let from = format!("{}/cache-{compression}", server.url());
            let mut command = floe(["install", "--from", &from, "--root"]);
            command
                .arg(root.path())
                .args(["--trusted-public-keys", &corpus.key]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.arg(&corpus.root).spawn().unwrap();
            let (mut max, mut samples) = (0, 0);
            while child.try_wait().unwrap().is_none() {
                if let Some(peak_memory) = peak_memory(&child) {
                    (max, samples) = (peak_memory, samples + 1);
                }
                thread::sleep(SAMPLE_INTERVAL);
            }
            assert!(child.wait().unwrap().success());
            let measured = format!("{} from {compression}: {max} bytes", corpus.root);
            eprintln!("{measured}, {samples} samples");
            assert!(samples > 0 && max > MIB, "{measured}, {samples} samples");
            assert!(max < 160 * MIB, "{measured}");
        }
    }
}

const MIB: u64 = 1024 * 1024;

/// Frequent enough for the shortest install, without noticeable load.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
