//! The recipe for nginx in the manual, in front of a server that receives uploads.

use std::fs;

use floe_testkit::{corpus, nginx, run};

use super::Receiving;
use crate::push::{key, source_root};
use crate::support::floe;

const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");

/// Returns the lines of the recipe within the server of nginx, but those about TLS.
fn recipe(server: &Receiving) -> String {
    let manual = fs::read_to_string(MANUAL).unwrap();
    let start = manual.find("  client_max_body_size").unwrap();
    let end = manual[start..].find("\n}\n```").unwrap();
    let recipe = &manual[start..start + end];
    recipe.replace("http://floe", &server.server.url())
}

#[test]
fn nginx_recipe_of_the_manual_receives_uploads() {
    let Some(corpus) = corpus("jq") else { return };
    let receiving = Receiving::start(&["--trusted-proxy", "127.0.0.1"]);
    let Some(nginx) = nginx(receiving.scratch.path(), &recipe(&receiving)) else {
        return;
    };
    let (secret, _) = key(&receiving.scratch);
    let mut push = floe([
        "push",
        "--to",
        &nginx.url(),
        "--root",
        &source_root(&corpus),
    ]);
    push.args(["--option", "netrc-file", &receiving.netrc()]);
    push.args(["--secret-key-file", &secret]);
    run(push.arg(&corpus.root)).expect(0);
    let nars = fs::read_dir(receiving.directory.join("nar")).unwrap();
    let lens = nars.map(|nar| nar.unwrap().metadata().unwrap().len());
    // Without the recipe, nginx refuses such an upload.
    assert!(lens.max().unwrap() > 1024 * 1024);
    receiving.verify();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-fsS", "--netrc-file", &receiving.netrc(), &nginx.url()]);
    let page = run(&mut curl).expect(0).stdout;
    let line = format!("extra-substituters = {}\n", nginx.url());
    assert!(page.contains(&line), "{page}");
    assert_eq!(receiving.server.stop(), "");
}
