//! Real S3 servers: versitygw, and s3s-fs, which keep each bucket in a directory.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::run;
use crate::ports::with_free_ports;
use crate::skip::skip;

/// The keys of the server's only account.
pub const S3_ACCESS_KEY: &str = "floe-test-key";
/// The secret of [`S3_ACCESS_KEY`].
pub const S3_SECRET_KEY: &str = "floe-test-secret/with+signs=";

/// A server that runs until it is dropped.
pub struct S3Server {
    process: Child,
    port: u16,
    /// Has a directory for each bucket.
    root: PathBuf,
    log: PathBuf,
    /// Ends with the server.
    _directory: tempfile::TempDir,
}

/// Starts versitygw with one bucket. If it is not installed, records a skip and returns `None`.
pub fn s3_server(bucket: &str) -> Option<S3Server> {
    let program = program("FLOE_TEST_VERSITYGW", "versitygw")?;
    Some(S3Server::start(bucket, |place| {
        let mut command = versitygw(Command::new(&program), place);
        command.arg(place.root);
        command
    }))
}

/// Starts versitygw with one bucket on a disk of a few bytes. If it is not installed, or if this
/// user may not mount, records a skip and returns `None`.
pub fn s3_server_on_small_disk(bucket: &str, bytes: usize) -> Option<S3Server> {
    let mut probe = Command::new("unshare");
    let status = probe
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        let why = "not allowed here; run the tests as root";
        skip("mount namespaces", why);
        return None;
    }
    let program = program("FLOE_TEST_VERSITYGW", "versitygw")?;
    let script =
        "mount -t tmpfs -o \"size=$0\" tmpfs \"$1\" && mkdir \"$1/$2\" && shift 2 && exec \"$@\"";
    let mut server = S3Server::start(bucket, |place| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script, &bytes.to_string()]);
        unshare.arg(place.root).arg(bucket).arg(&program);
        let mut command = versitygw(unshare, place);
        command.arg(place.root);
        command
    });
    // The directory as the server sees it.
    let of_server = PathBuf::from(format!("/proc/{}/root", server.process.id()));
    server.root = of_server.join(server.root.strip_prefix("/").unwrap());
    Some(server)
}

/// Starts each kind of server with one bucket: versitygw, and s3s-fs too in the full tests.
pub fn s3_servers(bucket: &str) -> Vec<S3Server> {
    let is_full = std::env::var_os("FLOE_TEST_FULL").is_some();
    let s3s = is_full.then(|| s3s_server(bucket)).flatten();
    s3_server(bucket).into_iter().chain(s3s).collect()
}

/// Starts s3s-fs, which writes no log, with one bucket. If it is not installed, records a skip and
/// returns `None`.
fn s3s_server(bucket: &str) -> Option<S3Server> {
    let program = program("FLOE_TEST_S3S", "s3s-fs")?;
    Some(S3Server::start(bucket, |place| {
        let mut command = Command::new(&program);
        command
            .args(["--host", "127.0.0.1", "--port", &place.port.to_string()])
            .args(["--access-key", S3_ACCESS_KEY, "--secret-key", S3_SECRET_KEY])
            .arg(place.root);
        command
    }))
}

fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        skip(name, "not installed; run `cargo xtask test`");
    }
    program
}

/// Where a server shall run.
struct Place<'a> {
    port: u16,
    root: &'a Path,
    log: &'a Path,
}

/// Adds the arguments of versitygw, but for the directory, to a command that ends with it.
fn versitygw(mut command: Command, place: &Place<'_>) -> Command {
    command
        .args(["--access", S3_ACCESS_KEY, "--secret", S3_SECRET_KEY])
        .args(["--port", &format!("127.0.0.1:{}", place.port)])
        .args(["--keep-alive", "--quiet", "--access-log"])
        .arg(place.log)
        .arg("posix");
    command
}

impl S3Server {
    fn start(bucket: &str, command: impl Fn(&Place<'_>) -> Command) -> S3Server {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("buckets");
        fs::create_dir_all(root.join(bucket)).unwrap();
        let log = directory.path().join("access.log");
        let start = |[port]: [u16; 1]| {
            let (root, log) = (&root, &log);
            let mut command = command(&Place { port, root, log });
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn().unwrap()
        };
        let is_ready = |[port]: [u16; 1]| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let (process, [port]) = with_free_ports(start, is_ready);
        S3Server {
            process,
            port,
            root,
            log,
            _directory: directory,
        }
    }

    /// Returns the URI of a bucket, or of a prefix in it.
    pub fn uri(&self, bucket: &str) -> String {
        format!("s3://{bucket}?endpoint={}", self.endpoint())
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Returns the number of requests so far.
    pub fn request_count(&self) -> usize {
        self.log().lines().count()
    }

    /// Returns the environment variables with the keys.
    pub fn variables(&self) -> [(&'static str, &'static str); 2] {
        [
            ("AWS_ACCESS_KEY_ID", S3_ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", S3_SECRET_KEY),
        ]
    }

    /// Lets everybody read and write a bucket. Debian's Nix cannot sign requests.
    pub fn open_to_all(&self, bucket: &str) {
        self.allow_all(bucket, &["s3:GetObject", "s3:PutObject", "s3:ListBucket"]);
    }

    /// Lets everybody read a bucket.
    pub fn let_all_read(&self, bucket: &str) {
        self.allow_all(bucket, &["s3:GetObject", "s3:ListBucket"]);
    }

    fn allow_all(&self, bucket: &str, actions: &[&str]) {
        let policy = serde_json::json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Principal": "*",
                "Action": actions,
                "Resource": [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")],
            }],
        });
        let url = format!("{}/{bucket}?policy=", self.endpoint());
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--request", "PUT"])
            .args(["--aws-sigv4", "aws:amz:us-east-1:s3"])
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .args(["--user", &format!("{S3_ACCESS_KEY}:{S3_SECRET_KEY}")])
            .args(["--data-binary", &policy.to_string(), &url]);
        run(&mut curl).expect(0);
    }

    /// Returns the requests to versitygw so far: a line for each, with the operation, as in
    /// `s3_PutObject`.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the directory of a bucket: each object is a file.
    pub fn bucket(&self, bucket: &str) -> PathBuf {
        self.root.join(bucket)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}
