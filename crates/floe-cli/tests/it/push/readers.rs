//! Other programs download the buckets that floe wrote.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use floe_testkit::{
    Corpus, S3_ACCESS_KEY, S3_SECRET_KEY, S3Server, corpus, find_tool, run, s3_servers, scratch,
};

use super::{assert_installs, floe_with_keys, source_root};
use crate::support::floe;

/// Makes the command by which a client downloads a bucket.
type Client = fn(&S3Server, &str, &Path) -> Option<Command>;

/// Downloads a bucket with the client of Amazon.
fn aws(server: &S3Server, bucket: &str, directory: &Path) -> Option<Command> {
    let mut command = Command::new(find_tool("aws", "awscli")?);
    command
        .args(["s3", "sync", "--only-show-errors", "--endpoint-url"])
        .args([server.endpoint(), format!("s3://{bucket}")])
        .arg(directory)
        .envs(server.variables())
        .env("AWS_DEFAULT_REGION", "us-east-1");
    Some(command)
}

/// Downloads a bucket with rclone, which compares MD5 sums with ETags.
fn rclone(server: &S3Server, bucket: &str, directory: &Path) -> Option<Command> {
    let mut command = Command::new(find_tool("rclone", "rclone")?);
    command
        .args(["copy", "--config", "/dev/null", &format!(":s3:{bucket}")])
        .arg(directory)
        .args([
            "--s3-provider",
            "Other",
            "--s3-endpoint",
            &server.endpoint(),
        ])
        .args(["--s3-access-key-id", S3_ACCESS_KEY])
        .args(["--s3-secret-access-key", S3_SECRET_KEY])
        // rclone 1.60 cannot use the variable.
        .env_remove("AWS_CA_BUNDLE");
    Some(command)
}

#[test]
fn other_clients_download_a_usable_cache() {
    let Some(corpus) = corpus("curl") else { return };
    for server in s3_servers("team") {
        downloads_are_usable(&server, &corpus);
    }
}

fn downloads_are_usable(server: &S3Server, corpus: &Corpus) {
    let root = source_root(corpus);
    // Without compression, the largest NARs are sent in parts.
    let to = format!(
        "{}&compression=none&write-nar-listing=true",
        server.uri("team")
    );
    let push = ["push", "--to", &to, "--root", &root, &corpus.root];
    run(&mut floe_with_keys(server, &push)).expect(0);
    let log = server.log();
    // s3s-fs writes none.
    assert!(log.is_empty() || log.contains("s3_UploadPart"));
    let scratch = scratch();
    let is_full = std::env::var_os("FLOE_TEST_FULL").is_some();
    // Only the full tests install it.
    let aws = is_full.then_some(("aws", aws as Client));
    for (name, client) in aws.into_iter().chain([("rclone", rclone as Client)]) {
        let downloaded = scratch.join(name);
        fs::create_dir(&downloaded).unwrap();
        let Some(mut download) = client(server, "team", &downloaded) else {
            continue;
        };
        run(&mut download).expect(0);
        // Some servers keep the empty directory of the leases.
        let _: io::Result<()> = fs::remove_dir(server.bucket("team").join("leases"));
        let mut diff = Command::new("diff");
        // The server's own directory.
        diff.args(["-r", "--exclude=.sgwtmp"]);
        run(diff.arg(&downloaded).arg(server.bucket("team"))).expect(0);
        let from = format!("file://{}", downloaded.display());
        let mut install = floe(["install", "--no-check-sigs", "--from", &from]);
        let installed = scratch.join(&format!("{name}-root"));
        assert_installs(&mut install, &installed, corpus);
    }
}
