//! `floe key`: floe and Nix accept each other's keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use floe_testkit::{corpus, nixes, run, scratch};

use crate::serve_options::{key_file, serve};
use crate::support::floe;

#[test]
fn key_from_floe_signs_in_nix_and_is_trusted_by_floe() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let secret = scratch.join("secret");
        let text = run(&mut floe(["key", "generate", "made-by-floe-1"]))
            .expect(0)
            .stdout;
        fs::write(&secret, text).unwrap();
        let public = run(floe(["key", "public"]).stdin(fs::File::open(&secret).unwrap()));
        let public = public.expect(0).stdout;
        let cache = scratch.join("cache");
        let to = format!("file://{}?secret-key={}", cache.display(), secret.display());
        run(nix
            .command("nix", ["copy", "--no-check-sigs", "--from"])
            .arg(corpus.store())
            .args(["--to", &to, &corpus.root]))
        .expect(0);
        run(
            floe(["install", "--trusted-public-key", public.trim(), "--from"])
                .arg(format!("file://{}", cache.display()))
                .arg("--root")
                .arg(scratch.join("root"))
                .arg(&corpus.root),
        )
        .expect(0);
    }
}

#[test]
fn key_of_the_wrong_kind_is_named_and_not_repeated() {
    let scratch = scratch();
    let secret = key_file(&scratch, "mine-1", 0o600);
    let public = run(floe(["key", "public"]).arg(&secret)).expect(0).stdout;
    assert!(public.starts_with("mine-1:"), "{public}");
    let by_stdin = run(floe(["key", "public"]).stdin(fs::File::open(&secret).unwrap()));
    assert_eq!(by_stdin.expect(0).stdout, public);

    let public_file = scratch.join("public");
    fs::write(&public_file, &public).unwrap();
    let secret_text = fs::read_to_string(&secret).unwrap();
    let assert_refused = |command: &mut Command, code, cause| {
        let ran = run(command).expect(code).stderr_contains(cause);
        let (_, bytes) = secret_text.split_once(':').unwrap();
        assert!(!ran.stderr.contains(&bytes[..10]), "{}", ran.stderr);
    };
    let is_public = "it is a public key";
    let mut server = serve(&["serve", "--check", "--secret-key-file"]);
    assert_refused(server.arg(&public_file), 1, is_public);
    assert_refused(floe(["key", "public"]).arg(&public_file), 1, is_public);
    let stdin = fs::File::open(&public_file).unwrap();
    assert_refused(floe(["key", "public"]).stdin(stdin), 1, is_public);
    let mut install = floe(["install", "--trusted-public-key", secret_text.trim()]);
    let path = format!("/nix/store/{}-x", "0".repeat(32));
    assert_refused(install.arg(&path), 2, "it is a secret key");
    let mut info = floe(["info", "--option", "trusted-public-keys"]);
    assert_refused(info.args([secret_text.trim(), &path]), 2, "a secret key");
}

#[test]
fn generated_keys_differ_and_colon_in_name_is_rejected() {
    let generate = |name: &str| run(&mut floe(["key", "generate", name]));
    assert_ne!(
        generate("a-1").expect(0).stdout,
        generate("a-1").expect(0).stdout
    );
    generate("a:b")
        .expect(2)
        .stderr_contains("cannot name a key");
    run(floe(["key", "public"]).stdin(Stdio::null()))
        .expect(1)
        .stderr_contains("secret key");
}

#[test]
fn keys_without_space_between_them_are_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    for keys in [format!("{0},{0}", corpus.key), format!("{}x", corpus.key)] {
        let install = |by: &[&str]| {
            run(
                floe(["install", "--from", &corpus.file_url("zstd"), "--root"])
                    .arg(scratch.join("root"))
                    .args(by)
                    .args([&keys, &corpus.root]),
            )
            .expect(2)
        };
        install(&["--trusted-public-keys"]).stderr_contains("try spaces between keys");
        install(&["--option", "trusted-public-keys"]).stderr_contains("separated by spaces");
    }
    assert!(!scratch.join("root").exists());
}

#[test]
fn copy_warns_of_secret_key_that_others_can_read() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let secret = scratch.join("secret");
    let text = run(&mut floe(["key", "generate", "own-1"]))
        .expect(0)
        .stdout;
    fs::write(&secret, text).unwrap();
    let copy = |mode: u32| {
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        let cache = scratch.join(&format!("cache-{mode:o}"));
        let query = format!("compression=none&secret-key={}", secret.display());
        run(floe(["copy", "--no-check-sigs", "--from"])
            .arg(corpus.store())
            .args(["--to", &format!("file://{}?{query}", cache.display())])
            .arg(&corpus.root))
        .expect(0)
        .stderr
    };
    let warning = format!(
        "using the secret key {}, which other users",
        secret.display()
    );
    let stderr = copy(0o644);
    assert_eq!(stderr.matches(&warning).count(), 1, "{stderr}");
    let stderr = copy(0o600);
    assert!(!stderr.contains("warning"), "{stderr}");
}
