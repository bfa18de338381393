//! A real nginx in front of a directory.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::skip;

/// An nginx that serves a directory on a port of its own, until it is dropped.
pub(crate) struct Nginx {
    process: Child,
    port: u16,
    files: tempfile::TempDir,
}

/// Starts nginx over `root`; `None`, and a note among the skips, where there is none. `extra`
/// goes into its server block.
pub(crate) fn nginx(root: &Path, extra: &str) -> Option<Nginx> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    let Some(program) = program else {
        skip("nginx", "not installed; run `cargo xtask test` as root");
        return None;
    };
    let files = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let base = files.path().display();
    let config = format!(
        "worker_processes 1; daemon off; master_process off; pid {base}/pid;\n\
         error_log {base}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log {base}/access.log; sendfile on;\n\
         client_body_temp_path {base}/b; proxy_temp_path {base}/p; fastcgi_temp_path {base}/f;\n\
         uwsgi_temp_path {base}/u; scgi_temp_path {base}/s;\n\
         server {{ listen 127.0.0.1:{port}; root {}; {extra} }} }}\n",
        root.display()
    );
    let config_file = files.path().join("nginx.conf");
    fs::write(&config_file, config).unwrap();
    let process = Command::new(program)
        .arg("-c")
        .arg(&config_file)
        .args(["-e", "stderr"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen on {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(Nginx {
        process,
        port,
        files,
    })
}

impl Nginx {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
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
