//! Peak memory use of an install.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{corpora, floe, nginx, scratch};

/// Returns the peak resident memory of a child in bytes, or `None` if it has ended.
fn peak(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[test]
fn an_install_from_a_cache_of_nix_holds_less_than_160_mib() {
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
            let (mut most, mut looks) = (0, 0);
            while child.try_wait().unwrap().is_none() {
                if let Some(peak) = peak(&child) {
                    (most, looks) = (peak, looks + 1);
                }
                thread::sleep(BETWEEN_LOOKS);
            }
            assert!(child.wait().unwrap().success());
            let found = format!("{} from {compression}: {most} bytes", corpus.root);
            eprintln!("{found}, {looks} samples");
            assert!(looks > 0 && most > MIB, "{found}, {looks} samples");
            assert!(most < 160 * MIB, "{found}");
        }
    }
}

const MIB: u64 = 1024 * 1024;

/// Frequent enough for the shortest install, without noticeable load.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
