//! Hosts with addresses of both families, one of which is unreachable.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use floe_testkit::{corpus, find_tool, run, scratch};

use crate::faulty_cache::assert_verified;
use crate::support::floe;

/// In a network namespace: packets to the IPv6 address of the host vanish in a device that no
/// process reads. A server listens on the IPv4 address.
const SCRIPT: &str = r#"
set -eu
ip link set lo up
ip tuntap add dev lost mode tun
ip link set lost up
ip -6 address add fd00::2/64 dev lost nodad
mount --bind "$HOSTS" /etc/hosts
"$FLOE" serve --store "$STORE" --listen 127.0.0.1:8642 >/dev/null 2>&1 &
server=$!
for _ in $(seq 100); do
    "$FLOE" info --store http://127.0.0.1:8642 "/$PATH_TO_COPY" >/dev/null 2>&1 && break
    sleep 0.1
done
status=0
date +%s%N > "$TIMES"
"$FLOE" install --no-check-sigs --from http://cache.test:8642 --option connect-timeout 60 \
    --root "$ROOT" "/$PATH_TO_COPY" || status=$?
date +%s%N >> "$TIMES"
ip -s link show lost | tail -n 2
kill "$server"
exit "$status"
"#;

#[test]
fn unreachable_address_family_costs_little() {
    let (Some(corpus), Some(unshare)) = (corpus("jq"), find_tool("unshare", "util-linux")) else {
        return;
    };
    let scratch = scratch();
    let (hosts, times, root) = (
        scratch.join("hosts"),
        scratch.join("times"),
        scratch.join("root"),
    );
    fs::write(&hosts, "fd00::1 cache.test\n127.0.0.1 cache.test\n").unwrap();
    let floe = floe([""; 0]);
    let mut command = Command::new(unshare);
    command.args(["--net", "--mount", "sh", "-c", SCRIPT]);
    for (name, value) in floe.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("FLOE", floe.get_program());
    command
        .env("HOSTS", &hosts)
        .env("TIMES", &times)
        .env("ROOT", &root);
    command.env("STORE", format!("local?root={}", corpus.store().display()));
    // A variable with the whole path would be a root for the collections of other tests.
    command.env("PATH_TO_COPY", corpus.root.trim_start_matches('/'));
    let began = Instant::now();
    let ran = run(&mut command).expect(0);
    assert!(began.elapsed() < Duration::from_secs(50));
    assert_verified(&root, corpus.paths.len());
    let times = fs::read_to_string(&times).unwrap();
    let times: Vec<u64> = times.lines().map(|line| line.parse().unwrap()).collect();
    let took = Duration::from_nanos(times[1] - times[0]);
    // The attempt over IPv6 comes first and alone; on its own it would take a minute.
    assert!(took > Duration::from_millis(250), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let fault_shown = "a packet to the IPv6 address was sent or dropped";
    let counts = ran.stdout.lines().last().unwrap();
    let has_packets = counts.split_whitespace().any(|count| count != "0");
    assert!(has_packets, "not shown that {fault_shown}: {counts}");
}
