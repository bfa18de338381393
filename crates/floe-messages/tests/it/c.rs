//! The C and C++ headers, compiled and run on the same bytes as the Rust code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_messages::Message as _;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use crate::every::every;
use crate::shapes::EveryType;

const C: (&str, &[&str]) = ("cc", &["-std=c99", "-xc"]);
const C_AS_CPP: (&str, &[&str]) = ("c++", &["-std=c++20", "-xc++"]);
const CPP: (&str, &[&str]) = ("c++", &["-std=c++20"]);

/// Compiles a program of `tests/c`. Without a compiler, reports a skip and returns `None`.
fn compiled(test: &str, source: &str, (compiler, flags): (&str, &[&str])) -> Option<PathBuf> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let more = std::env::var("FLOE_TEST_CFLAGS").unwrap_or_default();
    let mut command = Command::new(compiler);
    command
        .args(flags)
        // Flags of `cargo xtask sanitize`.
        .args(more.split_whitespace())
        .args(["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(crate_root.join("../floe-ffi/include"))
        .arg("-I")
        .arg(crate_root.join("../../bindings/cpp"))
        .arg(crate_root.join("tests/c").join(source));
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{source}: {errors}");
            Some(program)
        }
        Err(error) => {
            skip(test, &format!("cannot start {compiler}: {error}"));
            None
        }
    }
}

/// Reports a skipped test.
#[expect(clippy::print_stderr, reason = "without a list of skips, print them")]
fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(file) = std::env::var_os("FLOE_TEST_SKIPS") {
        let opened = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file);
        let mut file = opened.expect("cannot open the list of skips");
        writeln!(file, "{test}: {why}").expect("cannot write the list of skips");
    }
}

/// Returns messages encoded by Rust, each preceded by modified copies.
fn messages() -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let mut random = 1u32;
    let mut next = |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % below
    };
    let mut messages = Vec::new();
    for _ in 0..100 {
        let every = every()
            .new_tree(&mut runner)
            .expect("the strategy generates a message")
            .current();
        let mut right = Vec::new();
        every.message().encode_flat(&mut right);
        for _ in 0..40 {
            let mut changed = right.clone();
            // The header and the fixed part matter most.
            let most = [changed.len(), changed.len().min(300)][next(2)];
            let at = next(most);
            changed[at] = [changed[at] ^ 1 << next(8), next(256) as u8][next(2)];
            if next(4) == 0 {
                changed.truncate(next(changed.len()).max(16));
                let len = changed.len() as u32;
                changed[4..8].copy_from_slice(&len.to_le_bytes());
            }
            messages.push(changed);
        }
        messages.push(right);
    }
    messages
}

/// Sends all messages to a program and compares its results with those of Rust.
fn agrees(program: &Path) {
    let messages = messages();
    let mut input = Vec::new();
    for message in &messages {
        input.extend_from_slice(&(message.len() as u32).to_ne_bytes());
        input.extend_from_slice(message);
    }
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = child.stdin.take().expect("its stdin is a pipe");
    // The program replies while it reads, so another thread must write.
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().expect("the program ends");
    assert!(
        output.status.success(),
        "{}: {}",
        program.display(),
        output.status
    );
    writer
        .join()
        .expect("no panic")
        .expect("the program reads all input");

    let mut answers = &output.stdout[..];
    let mut take = |len: usize| {
        let (taken, rest) = answers.split_at(len);
        answers = rest;
        taken
    };
    let mut right = 0;
    for message in &messages {
        let ours = EveryType::decode_flat(message);
        let theirs = take(1) == [1];
        assert_eq!(theirs, ours.is_ok(), "{ours:?}\n{message:x?}");
        let Ok(ours) = ours else {
            continue;
        };
        right += 1;
        let len = u32::from_ne_bytes(take(4).try_into().expect("4 bytes"));
        let again =
            EveryType::decode_flat(take(len as usize)).expect("the rebuilt message decodes");
        assert_eq!(again, ours);
    }
    assert!(answers.is_empty(), "the program wrote extra bytes");
    assert!(
        (200..messages.len() - 200).contains(&right),
        "{right} valid messages"
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn c_accepts_and_rebuilds_same_messages_as_rust() {
    let test = "c_accepts_and_rebuilds_same_messages_as_rust";
    if let Some(program) = compiled(test, "every.c", C) {
        agrees(&program);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn cpp_accepts_and_rebuilds_same_messages_as_rust() {
    let test = "cpp_accepts_and_rebuilds_same_messages_as_rust";
    if let Some(program) = compiled(test, "every.cpp", CPP) {
        agrees(&program);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn libfloe_headers_compile_and_work() {
    for (name, source, compiler) in [
        ("c_header", "headers.c", C),
        ("c_header_in_cpp", "headers.c", C_AS_CPP),
        ("cpp_header", "headers.cpp", CPP),
    ] {
        if let Some(program) = compiled(name, source, compiler) {
            let status = Command::new(&program).status().expect("the program starts");
            assert!(status.success(), "{name}: {status}");
        }
    }
}
