//! The server under a service manager, which holds the sockets and hears of its state.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use floe_testkit::http_client::Client;
use floe_testkit::{Scratch, TIMEOUT, corpus, scratch, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::serve_options::serve;

/// A service manager for one server, as far as the tests need it.
struct Manager {
    scratch: Scratch,
    http: TcpListener,
    metrics: UnixListener,
    /// The messages of the server.
    notices: UnixDatagram,
}

/// A server that the manager has started.
struct Service(Child);

impl Manager {
    fn new() -> Manager {
        let scratch = scratch();
        let notices = UnixDatagram::bind(scratch.join("notify")).unwrap();
        notices.set_read_timeout(Some(TIMEOUT)).unwrap();
        Manager {
            http: TcpListener::bind("127.0.0.1:0").unwrap(),
            metrics: UnixListener::bind(scratch.join("metrics")).unwrap(),
            notices,
            scratch,
        }
    }

    fn address(&self) -> SocketAddr {
        self.http.local_addr().unwrap()
    }

    fn connect(&self) -> Client {
        Client::connect(&self.address().to_string())
    }

    /// Starts a server of the store of jq with the sockets, and waits until it is ready.
    fn start(&self, variables: &[(&str, &str)]) -> Option<Service> {
        let corpus = corpus("jq")?;
        let server = serve(&["serve", "--stop-timeout", "20", "--store"]);
        // The variables are for the process that has this number.
        let script = "exec 3<&0 4<&1 0</dev/null 1>/dev/null
            export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=floe.socket:metrics
            exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(server.get_program());
        command.args(server.get_args()).arg(corpus.store());
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("NOTIFY_SOCKET", self.scratch.join("notify"));
        command.envs(variables.iter().copied());
        command.stdin(Stdio::from(OwnedFd::from(self.http.try_clone().unwrap())));
        command.stdout(Stdio::from(OwnedFd::from(
            self.metrics.try_clone().unwrap(),
        )));
        command.stderr(Stdio::null());
        let service = Service(command.spawn().unwrap());
        self.await_notice("READY=1");
        Some(service)
    }

    /// Waits for a message with some text, and returns it.
    #[track_caller]
    fn await_notice(&self, part: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let len = self.notices.recv(&mut bytes).unwrap();
            let notice = String::from_utf8_lossy(&bytes[..len]).into_owned();
            if notice.contains(part) {
                return notice;
            }
        }
    }
}

impl Service {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops the server, as a restart does, and waits for its end.
    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _: io::Result<()> = self.0.kill();
        let _: io::Result<_> = self.0.wait();
    }
}

#[test]
fn named_sockets_have_their_routes() {
    let manager = Manager::new();
    let Some(service) = manager.start(&[]) else {
        return;
    };
    let mut client = manager.connect();
    assert_eq!(client.request("GET", "/nix-cache-info", "").status, 200);
    assert_eq!(client.request("GET", "/metrics", "").status, 404);
    let socket = manager.scratch.join("metrics");
    let get = |target: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--unix-socket",
        ]);
        let output = curl.arg(&socket).arg(format!("http://h{target}")).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(
        (get("/metrics"), get("/nix-cache-info")),
        ("200".into(), "404".into())
    );
    service.stop();
    // The sockets are those of the manager.
    assert!(socket.exists());
    assert!(std::net::TcpStream::connect(manager.address()).is_ok());
}

#[test]
fn service_manager_hears_of_the_state() {
    let manager = Manager::new();
    let Some(service) = manager.start(&[("WATCHDOG_USEC", "600000")]) else {
        return;
    };
    manager.await_notice("WATCHDOG=1");
    manager.await_notice("WATCHDOG=1");
    service.signal(Signal::HUP);
    let reloading = manager.await_notice("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    let ready = manager.await_notice("READY=1");
    assert!(ready.contains("STATUS=reloaded certificates"), "{ready}");
    // A server that does not run says nothing, so the manager ends it.
    service.signal(Signal::STOP);
    manager
        .notices
        .set_read_timeout(Some(Duration::from_millis(900)))
        .unwrap();
    let mut bytes = [0; 4096];
    wait_until("the end of the signs", || {
        manager.notices.recv(&mut bytes).is_err()
    });
    manager.notices.set_read_timeout(Some(TIMEOUT)).unwrap();
    service.signal(Signal::CONT);
    manager.await_notice("WATCHDOG=1");
    service.signal(Signal::TERM);
    manager.await_notice("STOPPING=1");
    service.stop();
}

/// A thousand transfers and more while the server is restarted.
#[test]
fn restarts_lose_no_request() {
    let Some(corpus) = corpus("jq") else { return };
    let manager = Manager::new();
    let mut service = manager.start(&[]);
    let narinfo = |path: &str| format!("/{}.narinfo", &path["/nix/store/".len()..][..32]);
    let paths: Vec<(String, u64)> = corpus
        .paths
        .iter()
        .map(|path| {
            let text = manager
                .connect()
                .request("GET", &narinfo(path), "")
                .text()
                .to_owned();
            let field = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
                    .to_owned()
            };
            (
                format!("/{}", field("URL: ")),
                field("NarSize: ").parse().unwrap(),
            )
        })
        .collect();
    let (is_over, transfers, retried) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let work = |number: usize| {
        let mut client = None::<Client>;
        let mut round = number;
        while !is_over.load(Ordering::Relaxed) {
            let (target, size) = &paths[round % paths.len()];
            round += 1;
            // Every second client uses a connection for one request, the others for many.
            let is_new = client.is_none() || number.is_multiple_of(2);
            let mut used = match client.take() {
                Some(client) if !is_new => client,
                _ => manager.connect(),
            };
            match used.try_request("GET", target, "") {
                Ok(response) => {
                    assert_eq!((response.status, response.body.len() as u64), (200, *size));
                    transfers.fetch_add(1, Ordering::Relaxed);
                    let is_closed = response.field("Connection") == Some("close");
                    client = (!is_closed).then_some(used);
                }
                // Every client sends a request again if a used connection ends without a reply.
                Err(_) if !is_new => _ = retried.fetch_add(1, Ordering::Relaxed),
                Err(error) => panic!("a request on a new connection is lost: {error}"),
            }
        }
    };
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for _ in 0..8 {
            let before = transfers.load(Ordering::Relaxed);
            wait_until("further transfers", || {
                transfers.load(Ordering::Relaxed) > before + 130
                    || workers.iter().any(|worker| worker.is_finished())
            });
            let earlier = service.take().unwrap();
            earlier.stop();
            service = manager.start(&[]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(transfers.load(Ordering::Relaxed) >= 1000);
}
