//! `nix-daemon`: the daemon for the users of a machine.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::Child;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{setpriv_to_nobody, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// A daemon for the users of this machine.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(host: &Host<'_>, settings: &str) -> Daemon {
        let socket = host.scratch.join("socket");
        let mut command = Command::new(host.program("nix-daemon"));
        command.arg("--store").arg(host.root());
        hide_nix_conf(&mut command);
        command.env("NIX_DAEMON_SOCKET_PATH", &socket);
        command.env("NIX_CONFIG", format!("substituters =\n{settings}"));
        let child = command.spawn().unwrap();
        wait_until("the socket", || UnixStream::connect(&socket).is_ok());
        Daemon { child, socket }
    }

    fn uri(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    fn stop(mut self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket.exists());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended, unless a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn clients_copy_both_ways_and_the_signal_ends_the_daemon() {
    with_hosts(|host| {
        let daemon = Daemon::start(host, "");
        let mode = fs::metadata(&daemon.socket).unwrap();
        assert!(mode.file_type().is_socket() && mode.permissions().mode() & 0o777 == 0o666);
        let original = host.corpus.store().display().to_string();
        let copy = |from: &str, to: &str| {
            run(host.nix_copy(from, to).arg("--no-check-sigs")).expect(0);
        };
        copy(&original, &daemon.uri());
        host.check_store(&host.root());
        let back = host.scratch.join("back");
        // Nix reads the files of a daemon of its machine itself.
        let from = format!("{}?root={}", daemon.uri(), host.root().display());
        copy(&from, back.to_str().unwrap());
        host.check_store(&back);
        // A second daemon is refused while the first one listens.
        let mut second = Command::new(host.program("nix-daemon"));
        second.arg("--store").arg(host.root());
        second.env("NIX_DAEMON_SOCKET_PATH", &daemon.socket);
        hide_nix_conf(&mut second);
        run(&mut second)
            .expect(1)
            .stderr_contains("another daemon listens there");
        daemon.stop();
        // A socket of a daemon that was killed is replaced.
        let mut killed = Daemon::start(host, "");
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        assert!(killed.socket.exists());
        Daemon::start(host, "").stop();
    });
}

#[test]
fn users_have_the_rights_of_the_settings() {
    if setpriv_to_nobody().is_none() {
        return;
    }
    with_hosts(|host| {
        run(Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(host.scratch.path()))
        .expect(0);
        let store = host.unsigned_store();
        let unsigned = format!("file://{}", host.scratch.join("unsigned-cache").display());
        run(host.nix_copy(&store, &unsigned).arg("--no-check-sigs")).expect(0);
        run(Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(host.scratch.path()))
        .expect(0);
        let signed = host.corpus.file_url("xz");
        let copy = |daemon: &Daemon, from: &str| {
            let mut command = setpriv_to_nobody().unwrap();
            command.arg(host.nix.program("nix"));
            command.args([
                "copy",
                "--from",
                from,
                "--to",
                &daemon.uri(),
                &host.corpus.root,
            ]);
            command.args([
                "--no-check-sigs",
                "--option",
                "experimental-features",
                "nix-command",
            ]);
            let home = host.scratch.join("home");
            fs::create_dir_all(&home).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
            command
                .env("HOME", &home)
                .env("XDG_CACHE_HOME", home.join("cache"));
            command
                .env("NIX_CONF_DIR", "/nonexistent")
                .env("NIX_REMOTE", daemon.uri());
            run(&mut command)
        };
        let key = format!("trusted-public-keys = {}", host.corpus.key);
        let rows = || host.nix.store(&host.root(), ["--dump-db"]);
        // The user may not connect.
        let daemon = Daemon::start(host, &format!("allowed-users = root\n{key}"));
        let refused = copy(&daemon, &signed);
        assert_ne!(refused.code, Some(0));
        refused.stderr_contains("allowed-users does not name the user");
        daemon.stop();
        // The user may connect, and is not trusted.
        let daemon = Daemon::start(host, &key);
        let refused = copy(&daemon, &unsigned);
        assert_ne!(refused.code, Some(0), "{}", refused.stderr);
        refused.stderr_contains("signature");
        assert_eq!(rows(), "");
        let accepted = copy(&daemon, &signed);
        assert_eq!(accepted.code, Some(0), "{}", accepted.stderr);
        host.nix.verify(&host.root(), host.corpus.paths.len());
        // Privileged operations are refused with a reason.
        for words in [
            &["nix-store", "--verify", "--repair"][..],
            &["nix-store", "--repair-path", &host.corpus.root],
        ] {
            let mut command = setpriv_to_nobody().unwrap();
            command.arg(host.nix.program(words[0])).args(&words[1..]);
            command
                .env("NIX_REMOTE", daemon.uri())
                .env("NIX_CONF_DIR", "/nonexistent");
            let ran = run(&mut command);
            assert_ne!(ran.code, Some(0), "{words:?}: {}", ran.stderr);
        }
        daemon.stop();
        floe_store::tree::remove_tree(&host.root()).unwrap();
        // The group of the user is trusted.
        let daemon = Daemon::start(host, "trusted-users = root @nogroup");
        let accepted = copy(&daemon, &unsigned);
        assert_eq!(accepted.code, Some(0), "{}", accepted.stderr);
        daemon.stop();
    });
}

#[test]
fn many_idle_clients_keep_no_other_one_away() {
    with_hosts(|host| {
        let daemon = Daemon::start(host, "");
        let idle: Vec<UnixStream> = (0..200)
            .map(|_| UnixStream::connect(&daemon.socket).unwrap())
            .collect();
        let original = host.corpus.store().display().to_string();
        run(host
            .nix_copy(&original, &daemon.uri())
            .arg("--no-check-sigs"))
        .expect(0);
        host.check_store(&host.root());
        drop(idle);
        daemon.stop();
    });
}

/// An ordinary user of a machine has no store of its own: the daemon serves its clients.
#[test]
fn stdio_of_other_users_reaches_the_daemon() {
    with_hosts(|host| {
        let daemon = Daemon::start(host, "");
        let program = host.program("nix-daemon");
        let uri = format!(
            "ssh-ng://localhost?remote-program={}&remote-store={}",
            program.display(),
            daemon.uri()
        );
        let original = host.corpus.store().display().to_string();
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        host.check_store(&host.root());
        // A client of the socket makes a link, which the daemon registers as a root.
        let link = host.scratch.join("result").display().to_string();
        let words = [
            "--add-root",
            &link,
            "--indirect",
            "--realise",
            &host.corpus.root,
        ];
        let mut realise = host.nix.command("nix-store", words);
        realise.env("NIX_REMOTE", daemon.uri());
        run(realise.env("NIX_CONFIG", "substituters =")).expect(0);
        let roots = host.nix.store(&host.root(), ["--gc", "--print-roots"]);
        assert!(roots.contains(&link), "{roots}");
        let ran = run(Command::new(host.program("nix-store")).args([
            "--serve",
            "--write",
            "--store",
            &daemon.uri(),
        ]));
        ran.expect(1).stderr_contains("use ssh-ng://");
        daemon.stop();
    });
}

/// The rights do not depend on the program of the client, nor on the compression.
#[test]
fn floe_is_a_client_with_the_rights_of_its_user() {
    if setpriv_to_nobody().is_none() {
        return;
    }
    with_hosts(|host| {
        let store = host.unsigned_store();
        let unsigned = format!("file://{}", host.scratch.join("unsigned-cache").display());
        run(host.nix_copy(&store, &unsigned).arg("--no-check-sigs")).expect(0);
        let mut readable = Command::new("chmod");
        run(readable.args(["-R", "a+rX"]).arg(host.scratch.path())).expect(0);
        let copy = |is_root: bool, trust: &[&str], (from, to): (&str, &str)| {
            let program = floe([""; 0]).get_program().to_owned();
            let mut command = if is_root {
                Command::new(program)
            } else {
                let mut command = setpriv_to_nobody().unwrap();
                command.arg(program);
                command
            };
            hide_nix_conf(&mut command);
            command
                .args(["copy", "--from", from, "--to", to])
                .args(trust);
            run(command.arg(&host.corpus.root).env("HOME", "/nonexistent"))
        };
        let key = format!("trusted-public-keys = {}", host.corpus.key);
        let daemon = Daemon::start(host, &key);
        let zstd = format!("{}?compression=zstd", daemon.uri());
        let (unchecked, checked) = (
            ["--no-check-sigs"],
            ["--trusted-public-keys", &host.corpus.key],
        );
        for to in [&daemon.uri(), &zstd] {
            copy(false, &unchecked, (&unsigned, to))
                .expect(1)
                .stderr_contains("does not trust this user");
            assert_eq!(host.nix.store(&host.root(), ["--dump-db"]), "");
        }
        let signed = host.corpus.file_url("xz");
        let copies = [
            (false, &checked[..], &signed),
            (true, &unchecked, &unsigned),
        ];
        for (is_root, trust, from) in copies {
            for to in [&daemon.uri(), &zstd] {
                copy(is_root, trust, (from, to)).expect(0);
                host.nix.verify(&host.root(), host.corpus.paths.len());
                let back = host.scratch.join("back");
                copy(true, &unchecked, (to, back.to_str().unwrap())).expect(0);
                host.nix.verify(&back, host.corpus.paths.len());
                for store in [host.root(), back] {
                    floe_store::tree::remove_tree(&store).unwrap();
                }
            }
        }
        daemon.stop();
    });
}

/// Two connections never unpack the same path at once, unless a client is slow.
#[test]
fn clients_with_the_same_closure_wait_for_no_slow_one() {
    with_hosts(|host| {
        let daemon = Daemon::start(host, "");
        let cache = host.corpus.file_url("none");
        let directory = Path::new(cache.strip_prefix("file://").unwrap());
        let libc = host
            .corpus
            .paths
            .iter()
            .find(|path| path.contains("-libc6-"));
        let (hash_part, _) = libc.unwrap()["/nix/store/".len()..]
            .split_once('-')
            .unwrap();
        let narinfo = fs::read_to_string(directory.join(format!("{hash_part}.narinfo"))).unwrap();
        let nar = narinfo.lines().find_map(|line| line.strip_prefix("URL: "));
        let server = FaultServer::start(directory);
        server.fail(nar.unwrap(), Fault::Stalled(8_000_000));
        let floe_copy = |from: &str| {
            let mut copy = floe(["copy", "--from", from, "--to", &daemon.uri()]);
            copy.arg(&host.corpus.root);
            copy
        };
        let mut slow = floe_copy(&server.url());
        let mut slow = slow.arg("--no-check-sigs").spawn().unwrap();
        wait_until("a part of libc", || {
            let names = fs::read_dir(host.root().join("nix/store"));
            let mut names = names.into_iter().flatten();
            names.any(|it| {
                it.unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with(hash_part)
            })
        });
        let clients = (0..4).map(|number| {
            let copy = if number % 2 == 0 {
                &mut floe_copy(&cache)
            } else {
                &mut host.nix_copy(&cache, &daemon.uri())
            };
            copy.arg("--no-check-sigs").spawn().unwrap()
        });
        for mut client in clients.collect::<Vec<_>>() {
            assert!(client.wait().unwrap().success());
        }
        assert!(slow.try_wait().unwrap().is_none());
        slow.kill().unwrap();
        slow.wait().unwrap();
        host.nix.verify(&host.root(), host.corpus.paths.len());
        daemon.stop();
    });
}
