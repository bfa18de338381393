//! `floe push` to caches behind S3 and HTTP, and their use by floe and by Nix.

mod build_logs;
mod damaged_caches;
mod faults;
mod interrupts;
mod readers;
mod requests;
mod server_faults;
mod signatures;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{
    Corpus, Nix, S3_SECRET_KEY, S3Server, Scratch, corpus, create_certificates, find_tool, nginx,
    nixes, run, s3_server, scratch, tree, wait_until,
};

use crate::support::floe;

/// A command of a user of the server.
pub(crate) fn floe_with_keys(server: &S3Server, args: &[&str]) -> Command {
    let mut command = floe(args);
    command.envs(server.variables());
    command
}

/// Makes a key, and returns its file and its public part.
pub(crate) fn key(scratch: &Scratch) -> (String, String) {
    key_named(scratch, "team-1")
}

/// Makes a key with a name, and returns its file and its public part.
pub(crate) fn key_named(scratch: &Scratch, name: &str) -> (String, String) {
    let file = scratch.join(&format!("{name}.sec"));
    let secret = run(&mut floe(["key", "generate", name])).expect(0).stdout;
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut convert = floe(["key", "public"]);
    let public = run(convert.stdin(File::open(&file).unwrap()))
        .expect(0)
        .stdout;
    (file.display().to_string(), public.trim().to_owned())
}

/// The store with the closure of a corpus, without its signatures.
pub(crate) fn source_root(corpus: &Corpus) -> String {
    corpus.store().display().to_string()
}

/// Checks that every Nix copies a corpus from a cache with one key.
pub(crate) fn assert_nix_copies(scratch: &Scratch, corpus: &Corpus, (uri, key): (&str, &str)) {
    for nix in nixes() {
        let root = scratch.join(&format!("nix-{}", nix.version));
        let mut copy = nix.command("nix", ["copy", "--from", uri, "--to"]);
        copy.arg(&root).args(["--trusted-public-keys", key]);
        run(copy.arg(&corpus.root)).expect(0);
        nix.verify(&root, corpus.paths.len());
    }
}

fn assert_installs(command: &mut Command, root: &Path, corpus: &Corpus) {
    run(command.arg("--root").arg(root).arg(&corpus.root)).expect(0);
    assert!(tree(root) == tree(&corpus.store()), "the trees differ");
    for nix in nixes() {
        nix.verify(root, corpus.paths.len());
    }
}

#[test]
fn closure_in_bucket_is_signed_and_complete() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let (file, public) = key(&scratch);
    let to = server.uri("team/nix");
    let push = |expected: &str| {
        let root = source_root(&corpus);
        let args = [
            "push",
            "--to",
            &to,
            "--secret-key-file",
            &file,
            "--root",
            &root,
        ];
        let mut command = floe_with_keys(&server, &args);
        run(command.arg(&corpus.root))
            .expect(0)
            .stderr_contains(expected);
    };
    push(&format!("pushed {} paths", corpus.paths.len()));
    let narinfo = server.bucket("team").join("nix").join(format!(
        "{}.narinfo",
        &corpus.root["/nix/store/".len()..][..32]
    ));
    let narinfo = fs::read_to_string(narinfo).unwrap();
    assert!(narinfo.contains("Compression: zstd"), "{narinfo}");
    assert!(narinfo.contains("Sig: team-1:"), "{narinfo}");
    let args = ["install", "--from", &to, "--trusted-public-keys", &public];
    let mut install = floe_with_keys(&server, &args);
    assert_installs(&mut install, &scratch.join("root"), &corpus);
    let before = server.log().lines().count();
    push(&format!("all {} paths are present", corpus.paths.len()));
    let log = server.log();
    let again = log.lines().skip(before);
    let again: Vec<&str> = again.filter(|line| !is_of_lease(line)).collect();
    // One for nix-cache-info, a page of names for the narinfos and for the NARs, and some narinfos,
    // which have the signature.
    assert!((4..=19).contains(&again.len()), "{again:?}");
    assert!(again.iter().all(|line| !line.contains("PutObject")));
}

/// Whether a line of a server's log is one for a lease or for the plan of a collection.
fn is_of_lease(line: &str) -> bool {
    line.contains("leases/") || line.contains("gc/plan")
}

/// Lets Nix copy the closure of a corpus.
fn nix_copies(nix: &Nix, from: &str, to: &str, corpus: &Corpus) {
    let args = ["copy", "--no-check-sigs", "--from", from, "--to", to];
    run(nix.command("nix", args).arg(&corpus.root)).expect(0);
}

#[test]
fn nix_and_floe_read_each_others_buckets() {
    let Some(corpus) = corpus("jq") else { return };
    // The older one has no S3.
    for nix in nixes().into_iter().filter(|nix| !nix.is_2_8()) {
        let Some(server) = s3_server("team") else {
            return;
        };
        server.open_to_all("team");
        let scratch = scratch();
        let root = source_root(&corpus);
        let usual = ["none", "xz", "zstd", "bzip2", "gzip", "lz4"];
        // Nix takes 42 s to compress with brotli.
        let brotli = std::env::var_os("FLOE_TEST_FULL").map(|_| "br");
        for compression in usual.into_iter().chain(brotli) {
            let other = server.uri(&format!("team/{compression}"));
            let written = format!("{other}&region=us-east-1&compression={compression}");
            nix_copies(&nix, &root, &written, &corpus);
            // An anonymous user may read it.
            let mut install = floe(["install", "--no-check-sigs", "--from", &other]);
            install.env("AWS_EC2_METADATA_DISABLED", "true");
            assert_installs(&mut install, &scratch.join(compression), &corpus);
            let own = server.uri(&format!("team/floe-{compression}"));
            let to = format!("{own}&compression={compression}");
            let push = ["push", "--to", &to, "--root", &root, &corpus.root];
            run(&mut floe_with_keys(&server, &push)).expect(0);
            let by_nix = scratch.join(&format!("by-nix-{compression}"));
            let from = format!("{own}&region=us-east-1");
            nix_copies(&nix, &from, by_nix.to_str().unwrap(), &corpus);
            nix.verify(&by_nix, corpus.paths.len());
        }
    }
}

#[test]
fn refused_requests_name_the_bucket_and_no_secret() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let root = source_root(&corpus);
    let trace = scratch.join("trace.json").display().to_string();
    let refused = |to: &str, variables: &[(&str, &str)], expected: &str| {
        let args = [
            "push", "--json", "--trace", &trace, "--to", to, "--root", &root,
        ];
        let mut command = floe(args);
        command
            .arg("--option")
            .args(["filetransfer-retry-attempts", "1"]);
        command
            .env("HOME", "/nonexistent")
            .envs(variables.iter().copied());
        let output = run(command.arg(&corpus.root));
        let all = format!("{}{}", output.stdout, output.stderr);
        assert!(output.code != Some(0) && all.contains(expected), "{all}");
        let trace = fs::read_to_string(&trace).unwrap_or_default();
        for secret in [S3_SECRET_KEY, "other-secret"] {
            assert!(!all.contains(secret) && !trace.contains(secret), "{all}");
        }
    };
    let right = server.variables();
    let wrong = [right[0], ("AWS_SECRET_ACCESS_KEY", "other-secret")];
    let unknown = [("AWS_ACCESS_KEY_ID", "unknown-key"), wrong[1]];
    refused(&server.uri("other"), &right, "/other/");
    refused(&server.uri("other"), &right, "NoSuchBucket");
    refused(&server.uri("other"), &right, "check the name of the bucket");
    let elsewhere = format!("{}&region=eu-west-1", server.uri("team"));
    refused(&elsewhere, &right, "with region= in the URL");
    refused(&server.uri("team"), &wrong, "SignatureDoesNotMatch");
    refused(&server.uri("team"), &unknown, "No user exists");
    refused(
        &server.uri("team"),
        &unknown[..1],
        "set AWS_SECRET_ACCESS_KEY too",
    );
    let profile = format!("{}&profile=absent", server.uri("team"));
    refused(&profile, &[], "have no profile");
    server.let_all_read("team");
    let anonymous = [("AWS_EC2_METADATA_DISABLED", "true")];
    let reader = "AccessDenied: Access Denied.); no credentials were found: set AWS_ACCESS_KEY_ID";
    refused(&server.uri("team"), &anonymous, reader);
}

#[test]
fn closure_behind_nginx_is_read_by_nix_and_floe() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = scratch.join("cache");
    fs::create_dir(&cache).unwrap();
    let methods = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let Some(server) = nginx(&cache, methods) else {
        return;
    };
    let (file, public) = key(&scratch);
    let (to, root) = (server.url(), source_root(&corpus));
    let args = [
        "push",
        "--to",
        &to,
        "--secret-key-file",
        &file,
        "--root",
        &root,
    ];
    run(floe(args).arg(&corpus.root)).expect(0);
    let mut install = floe(["install", "--from", &to, "--trusted-public-keys", &public]);
    assert_installs(&mut install, &scratch.join("root"), &corpus);
    for (number, nix) in nixes().iter().enumerate() {
        let by_nix = scratch.join(&format!("by-nix-{number}"));
        nix_copies(nix, &to, by_nix.to_str().unwrap(), &corpus);
        nix.verify(&by_nix, corpus.paths.len());
    }
}

#[test]
fn refused_uploads_have_their_own_advice() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = source_root(&corpus);
    for (rule, expected) in [
        ("return 401;", "netrc"),
        ("return 403;", "whether this user may write there"),
        ("return 405;", "takes no uploads"),
        ("return 409;", "create the directory"),
        ("return 413;", "client_max_body_size"),
        ("return 507;", "free some space there"),
        ("return 429;", "with fewer connections"),
    ] {
        let cache = scratch.join("cache");
        fs::create_dir_all(&cache).unwrap();
        let extra = format!("if ($request_method = PUT) {{ {rule} }}");
        let Some(server) = nginx(&cache, &extra) else {
            return;
        };
        let mut command = floe(["push", "--to", &server.url(), "--root", &root]);
        command.args(["--option", "filetransfer-retry-attempts", "1"]);
        run(command.arg(&corpus.root))
            .expect(4)
            .stderr_contains(expected);
    }
    let server = nginx(&scratch.join("cache"), "client_max_body_size 1k;").unwrap();
    let mut command = floe(["push", "--to", &server.url(), "--root", &root]);
    run(command.arg(&corpus.root))
        .expect(4)
        .stderr_contains("takes no uploads");
}

#[test]
fn push_without_a_cache_is_refused() {
    for (args, expected) in [
        (
            &["push", "/nix/store/x"][..],
            "add --to URL, or set push-to",
        ),
        (
            &["push", "--to", "/root", "/nix/store/x"],
            "it is not a binary cache",
        ),
        (&["push", "--to", "s3://", "x"], "use s3://BUCKET"),
    ] {
        run(&mut floe(args)).expect(2).stderr_contains(expected);
    }
}

#[test]
fn key_for_a_daemon_gives_a_warning() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = scratch.join("key");
    let generated = run(&mut floe(["key", "generate", "test-1"])).expect(0);
    std::fs::write(&key, generated.stdout).unwrap();
    let target = format!("unix://{}", scratch.join("absent").display());
    let mut push = floe(["push", "--to", &target, "--secret-key-file"]);
    push.arg(&key).arg("--root").arg(corpus.store());
    run(push.arg(&corpus.root))
        .expect(4)
        .stderr_contains("warning: ignoring --secret-key-file for unix:");
}

#[test]
fn watched_store_is_pushed_until_a_signal() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, cache) = (scratch.join("root"), scratch.join("cache"));
    let first = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libgcc-s1-"));
    let copy = |path: &str| {
        let from = source_root(&corpus);
        let mut copy = floe(["copy", "--no-check-sigs", "--from", &from, "--to"]);
        run(copy.arg(&root).arg(path)).expect(0);
    };
    copy(first.unwrap());
    let to = format!("file://{}", cache.display());
    let mut watch = floe(["push", "--watch-store", "--to", &to, "--root"]);
    let mut child = watch
        .arg(&root)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("watching "), "{line}");
    copy(&corpus.root);
    let hash_part = &corpus.root["/nix/store/".len()..][..32];
    wait_until("the new path is not pushed", || {
        cache.join(format!("{hash_part}.narinfo")).exists()
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let pushed = String::from_utf8(output.stdout).unwrap();
    assert!(pushed.lines().any(|path| path == corpus.root), "{pushed}");
    let installed = scratch.join("installed");
    let mut install = floe(["install", "--no-check-sigs", "--from", &to]);
    assert_installs(&mut install, &installed, &corpus);
}

#[test]
fn paths_of_upstream_are_left_out() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let upstream = format!("file://{}", scratch.join("upstream").display());
    let to = format!("file://{}", scratch.join("cache").display());
    let root = source_root(&corpus);
    let dependency = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libgcc-s1-"));
    let dependency = dependency.unwrap();
    let push = |to: &str, path: &str, more: &[&str]| {
        let mut command = floe(["push", "--to", to, "--root", &root]);
        run(command.args(more).arg(path)).expect(0)
    };
    push(&upstream, dependency, &[]);
    push(&to, &corpus.root, &["--skip-upstream", &upstream]);
    let narinfos = |cache: &str| {
        let entries = fs::read_dir(scratch.join(cache)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".narinfo")).count()
    };
    let skipped = narinfos("upstream");
    assert!(skipped > 1);
    assert_eq!(narinfos("cache") + skipped, corpus.paths.len());
    let sources = ["--from", &to, "--from", &upstream];
    let mut install = floe(["install", "--no-check-sigs"]);
    assert_installs(install.args(sources), &scratch.join("root"), &corpus);
    // With --all, no path is requested by its name.
    let all = format!("file://{}", scratch.join("all").display());
    let mut command = floe(["push", "--to", &all, "--root", &root, "--all"]);
    run(command.args(["--skip-upstream", &upstream])).expect(0);
    assert_eq!(narinfos("all") + skipped, corpus.paths.len());
    // A requested path is pushed all the same.
    push(&to, dependency, &["--skip-upstream", &upstream]);
    assert!(narinfos("cache") + skipped > corpus.paths.len());
}

#[test]
fn copy_between_buckets_of_one_server_does_not_hang() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let root = source_root(&corpus);
    let (from, to) = (server.uri("team/a"), server.uri("team/b"));
    let push = ["push", "--to", &from, "--root", &root, &corpus.root];
    run(&mut floe_with_keys(&server, &push)).expect(0);
    let to_zstd = format!("{to}&compression=zstd");
    let copy = ["copy", "--from", &from, "--to", &to_zstd, "--jobs", "8"];
    let mut copy = floe_with_keys(&server, &copy);
    copy.args(["--option", "http-connections", "1", &corpus.root]);
    run(&mut copy).expect(0);
    let scratch = scratch();
    let install = ["install", "--no-check-sigs", "--from", &to];
    let mut install = floe_with_keys(&server, &install);
    assert_installs(&mut install, &scratch.join("root"), &corpus);
}

#[test]
fn token_of_a_web_identity_is_not_shown() {
    let Some(server) = s3_server("team") else {
        return;
    };
    for status in [403, 503] {
        let service = FaultProxy::start(server.address(), move |_, _| {
            ProxyFault::StatusBefore(status)
        });
        let scratch = scratch();
        let token = scratch.join("token");
        fs::write(&token, "secret-token").unwrap();
        let mut install = floe(["install", "--from", &server.uri("team")]);
        install
            .args(["--option", "filetransfer-retry-delay-rate-limited", "1"])
            .args(["--option", "filetransfer-retry-attempts", "5"])
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", &token)
            .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/ci")
            .env("AWS_ENDPOINT_URL_STS", service.url())
            .env("HOME", "/nonexistent");
        let hash = "/nix/store/00000000000000000000000000000000-x";
        let output = run(install.arg(hash).arg("--root").arg(scratch.join("root")));
        assert!(output.code != Some(0), "{}", output.stderr);
        assert!(service.fault_count() > 0, "{}", output.stderr);
        assert!(!output.stderr.contains("secret-token"), "{}", output.stderr);
        assert!(
            output.stderr.contains(&status.to_string()),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn closure_over_tls_and_http2_is_complete() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    let certificates = create_certificates(&openssl, scratch.path());
    let cache = scratch.join("cache");
    fs::create_dir(&cache).unwrap();
    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl http2; {} dav_methods PUT; create_full_put_path on; \
         client_max_body_size 0;",
        certificates.server
    );
    let Some(server) = nginx(&cache, &extra) else {
        return;
    };
    let url = format!("https://127.0.0.1:{}", server.port(1));
    let root = source_root(&corpus);
    // Without compression, the largest NARs are sent in parts.
    let to = format!("{url}?compression=none");
    let with_certificates = |args: &[&str]| {
        let mut command = floe(args);
        command.env("NIX_SSL_CERT_FILE", &certificates.authority);
        command
    };
    let push = ["push", "--to", &to, "--root", &root, &corpus.root];
    run(&mut with_certificates(&push)).expect(0);
    let log = server.log();
    let puts = log.lines().filter(|line| line.contains("PUT "));
    assert!(puts.clone().count() > 2 * corpus.paths.len());
    assert!(puts.clone().all(|line| line.contains("HTTP/2")), "{log}");
    let install = ["install", "--no-check-sigs", "--from", &url];
    let mut install = with_certificates(&install);
    assert_installs(&mut install, &scratch.join("root"), &corpus);
}
