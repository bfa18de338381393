//! `floe key`: floe and Nix accept each other's keys.

use std::fs;
use std::process::Stdio;

use crate::support::{corpus, floe, nixes, run, scratch};

#[test]
fn nix_signs_with_a_key_that_floe_made_and_floe_trusts_it() {
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
fn two_keys_differ_and_a_name_with_a_colon_is_refused() {
    let generate = |name: &str| run(&mut floe(["key", "generate", name]));
    assert_ne!(
        generate("a-1").expect(0).stdout,
        generate("a-1").expect(0).stdout
    );
    generate("a:b").expect(2).says("no key can be named");
    run(floe(["key", "public"]).stdin(Stdio::null()))
        .expect(1)
        .says("secret key");
}
