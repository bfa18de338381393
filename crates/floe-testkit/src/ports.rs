//! Free TCP ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};

/// Returns distinct ports that no process listens on.
pub fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // Hold all listeners until the last port is drawn: the kernel may return a freed port again.
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Starts a program that gets its ports as arguments, and returns the process with these ports. If
/// another process has taken a port in the meantime and the program exits, retries with other
/// ports. `is_ready` returns whether the program listens.
pub fn with_free_ports<const COUNT: usize>(
    mut start: impl FnMut([u16; COUNT]) -> Child,
    is_ready: impl Fn([u16; COUNT]) -> bool,
) -> (Child, [u16; COUNT]) {
    for _ in 0..10 {
        let ports = free_ports();
        let mut process = start(ports);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_ready(ports) {
            if process.try_wait().unwrap().is_some() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "the program does not listen on {ports:?}"
            );
            // The poll also ends with the program.
            std::thread::sleep(Duration::from_millis(20));
        }
        if process.try_wait().unwrap().is_none() {
            return (process, ports);
        }
    }
    panic!("the program exits at once on any ports");
}
