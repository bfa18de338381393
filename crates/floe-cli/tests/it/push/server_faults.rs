//! Servers that refuse a push in the middle: a full disk, wrong ETags, credentials that end.

use std::fs;
use std::time::Duration;

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{
    Nginx, S3_ACCESS_KEY, S3_SECRET_KEY, corpus, nginx, run, s3_server, s3_server_on_small_disk,
    scratch,
};
use jiff::{SignedDuration, Timestamp};

use super::faults::{check_bucket, completes, push};
use super::{floe_with_keys, source_root};
use crate::support::floe;

#[test]
fn full_disk_of_the_server_is_named() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server_on_small_disk("team", 4 << 20) else {
        return;
    };
    let output = run(&mut push(&server, &server.endpoint(), &corpus, &[]));
    let stderr = &output.stderr;
    assert!(output.code != Some(0), "{stderr}");
    assert!(stderr.contains("/team/"), "{stderr}");
    assert!(stderr.contains("free some space there"), "{stderr}");
    check_bucket(&server.bucket("team"));
}

#[test]
fn wrong_etags_do_not_make_an_incomplete_cache() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let proxy = FaultProxy::start(server.address(), move |_, line| {
        if line.starts_with("PUT") {
            ProxyFault::OtherETag
        } else {
            ProxyFault::None
        }
    });
    let root = source_root(&corpus);
    // Without compression, the largest NARs are sent in parts, which the server joins by ETag.
    let to = format!(
        "s3://team?endpoint={}&compression=none&retry-attempts=1",
        proxy.url()
    );
    let args = ["push", "--to", &to, "--root", &root, &corpus.root];
    let output = run(&mut floe_with_keys(&server, &args));
    assert!(proxy.fault_count() > 0);
    assert!(server.log().contains("s3_UploadPart"));
    assert!(output.code != Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("InvalidPart"), "{}", output.stderr);
    assert!(check_bucket(&server.bucket("team")) < corpus.paths.len());
    completes(&server, &corpus);
}

/// The reply of a service of credentials that end in a minute.
fn credentials(secret: &str) -> String {
    let end = Timestamp::now() + SignedDuration::from_mins(1);
    format!(
        r#"{{"AccessKeyId":"{S3_ACCESS_KEY}","SecretAccessKey":"{secret}","Token":"","Expiration":"{end:.0}"}}"#
    )
}

#[test]
fn push_with_credentials_that_end_is_completed_later() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let Some(service) = nginx(scratch.path(), "") else {
        return;
    };
    let file = scratch.join("credentials");
    let token = scratch.join("token");
    fs::write(&token, "for the service").unwrap();
    let root = source_root(&corpus);
    let push_through = |proxy: &FaultProxy| {
        fs::write(&file, credentials(S3_SECRET_KEY)).unwrap();
        let to = format!("s3://team?endpoint={}&retry-attempts=1", proxy.url());
        let mut command = floe(["push", "--to", &to, "--root", &root, &corpus.root]);
        let url = format!("{}/credentials", service.url());
        command
            .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
            .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token)
            .env("HOME", "/nonexistent");
        run(&mut command)
    };
    // object_store renews credentials that end within five minutes at most every 100 ms.
    let slow = ProxyFault::Slow(Duration::from_millis(60));
    let (new, delay) = (file.clone(), slow.clone());
    let proxy = FaultProxy::start(server.address(), move |number, _| {
        if number == 20 {
            let whole = new.with_extension("new");
            fs::write(&whole, credentials("other-secret")).unwrap();
            fs::rename(&whole, &new).unwrap();
        }
        delay.clone()
    });
    let refused = push_through(&proxy);
    let stderr = &refused.stderr;
    assert!(refused.code != Some(0), "{stderr}");
    assert!(stderr.contains("SignatureDoesNotMatch"), "{stderr}");
    assert!(!stderr.contains("other-secret"), "{stderr}");
    assert!(check_bucket(&server.bucket("team")) < corpus.paths.len());
    let fetched = |service: &Nginx| service.log().matches("GET /credentials").count();
    let before = fetched(&service);
    assert!(before > 1, "the credentials were fetched {before} times");
    let proxy = FaultProxy::start(server.address(), move |_, _| slow.clone());
    push_through(&proxy).expect(0);
    assert!(fetched(&service) > before + 1);
    assert_eq!(check_bucket(&server.bucket("team")), corpus.paths.len());
}
