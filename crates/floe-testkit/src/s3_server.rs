//! A real S3 server: versitygw, which keeps each bucket in a directory.

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
    directory: tempfile::TempDir,
}

/// Starts versitygw with one bucket. If it is not installed, records a skip and returns `None`.
pub fn s3_server(bucket: &str) -> Option<S3Server> {
    let Some(program) = std::env::var_os("FLOE_TEST_VERSITYGW").map(PathBuf::from) else {
        skip("versitygw", "not installed; run `cargo xtask test`");
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("buckets");
    fs::create_dir_all(root.join(bucket)).unwrap();
    let start = |[port]: [u16; 1]| {
        Command::new(&program)
            .args(["--access", S3_ACCESS_KEY, "--secret", S3_SECRET_KEY])
            .args([
                "--port",
                &format!("127.0.0.1:{port}"),
                "--keep-alive",
                "--quiet",
            ])
            .arg("--access-log")
            .arg(directory.path().join("access.log"))
            .arg("posix")
            .arg(&root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let is_ready = |[port]: [u16; 1]| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let (process, [port]) = with_free_ports(start, is_ready);
    Some(S3Server {
        process,
        port,
        directory,
    })
}

impl S3Server {
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
        let policy = serde_json::json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Principal": "*",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:ListBucket"],
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

    /// Returns the requests so far: a line for each, with the operation, as in `REST.PUT.OBJECT`.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("access.log")).unwrap_or_default()
    }

    /// Returns the directory of a bucket: each object is a file.
    pub fn bucket(&self, bucket: &str) -> PathBuf {
        let root: &Path = self.directory.path();
        root.join("buckets").join(bucket)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}
