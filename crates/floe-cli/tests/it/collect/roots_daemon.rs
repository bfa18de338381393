//! The parameter `use-roots-daemon`, with Nix's own daemon.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use floe_testkit::{nixes, ran_in_pid_namespace, run, scratch, wait_until};

use crate::support::floe;

/// A process that ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn roots_of_processes_come_from_the_daemon() {
    if ran_in_pid_namespace() {
        return;
    }
    let features = [
        "--extra-experimental-features",
        "nix-command local-overlay-store",
    ];
    let has_daemon = |nix: &floe_testkit::Nix| {
        let mut help = nix.command("nix", features);
        run(help.args(["store", "roots-daemon", "--help"])).code == Some(0)
    };
    let Some(nix) = nixes().into_iter().find(has_daemon) else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    // No other store on this machine has this path.
    let file = scratch.join("file");
    fs::write(&file, file.display().to_string()).unwrap();
    fs::create_dir(&root).unwrap();
    let path = nix.store(&root, ["--add".as_ref(), file.as_os_str()]);
    let uri = format!("local?root={}", root.display());
    let with_daemon = format!("{uri}&use-roots-daemon=true");
    run(&mut floe(["gc", "--store", &with_daemon]))
        .expect(1)
        .stderr_contains("cannot ask the roots daemon");

    let mut daemon = nix.command("nix", features);
    daemon.args(["store", "roots-daemon", "--store", &uri]);
    let daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _daemon = Running(daemon.unwrap());
    let socket = root.join("nix/var/nix/gc-roots-socket/socket");
    // The daemon binds the socket before it listens, and ends if a client does not read its reply.
    let replies = || {
        let connected = UnixStream::connect(&socket);
        connected.is_ok_and(|mut stream| io::copy(&mut stream, &mut io::sink()).is_ok())
    };
    wait_until("the daemon replies", replies);
    let mut process = Command::new("sleep");
    process
        .arg("1000")
        .env("NAMED", format!("x:{}/lib", path.trim()));
    let process = Running(process.stdin(Stdio::null()).spawn().unwrap());
    let result = run(&mut floe(["gc", "--json", "--store", &with_daemon])).expect(0);
    assert_eq!(result.json()["paths"], 0);
    drop(process);
    let result = run(&mut floe(["gc", "--json", "--store", &with_daemon])).expect(0);
    assert_eq!(result.json()["paths"], 1);
}
