//! A real nginx in front of a directory.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::skip;

/// An nginx that serves a directory on ports of its own, until it is dropped.
pub(crate) struct Nginx {
    process: Child,
    ports: [u16; 3],
    files: tempfile::TempDir,
}

/// Ports that nobody listens on, each another one.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All are held until the last is drawn: one that is free again may come twice.
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Starts a program that is told on which ports to listen, with other ports where somebody else
/// has taken one of them meanwhile. `is_ready` asks for what it does once it has them all.
pub(crate) fn with_free_ports<const COUNT: usize>(
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
            assert!(Instant::now() < deadline, "nobody listens on {ports:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        if process.try_wait().unwrap().is_none() {
            return (process, ports);
        }
    }
    panic!("it ends at once, whatever its ports are");
}

/// Starts nginx over `root`; `None`, and a note among the skips, where there is none. `extra`
/// goes into its server block; `PORT1` and `PORT2` stand there for ports that
/// [`Nginx::port`] tells.
pub(crate) fn nginx(root: &Path, extra: &str) -> Option<Nginx> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    let Some(program) = program else {
        skip("nginx", "not installed; run `cargo xtask test` as root");
        return None;
    };
    let files = tempfile::tempdir().unwrap();
    let base = files.path().display();
    let config_file = files.path().join("nginx.conf");
    let start = |ports: [u16; 3]| {
        let [port, first, second] = ports.map(|port| port.to_string());
        let extra = extra.replace("PORT1", &first).replace("PORT2", &second);
        let config = format!(
            "worker_processes 1; daemon off; master_process off; pid {base}/pid;\n\
             error_log {base}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log {base}/access.log; sendfile on;\n\
             client_body_temp_path {base}/b; proxy_temp_path {base}/p;\n\
             fastcgi_temp_path {base}/f; uwsgi_temp_path {base}/u; scgi_temp_path {base}/s;\n\
             server {{ listen 127.0.0.1:{port}; root {}; {extra} }} }}\n",
            root.display()
        );
        fs::write(&config_file, config).unwrap();
        Command::new(program)
            .arg("-c")
            .arg(&config_file)
            .args(["-e", "stderr"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    // It writes the number of its process when it listens.
    let (process, ports) = with_free_ports(start, |_| files.path().join("pid").exists());
    Some(Nginx {
        process,
        ports,
        files,
    })
}

impl Nginx {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port(0))
    }

    /// The port of its own that it has for plain HTTP, or one of those that were asked for.
    pub(crate) fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    /// The requests that it has answered, a line each.
    ///
    /// It writes the line of a request when the client may have all of the answer already. Its
    /// only process does one thing after the other, so that all lines are there with that of a
    /// request that is sent now.
    pub(crate) fn log(&self) -> String {
        static SENTINELS: AtomicU32 = AtomicU32::new(0);
        let number = SENTINELS.fetch_add(1, Ordering::Relaxed);
        let sentinel = format!("GET {SENTINEL}{number} ");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(0))).unwrap();
        let request = format!("{sentinel}HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let log = fs::read_to_string(self.files.path().join("access.log")).unwrap();
            if log.contains(&sentinel) {
                let lines = log.split_inclusive('\n');
                return lines.filter(|line| !line.contains(SENTINEL)).collect();
            }
            assert!(Instant::now() < deadline, "nginx does not write its log");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}

/// Nothing that is served has such a name.
const SENTINEL: &str = "/sentinel-";
