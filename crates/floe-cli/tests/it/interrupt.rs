//! SIGINT ends a command soon, keeps what is complete, and the next run resumes.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{corpus, nixes, ran_in_pid_namespace, run, scratch, wait_until};

use rustix::process::{Pid, Signal, kill_process};

use crate::faults::assert_fetched_only_missing;
use crate::faulty_cache::{assert_store_contains_exactly, faulty_cache};
use crate::support::floe;

#[test]
fn interrupted_install_exits_with_130_and_is_resumable() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    // The NAR of the largest path stalls. All others arrive.
    let stalled = faulty.path("libc6");
    let nar = faulty.nar(&stalled);
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Stalled(1000));
    let mut child = floe(["install", "-v", "--from", &server.url(), "--root"])
        .arg(&faulty.root)
        .args(["--trusted-public-keys", &faulty.corpus.key])
        .arg(&faulty.corpus.root)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (all, valid) = (faulty.corpus.paths.len(), faulty.paths_without(&[&stalled]));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let last = format!("[{}/{all}]", all - 1);
    let reported = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with(&last)));
    assert!(reported.is_some(), "the install ended before the interrupt");
    let is_valid = |path: &String| {
        let verified = run(floe(["verify", "--root"]).arg(&faulty.root).arg(path));
        verified.code == Some(0)
    };
    wait_until("the finished paths were not registered", || {
        valid.iter().all(is_valid)
    });
    assert_eq!(
        server.requests_for(name).len(),
        1,
        "the stalled NAR was not requested exactly once"
    );
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let reported =
        lines.any(|line| line.is_ok_and(|line| line.contains("whose references are missing")));
    assert!(reported, "no message about kept paths");
    let summary = format!(
        "installed {} of {all} paths before the interrupt",
        valid.len()
    );
    let reported = lines.any(|line| line.is_ok_and(|line| line == summary));
    assert!(reported, "not: {summary}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Referrers of the stalled path have arrived but cannot be registered. They are kept for
    // resume.
    let left = faulty.assert_valid_paths(&valid);
    assert_eq!(left.len(), all - valid.len() - 1);

    server.clear_faults();
    let since = server.requests().len();
    let again = faulty.install(&server.url()).expect(0).json();
    assert_eq!(again["alreadyValid"], valid.len());
    assert_eq!(again["reusedPaths"], left.len());
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    let kept = valid.union(&left).map(base).collect();
    assert_fetched_only_missing(&faulty.corpus, &server, since, &kept);
    assert_store_contains_exactly(&faulty.root, &faulty.paths_without(&[]));
}

#[test]
fn signals_interrupt_unless_they_are_ignored() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let nar = faulty.nar(&faulty.path("libc6"));
    let name = nar.file_name().unwrap().to_str().unwrap().to_owned();
    server.fail(&name, Fault::Stalled(1000));
    let install = floe(["install", "--from", &server.url(), "--trusted-public-keys"]);
    let signals = [("HUP", 1), ("INT", 2)];
    let cases = signals
        .into_iter()
        .flat_map(|signal| [(signal, false), (signal, true)]);
    for ((name_of_signal, number), is_ignored) in cases {
        let trap = if is_ignored {
            format!("trap '' {name_of_signal}; ")
        } else {
            String::new()
        };
        let script = format!("{trap}exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(install.get_program());
        shell
            .args(install.get_args())
            .args([&faulty.corpus.key, "--root"]);
        let own = format!("{name_of_signal}-{is_ignored}");
        shell.arg(faulty.root.with_extension(own));
        let mut child = shell.arg(&faulty.corpus.root).spawn().unwrap();
        let before = server.requests_for(&name).len();
        wait_until("the stalled NAR is requested", || {
            server.requests_for(&name).len() > before
        });
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mut masks = status
            .lines()
            .filter_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(masks.next().unwrap().trim(), 16).unwrap();
        assert_eq!(mask >> (number - 1) & 1 == 1, is_ignored);
        let process = child.id().to_string();
        let kill = |signal: &str| {
            let signal = format!("-{signal}");
            run(Command::new("kill").args([&signal, &process])).expect(0);
        };
        kill(name_of_signal);
        if is_ignored {
            // The process would end within this time.
            std::thread::sleep(std::time::Duration::from_secs(1));
            assert!(child.try_wait().unwrap().is_none(), "{name_of_signal}");
            kill("TERM");
        }
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn signal_at_the_first_moment_is_not_lost() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    server.fail("nix-cache-info", Fault::Stalled(1));
    for _ in 0..40 {
        let mut install = floe(["install", "--from", &server.url(), "--root"]);
        let install = install.arg(&faulty.root).arg(&faulty.corpus.root);
        let mut child = install.stderr(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        // The loop does not sleep: the moment is short.
        while !catches_sigterm(&fs::read_to_string(&status).unwrap()) {}
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        wait_until("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

fn catches_sigterm(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask >> (Signal::TERM.as_raw() - 1) & 1 == 1
}

#[test]
fn second_signal_ends_a_blocked_command_with_one_line() {
    let Some(corpus) = corpus("jq") else { return };
    for is_stderr_full in [false, true] {
        let scratch = scratch();
        let (_unread, stdout) = full_pipe();
        let (_also_unread, full) = full_pipe();
        let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
        install.arg(scratch.join("root")).stdout(stdout);
        install.args(["--trusted-public-keys", &corpus.key, &corpus.root]);
        if is_stderr_full {
            install.stderr(full);
        } else {
            install.stderr(Stdio::piped());
        }
        let mut child = install.spawn().unwrap();
        let process = child.id().to_string();
        let wchan = format!("/proc/{process}/wchan");
        wait_until("floe writes into a full pipe", || {
            fs::read_to_string(&wchan).unwrap().ends_with("pipe_write")
        });
        let interrupt = || run(Command::new("kill").args(["-INT", &process])).expect(0);
        interrupt();
        // The first signal does not end it: what it waits for does not end.
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none());
        interrupt();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        let lines = stderr.matches("floe: interrupted at once").count();
        assert_eq!(lines, usize::from(!is_stderr_full), "{stderr}");
    }
}

/// Returns a pipe that takes no further byte.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[0]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn interrupt_ends_retry_after_wait() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let nar = faulty.nar(&faulty.path("libc6"));
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(
        name,
        Fault::RetryAfter(503, RETRY_AFTER.as_secs().to_string()),
    );
    let mut child = floe(["install", "--from", &server.url(), "--trusted-public-keys"])
        .args([&faulty.corpus.key, "--root"])
        .arg(&faulty.root)
        .arg(&faulty.corpus.root)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let reported = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("503")));
    assert!(reported.is_some(), "no message about the 503 response");
    let began = Instant::now();
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        began.elapsed() < RETRY_AFTER / 2,
        "the interrupt did not end the wait"
    );
    assert_eq!(server.requests_for(name).len(), 1);
    faulty.assert_valid_paths(&faulty.complete_paths());
}

/// Longer than any machine needs to end an install, and short enough for floe to honour it.
const RETRY_AFTER: Duration = Duration::from_secs(100);

#[test]
fn lock_wait_is_reported_and_ends_at_interrupt() {
    if ran_in_pid_namespace() {
        return;
    }
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
    for (lock, message) in [
        (state.join("gc.lock"), "waiting for the garbage collector"),
        (state.join("db/big-lock"), "waiting for the big lock"),
        (
            scratch.join("profile.lock"),
            "waiting for the process that has locked",
        ),
        (
            root.join(format!("nix/{path}.lock")),
            "waiting for a lock on",
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
        let reported = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(message)));
        assert!(reported.is_some(), "no message about {}", lock.display());
        let id = child.id().to_string();
        run(Command::new("kill").args(["-INT", &id])).expect(0);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{}", lock.display());
        held.unlock().unwrap();
        fs::remove_file(&lock).unwrap();
    }
}

#[test]
fn readers_report_locked_database_and_stop_at_signal() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
    install.arg(&root).arg(&corpus.root);
    install.args(["--trusted-public-keys", &corpus.key]);
    run(install.args(["--option", "use-sqlite-wal", "false"])).expect(0);
    // Nix creates this lock directory when it writes a database without a write-ahead log. It holds
    // the big lock as long as it runs.
    let big_lock = fs::File::open(root.join("nix/var/nix/db/big-lock")).unwrap();
    big_lock.lock_shared().unwrap();
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
        let reported =
            lines.find(|line| line.as_ref().unwrap().contains("waiting for the database"));
        assert!(reported.is_some(), "{args:?} did not report the lock");
        // Use SIGTERM: a shell without job control starts background jobs with SIGINT ignored, and
        // commands without a handler of their own inherit that.
        run(Command::new("kill").args(["-TERM", &child.id().to_string()])).expect(0);
        let status = child.wait().unwrap();
        let is_over = status.code() == Some(130) || status.signal() == Some(15);
        assert!(is_over, "{args:?}: {status}");
    }
    fs::remove_dir(&held).unwrap();
    for args in args {
        run(&mut floe(args)).expect(0);
    }
}
