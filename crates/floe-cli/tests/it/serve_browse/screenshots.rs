//! The pages in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::http_client::hash_part;
use floe_testkit::{corpus, find_tool, run, scratch};

use super::{BROWSE, add};
use crate::server_process::ServerProcess;

/// Runs Chromium without a window, and with a profile of its own.
fn chromium(program: &Path, profile: &Path, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    run(command.args(args)).expect(0).stdout
}

/// Takes screenshots in both color schemes, narrow and wide. Their files stay, so that a person can
/// look at them.
#[test]
fn pages_look_well() {
    if std::env::var_os("FLOE_TEST_FULL").is_none() {
        return;
    }
    let (Some(corpus), Some(program)) = (corpus("curl"), find_tool("chromium", "chromium")) else {
        return;
    };
    let (scratch, profile) = (scratch(), scratch().join("profile"));
    let server = ServerProcess::start(corpus.store(), &[BROWSE]);
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    fs::create_dir_all(&pictures).unwrap();
    let part = hash_part(&corpus.root);
    let mut sizes = Vec::new();
    for (name, target) in [
        ("root", "/".to_owned()),
        ("store", "/browse".into()),
        ("search", "/browse?q=lib".into()),
        ("path", format!("/browse/{part}")),
        ("files", format!("/serve/{part}/")),
    ] {
        for (width, scheme) in [(400, 0), (400, 1), (1400, 0), (1400, 1)] {
            let color = ["dark", "light"][scheme];
            let picture = pictures.join(format!("{name}-{width}-{color}.png"));
            let _: std::io::Result<()> = fs::remove_file(&picture);
            let args = [
                &format!("--screenshot={}", picture.display()),
                &format!("--window-size={width},900"),
                &format!("--blink-settings=preferredColorScheme={scheme}"),
                &format!("{}{target}", server.url()),
            ];
            chromium(&program, &profile, &args.map(String::as_str));
            sizes.push(fs::read(&picture).unwrap());
        }
    }
    // Each page looks different in each scheme and at each width.
    for (number, picture) in sizes.iter().enumerate() {
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 2000);
        assert!(!sizes[..number].contains(picture), "picture {number}");
    }
    drop(scratch);
    server.stop();
}

/// A page of the store runs no script in a browser, and a page without the policy does.
#[test]
fn browsers_run_nothing_of_the_store() {
    if std::env::var_os("FLOE_TEST_FULL").is_none() {
        return;
    }
    let Some(program) = find_tool("chromium", "chromium") else {
        return;
    };
    let scratch = scratch();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let page = "<!DOCTYPE html><body><p id='p'>text</p><script>\
                document.getElementById('p').textContent = 'r' + 'an'</script>";
    fs::write(tree.join("page.html"), page).unwrap();
    let path = add(&scratch, "tree");
    let server = ServerProcess::start(scratch.join("root"), &[BROWSE]);
    let dump = |url: &str| chromium(&program, &scratch.join("profile"), &["--dump-dom", url]);
    let served = dump(&format!(
        "{}/serve/{}/page.html",
        server.url(),
        hash_part(&path)
    ));
    assert!(
        served.contains(">text<") && !served.contains("ran"),
        "{served}"
    );
    let direct = dump(&format!("file://{}", tree.join("page.html").display()));
    assert!(direct.contains(">ran<"), "{direct}");
    server.stop();
}
