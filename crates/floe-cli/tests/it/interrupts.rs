//! SIGINT ends a command soon, keeps what is complete, and the next run resumes.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::assert_brought_the_rest;
use crate::faulty::{assert_holds_exactly, faulty};
use crate::server::{Fault, Server};
use crate::support::{corpus, floe, nixes, run, scratch};

#[test]
fn an_interrupt_ends_the_move_with_its_own_code_and_keeps_what_is_finished() {
    let Some(faulty) = faulty("zstd") else { return };
    let server = Server::start(&faulty.cache);
    // The NAR of the largest path stalls. All others arrive.
    let stuck = faulty.path("libc6");
    let nar = faulty.nar(&stuck);
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Hang(1000));
    let mut child = floe(["install", "--from", &server.url(), "--trusted-public-keys"])
        .args([&faulty.corpus.key, "--root"])
        .arg(&faulty.root)
        .arg(&faulty.corpus.root)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (all, valid) = (faulty.corpus.paths.len(), faulty.without(&[&stuck]));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let last = format!("[{}/{all}]", all - 1);
    let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with(&last)));
    assert!(told.is_some(), "the install ended before the interrupt");
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_valid = |path: &String| {
        let verified = run(floe(["verify", "--root"]).arg(&faulty.root).arg(path));
        verified.code == Some(0)
    };
    while !valid.iter().all(is_valid) {
        assert!(
            Instant::now() < deadline,
            "the finished paths were not registered"
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        server.hits_on(name).len(),
        1,
        "the stalled NAR was not requested exactly once"
    );
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let said = lines.any(|line| line.is_ok_and(|line| line.contains("cannot be valid yet")));
    assert!(said, "no message about kept paths");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Referrers of the stalled path have arrived but cannot be registered. They are kept for
    // resume.
    let left = faulty.assert_holds(&valid);
    assert_eq!(left.len(), all - valid.len() - 1);

    server.heal();
    let since = server.hits().len();
    let again = faulty.install(&server.url()).expect(0).json();
    assert_eq!(again["alreadyValid"], valid.len());
    assert_eq!(again["reusedPaths"], left.len());
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    let kept = valid.union(&left).map(base).collect();
    assert_brought_the_rest(&faulty.corpus, &server, since, &kept);
    assert_holds_exactly(&faulty.root, &faulty.without(&[]));
}

#[test]
fn an_interrupt_ends_the_pause_that_a_server_has_asked_for() {
    let Some(faulty) = faulty("zstd") else { return };
    let server = Server::start(&faulty.cache);
    let nar = faulty.nar(&faulty.path("libc6"));
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Later(503, PAUSE.as_secs().to_string()));
    let mut child = floe(["install", "--from", &server.url(), "--trusted-public-keys"])
        .args([&faulty.corpus.key, "--root"])
        .arg(&faulty.root)
        .arg(&faulty.corpus.root)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("503")));
    assert!(told.is_some(), "no message about the 503 response");
    let began = Instant::now();
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        began.elapsed() < PAUSE / 2,
        "the interrupt did not end the wait"
    );
    assert_eq!(server.hits_on(name).len(), 1);
    faulty.assert_holds(&faulty.without_left());
}

/// Longer than any machine needs to end an install, and short enough for floe to honour it.
const PAUSE: Duration = Duration::from_secs(100);

#[test]
fn a_wait_for_others_is_told_and_ends_at_an_interrupt() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let profile = scratch.join("profile");
    let install = || {
        let mut command = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
        command
            .arg(&root)
            .args(["--trusted-public-keys", &corpus.key]);
        command.arg("--profile").arg(&profile).arg(&corpus.root);
        command
    };
    run(&mut install()).expect(0);
    let path = corpus.root.strip_prefix("/nix/").unwrap();
    let state = root.join("nix/var/nix");
    for (lock, whom) in [
        (state.join("gc.lock"), "waiting for the garbage collector"),
        (state.join("db/big-lock"), "waiting for the big lock"),
        (
            scratch.join("profile.lock"),
            "waiting for whoever has locked",
        ),
        (
            root.join(format!("nix/{path}.lock")),
            "waiting for whoever has locked",
        ),
    ] {
        let mut options = File::options();
        let held = options.write(true).create(true).truncate(false).open(&lock);
        let held = held.unwrap();
        held.lock().unwrap();
        if lock.starts_with(root.join("nix/store")) {
            // floe locks only paths that are missing, so delete the path first.
            let nix = nixes();
            let Some(nix) = nix.first() else { return };
            fs::remove_file(&profile).unwrap();
            fs::remove_file(scratch.join("profile-1-link")).unwrap();
            nix.store(&root, ["--delete", &corpus.root]);
        }
        let mut child = install().stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(whom)));
        assert!(told.is_some(), "no message about {}", lock.display());
        let id = child.id().to_string();
        run(std::process::Command::new("kill").args(["-INT", &id])).expect(0);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{}", lock.display());
        held.unlock().unwrap();
        fs::remove_file(&lock).unwrap();
    }
}

#[test]
fn who_reads_a_store_says_that_its_database_is_locked_and_waits_no_longer_than_wanted() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
    install.arg(&root).arg(&corpus.root);
    install.args(["--trusted-public-keys", &corpus.key]);
    run(install.args(["--option", "use-sqlite-wal", "false"])).expect(0);
    // Nix takes this lock directory when it writes a database without a write-ahead log.
    let held = root.join("nix/var/nix/db/db.sqlite.lock");
    fs::create_dir(&held).unwrap();
    let (store, target) = (root.to_str().unwrap(), scratch.join("copy"));
    let (target, key) = (target.to_str().unwrap(), &*corpus.key);
    let copy = [
        "copy",
        "--from",
        store,
        "--to",
        target,
        "--trusted-public-keys",
        key,
    ];
    let args = [
        [&["verify", "--root", store][..], &[]],
        [&["info", "--from", store], &[&corpus.root]],
        [&copy, &[&corpus.root]],
    ];
    let args = args.map(|args| args.concat());
    for args in &args {
        let mut child = floe(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let told = lines.find(|line| line.as_ref().unwrap().contains("waiting for the database"));
        assert!(told.is_some(), "{args:?} did not report the lock");
        // Use SIGTERM: a shell without job control starts background jobs with SIGINT ignored, and
        // commands without a handler of their own inherit that.
        run(std::process::Command::new("kill").args(["-TERM", &child.id().to_string()])).expect(0);
        let status = child.wait().unwrap();
        let is_over = status.code() == Some(130) || status.signal() == Some(15);
        assert!(is_over, "{args:?}: {status}");
    }
    fs::remove_dir(&held).unwrap();
    for args in args {
        run(&mut floe(args)).expect(0);
    }
}
