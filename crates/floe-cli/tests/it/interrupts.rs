//! An interrupted move ends soon, keeps what it has finished, and can be taken up again.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::{assert_brought_the_rest, leftovers};
use crate::faulty::{assert_holds_exactly, faulty};
use crate::server::{Fault, Server};
use crate::support::{floe, run};

#[test]
fn an_interrupt_ends_the_move_with_its_own_code_and_keeps_what_is_finished() {
    let Some(faulty) = faulty("zstd") else { return };
    let server = Server::start(&faulty.cache);
    // The largest path never ends, while the others do.
    let stuck = faulty.path("libc6");
    let nar = faulty.nar(&stuck);
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Hang(1000));
    let mut child = floe(["install", "--from", &server.url(), "--trusted-public-keys"])
        .args([&faulty.corpus.key, "--root"])
        .arg(&faulty.root)
        .arg(&faulty.corpus.root)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let valid = |path: &str| {
        let verified = run(floe(["verify", "--root"]).arg(&faulty.root).arg(path));
        verified.code == Some(0)
    };
    let done = faulty.path("gcc-12-base");
    while !valid(done.as_str()) {
        assert!(Instant::now() < deadline, "nothing was finished");
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "ended before it was interrupted"
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        server.hits_on(name).len(),
        1,
        "the path that hangs was not asked for"
    );
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!valid(stuck.as_str()) && valid(done.as_str()));
    let store = faulty.root.join("nix/store");
    assert_eq!(leftovers(&store), [""; 0]);
    let names = fs::read_dir(&store).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept: BTreeSet<String> = names.filter(|name| name != ".links").collect();
    let print = |name: &String| format!("/nix/store/{name}");
    assert_holds_exactly(&faulty.root, &kept.iter().map(print).collect());

    server.heal();
    let since = server.hits().len();
    let again = faulty.install(&server.url()).expect(0).json();
    assert_eq!(again["reused"], kept.len());
    assert_brought_the_rest(&faulty.corpus, &server, since, &kept);
    assert_holds_exactly(&faulty.root, &faulty.without(&[]));
}
