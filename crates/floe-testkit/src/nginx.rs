//! A real nginx that serves a directory.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::ports::with_free_ports;
use crate::skip::skip;

/// An nginx process that serves a directory on its own ports until it is dropped.
pub struct Nginx {
    process: Child,
    ports: [u16; 3],
    files: tempfile::TempDir,
}

/// Starts nginx with the document root `root`. If nginx is not installed, records a skip and
/// returns `None`. `extra` is appended to the server block. In it, `PORT1` and `PORT2` stand for
/// the ports that [`Nginx::port`] returns.
pub fn nginx(root: &Path, extra: &str) -> Option<Nginx> {
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
    // nginx writes its pid file once it listens.
    let (process, ports) = with_free_ports(start, |_| files.path().join("pid").exists());
    Some(Nginx {
        process,
        ports,
        files,
    })
}

impl Nginx {
    /// Returns the address of port 0.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[0]).into()
    }

    /// Returns the base URL of port 0.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port(0))
    }

    /// Returns port 0, which serves plain HTTP, or `PORT1` or `PORT2`.
    pub fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    /// Returns the access log: one line per answered request.
    ///
    /// nginx may log a request after the client has read the whole response. It has one process
    /// that handles requests in order, so once the log contains a sentinel request sent now, all
    /// earlier lines are there.
    pub fn log(&self) -> String {
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
            assert!(
                Instant::now() < deadline,
                "nginx did not log the sentinel request"
            );
            // The poll returns the lines that it reads.
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

/// Prefix of request paths that no served file has.
const SENTINEL: &str = "/sentinel-";
