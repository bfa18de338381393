//! The library in C and C++: its header, its symbols, and whole programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe::{FloeCompletion, FloeEngineOptions, FloeRequest};
use floe_testkit::{corpus, nginx, nixes, run, scratch, skip};

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn bindings() -> PathBuf {
    crate_dir().join("../../bindings")
}

/// Returns the directory of the library, which is also the directory of this program.
fn library_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let dir = program.parent().unwrap().to_owned();
    assert!(
        dir.join("libfloe.so").exists(),
        "no libfloe.so in {}",
        dir.display()
    );
    dir
}

/// Returns a compiler. Without one, reports a skip and returns `None`.
pub(crate) fn compiler(name: &'static str) -> Option<Command> {
    let mut command = Command::new(name);
    if command.arg("--version").output().is_err() {
        skip(name, "not installed; run `cargo xtask test` as root");
        return None;
    }
    let mut command = Command::new(name);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    command.arg("-I").arg(crate_dir().join("include"));
    command.arg(if name == "cc" {
        "-std=c99"
    } else {
        "-std=c++20"
    });
    command.arg("-I").arg(bindings().join("cpp"));
    // Programs need the same flags as the library; see `cargo xtask sanitize`.
    let more = std::env::var("FLOE_TEST_CFLAGS").unwrap_or_default();
    command.args(more.split_whitespace());
    Some(command)
}

/// Returns the names of the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_dir().join("include/floe.h")).unwrap();
    let outside_comments: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let calls = outside_comments.match_indices('(').filter_map(|(at, _)| {
        let before = &outside_comments[..at];
        let begin = before.rfind(|c: char| !c.is_alphanumeric() && c != '_')? + 1;
        let name = &before[begin..];
        name.starts_with("floe_").then(|| name.to_owned())
    });
    calls.collect()
}

#[test]
fn library_exports_exactly_the_declared_functions() {
    let library = library_dir().join("libfloe.so");
    let mut nm = Command::new("nm");
    let Ok(output) = nm.args(["-D", "--defined-only"]).arg(library).output() else {
        return skip("nm", "not installed; run `cargo xtask test` as root");
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        // A build of the whole workspace has caches in buckets, whose checksums export functions.
        .filter(|name| !name.starts_with("crc_fast_"))
        .map(str::to_owned)
        .collect();
    assert!(exported.len() > 10, "{exported:?}");
    assert_eq!(exported, declared());
}

#[test]
fn header_structs_and_numbers_match_code() {
    let Some(mut cc) = compiler("cc") else { return };
    let scratch = scratch();
    let fields = |name: &str, fields: &[&str]| {
        let offsets = fields.iter().map(|field| {
            format!("printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));\n")
        });
        let size = format!("printf(\"{name} %zu\\n\", sizeof({name}));\n");
        size + &offsets.collect::<String>()
    };
    let numbers = [
        "FLOE_OK",
        "FLOE_INVALID",
        "FLOE_BUSY",
        "FLOE_CLOSED",
        "FLOE_BAD_HANDLE",
        "FLOE_WOULD_DEADLOCK",
        "FLOE_NO_MEMORY",
        "FLOE_SYSTEM",
        "FLOE_FORKED",
        "FLOE_INTERNAL",
        "FLOE_TIMED_OUT",
        "FLOE_CBOR",
        "FLOE_FLAT",
        "FLOE_WANTS_PROGRESS",
        "FLOE_HAS_DESCRIPTOR",
        "FLOE_ABI_VERSION",
    ];
    let numbers = numbers.map(|name| format!("printf(\"{name} %lld\\n\", (long long){name});\n"));
    let body = [
        fields("floe_engine_options", &OPTIONS),
        fields("floe_request", &REQUEST),
        fields("floe_completion", &COMPLETION),
        numbers.concat(),
    ];
    let program = format!(
        "#include <stdio.h>\n#include \"floe.h\"\nint main(void) {{\n{}return 0;\n}}\n",
        body.concat()
    );
    fs::write(scratch.join("sizes.c"), program).unwrap();
    run(cc
        .arg(scratch.join("sizes.c"))
        .arg("-o")
        .arg(scratch.join("sizes")))
    .expect(0);
    let found = run(&mut Command::new(scratch.join("sizes")))
        .expect(0)
        .stdout;
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found, expected());
}

const OPTIONS: [&str; 11] = [
    "struct_size",
    "callback",
    "context",
    "codec",
    "query_workers",
    "copy_workers",
    "per_thread",
    "in_flight",
    "payload_bytes",
    "progress_interval_ms",
    "slow_after_ms",
];
const REQUEST: [&str; 11] = [
    "struct_size",
    "method",
    "codec",
    "payload",
    "payload_len",
    "tag",
    "deadline_ms",
    "flags",
    "descriptor",
    "sink",
    "sink_context",
];
const COMPLETION: [&str; 10] = [
    "struct_size",
    "request",
    "tag",
    "kind",
    "method",
    "codec",
    "reserved",
    "payload",
    "payload_len",
    "capacity",
];

/// Returns the layout and numbers of the Rust code.
fn expected() -> Vec<String> {
    macro_rules! structure {
        ($lines:ident, $name:literal, $type:ty, $($field:ident)*) => {
            $lines.push(format!("{} {}", $name, size_of::<$type>()));
            $($lines.push(format!(
                "{}.{} {}", $name, stringify!($field), std::mem::offset_of!($type, $field)
            ));)*
        };
    }
    let mut lines = Vec::new();
    structure!(
        lines, "floe_engine_options", FloeEngineOptions,
        struct_size callback context codec query_workers copy_workers per_thread in_flight
        payload_bytes progress_interval_ms slow_after_ms
    );
    structure!(
        lines, "floe_request", FloeRequest,
        struct_size method codec payload payload_len tag deadline_ms flags descriptor sink
        sink_context
    );
    structure!(
        lines, "floe_completion", FloeCompletion,
        struct_size request tag kind method codec reserved payload payload_len capacity
    );
    use floe::Status;
    let statuses = [
        ("FLOE_OK", Status::Ok),
        ("FLOE_INVALID", Status::Invalid),
        ("FLOE_BUSY", Status::Busy),
        ("FLOE_CLOSED", Status::Closed),
        ("FLOE_BAD_HANDLE", Status::BadHandle),
        ("FLOE_WOULD_DEADLOCK", Status::WouldDeadlock),
        ("FLOE_NO_MEMORY", Status::NoMemory),
        ("FLOE_SYSTEM", Status::System),
        ("FLOE_FORKED", Status::Forked),
        ("FLOE_INTERNAL", Status::Internal),
        ("FLOE_TIMED_OUT", Status::TimedOut),
    ];
    lines.extend(statuses.map(|(name, status)| format!("{name} {}", status as i32)));
    let others = [
        ("FLOE_CBOR", floe_messages::Codec::Cbor as u32),
        ("FLOE_FLAT", floe_messages::Codec::Flat as u32),
        ("FLOE_WANTS_PROGRESS", floe::WANTS_PROGRESS),
        ("FLOE_HAS_DESCRIPTOR", floe::HAS_DESCRIPTOR),
        ("FLOE_ABI_VERSION", floe::floe_abi_version()),
    ];
    lines.extend(others.map(|(name, number)| format!("{name} {number}")));
    lines
}

/// Builds a program against the library, which is copied beside it.
pub(crate) fn build(mut compiler: Command, source: &Path, dir: &Path, is_static: bool) -> PathBuf {
    let program = dir.join("program");
    compiler.arg(source).arg("-o").arg(&program);
    let library = library_dir();
    if is_static {
        compiler
            .arg(library.join("libfloe.a"))
            .args(["-lpthread", "-ldl", "-lm"])
    } else {
        let rpath = format!("-Wl,-rpath,{}", dir.display());
        // The loader looks for the soname.
        fs::copy(library.join("libfloe.so"), dir.join("libfloe.so.1")).unwrap();
        compiler.arg(dir.join("libfloe.so.1")).arg(rpath)
    };
    run(&mut compiler).expect(0);
    program
}

/// Builds a program and installs a corpus with it, which Nix then verifies. Then installs without
/// the right key.
fn installs_with(compiler: Command, source: &Path, is_static: bool) {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let scratch = scratch();
    let program = build(compiler, source, scratch.path(), is_static);
    let url = format!("{}/cache-xz", server.url());
    let root = scratch.join("root");
    let install = |key: &str| {
        let mut command = Command::new(&program);
        run(command.arg(&url).arg(&root).args([key, &corpus.root]))
    };
    let ran = install(&corpus.key).expect(0);
    assert_eq!(ran.stdout, format!("{}\n", corpus.root));
    let count = corpus.paths.len();
    let progress = format!("\r{count} of {count} paths, ");
    ran.stderr_contains(&format!("{count} paths installed"))
        .stderr_contains(&progress);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
    fs::rename(&root, scratch.join("done")).unwrap();
    let other = "other-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let ran = install(other).expect(3).stderr_contains("signed by");
    let errors = ran.stderr.matches("cannot trust").count();
    assert_eq!(errors, 1, "{}", ran.stderr);
}

#[test]
fn c_example_installs_closure_valid_for_nix() {
    let Some(cc) = compiler("cc") else { return };
    installs_with(cc, &bindings().join("c/install.c"), false);
}

#[test]
fn c_example_works_with_static_library() {
    let Some(cc) = compiler("cc") else { return };
    installs_with(cc, &bindings().join("c/install.c"), true);
}

#[test]
fn cpp_example_installs_closure_valid_for_nix() {
    let Some(cpp) = compiler("c++") else { return };
    installs_with(cpp, &bindings().join("cpp/install.cpp"), false);
}

#[test]
fn cpp_layer_keeps_its_contract() {
    let Some(cpp) = compiler("c++") else { return };
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let program = build(
        cpp,
        &bindings().join("cpp/tests/contract.cpp"),
        scratch.path(),
        false,
    );
    let mut command = Command::new(program);
    let ran = run(command.arg(corpus.store()).arg(&corpus.root)).expect(0);
    assert_eq!(ran.stdout, "all checks passed\n");
}

#[test]
fn c_host_survives_out_of_memory() {
    if std::env::var_os("FLOE_TEST_CFLAGS").is_some() {
        return skip(
            "no_memory.c",
            "a sanitizer needs more address space than the limit",
        );
    }
    let Some(cc) = compiler("cc") else { return };
    let scratch = scratch();
    let source = bindings().join("c/tests/no_memory.c");
    let program = build(cc, &source, scratch.path(), false);
    let ran = run(&mut Command::new(program)).expect(0);
    assert_eq!(ran.stdout, "all checks passed\n");
}

#[test]
fn c_host_survives_broken_pipes() {
    let Some(cc) = compiler("cc") else { return };
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let source = bindings().join("c/tests/broken_pipe.c");
    let program = build(cc, &source, scratch.path(), false);
    let libc = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    let mut command = Command::new(program);
    command.arg(corpus.store()).arg(libc.unwrap());
    let ran = run(command.arg(scratch.join("socket"))).expect(0);
    assert_eq!(ran.stdout, "all checks passed\n");
}

#[test]
fn pkg_config_flags_build_a_program() {
    let mut ask = Command::new("pkg-config");
    // The library of this build, not of a release build.
    let library = format!("--define-variable=libdir={}", library_dir().display());
    let Ok(output) = ask
        .args([&library, "--cflags", "--libs", "floe"])
        .env("PKG_CONFIG_PATH", crate_dir())
        .output()
    else {
        return skip(
            "pkg-config",
            "not installed; run `cargo xtask test` as root",
        );
    };
    assert!(output.status.success(), "{output:?}");
    let flags = String::from_utf8(output.stdout).unwrap();
    let scratch = scratch();
    let program = scratch.join("program");
    let source = bindings().join("cpp/install.cpp");
    let mut compiler = Command::new("c++");
    compiler
        .args(["-std=c++20", "-o"])
        .arg(&program)
        .arg(source);
    let more = std::env::var("FLOE_TEST_CFLAGS").unwrap_or_default();
    compiler.args(more.split_whitespace());
    run(compiler.args(flags.split_whitespace())).expect(0);
    fs::copy(
        library_dir().join("libfloe.so"),
        scratch.join("libfloe.so.1"),
    )
    .unwrap();
    let mut program = Command::new(program);
    // Without arguments the program prints its usage, which shows that it has found its library.
    let ran = run(program.env("LD_LIBRARY_PATH", scratch.path()));
    assert!(ran.stderr.contains("install CACHE"), "{}", ran.stderr);

    let mut version = Command::new("pkg-config");
    version.args(["--modversion", "floe"]);
    let ran = run(version.env("PKG_CONFIG_PATH", crate_dir())).expect(0);
    assert_eq!(ran.stdout.trim(), env!("CARGO_PKG_VERSION"));
}
