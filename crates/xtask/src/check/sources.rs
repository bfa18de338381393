//! Rules about Rust sources: what a room may name, and what no file may hold.

use super::Fault;
use super::code::Pattern::{Attribute, Letters, Macro, Path, Word};
use super::code::{Pattern, lines_with, tokens, without_tests};
use crate::generate::GENERATED;

/// Code that others call. It gives back values and errors; the doors print, exit and read the
/// environment.
const LIBRARIES: &[&str] = &[
    "floe-format",
    "floe-hash",
    "floe-queue",
    "floe-messages",
    "floe-store",
    "floe-engine",
    "floe-server",
    "floe-config",
];

/// The rooms of SIMD, of a queue that two threads use without a lock, and of the C boundary.
const UNSAFE_ROOMS: &[&str] = &["floe-ffi", "floe-hash", "floe-queue", "floe-messages"];

/// Longer files are two files.
const LINES_MAX: usize = 500;
/// rustfmt's width; it does not break comments and strings, so we look.
const COLUMNS_MAX: usize = 100;

/// Names that say nothing of what a file holds, and so collect everything.
const NAMELESS: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "types", "misc",
];

/// A file, seen from the rules: whose it is and whether a library's callers can reach it.
struct Place<'a> {
    /// The directory under `crates/`, or nothing for what lies elsewhere.
    room: &'a str,
    /// Under `src/`, and not a test.
    shipped: bool,
}

impl Place<'_> {
    fn of(file: &str) -> Place<'_> {
        let (room, inner) = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
            .unwrap_or(("", file));
        let test = inner
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs");
        Place {
            room,
            shipped: inner.starts_with("src/") && !test,
        }
    }
}

/// Something that must not be named in some places.
struct Ban {
    rule: &'static str,
    applies: fn(&Place<'_>) -> bool,
    patterns: &'static [Pattern],
    why: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        rule: "pure",
        applies: |place| matches!(place.room, "floe-format" | "floe-messages") && place.shipped,
        patterns: &[
            Path("std", "fs"),
            Path("std", "net"),
            Path("std", "thread"),
            Path("std", "env"),
            Path("std", "process"),
            Path("time", "SystemTime"),
            Path("time", "Instant"),
        ],
        why: "formats and messages know no file, socket, thread, clock or environment",
    },
    Ban {
        rule: "silent",
        applies: |place| LIBRARIES.contains(&place.room) && place.shipped,
        patterns: &[
            Macro("println"),
            Macro("eprintln"),
            Macro("print"),
            Macro("eprint"),
        ],
        why: "libraries do not print; give the value or the error to the caller",
    },
    Ban {
        rule: "exit",
        applies: |place| LIBRARIES.contains(&place.room) && place.shipped,
        patterns: &[Path("process", "exit"), Path("process", "abort")],
        why: "libraries do not end the process",
    },
    Ban {
        rule: "environment",
        applies: |place| LIBRARIES.contains(&place.room) && place.shipped,
        patterns: &[
            Path("env", "var"),
            Path("env", "var_os"),
            Path("env", "vars"),
            Path("env", "vars_os"),
            Path("env", "args"),
            Path("env", "args_os"),
            Path("env", "home_dir"),
            Path("env", "temp_dir"),
        ],
        why: "libraries do not read the environment; the doors pass options in",
    },
    Ban {
        rule: "hash",
        applies: |place| place.room != "floe-hash",
        patterns: &[
            Path("ring", "digest"),
            Path("sha2", "Digest"),
            Path("sha2", "Sha256"),
            Path("sha2", "Sha512"),
            Path("blake3", "Hasher"),
        ],
        why: "only floe-hash names a hash library",
    },
    Ban {
        rule: "layers",
        applies: |place| place.room == "floe-server",
        patterns: &[Word("floe_engine")],
        why: "floe-server never imports floe-engine",
    },
    Ban {
        rule: "mmap",
        applies: |_| true,
        patterns: &[Letters("mmap")],
        why: "store files are never mapped: the kernel patches probes into mappings",
    },
    Ban {
        rule: "unsafe",
        applies: |place| !UNSAFE_ROOMS.contains(&place.room),
        patterns: &[Word("unsafe")],
        why: "only floe-ffi, floe-hash, floe-queue and floe-messages may hold unsafe code",
    },
    Ban {
        rule: "unfinished",
        applies: |_| true,
        patterns: &[Macro("todo"), Macro("unimplemented"), Macro("dbg")],
        why: "what is committed is finished",
    },
    Ban {
        rule: "tests",
        applies: |_| true,
        patterns: &[Attribute("ignore"), Attribute("should_panic")],
        why: "a test runs, and says itself what it expects",
    },
];

/// Everything that is wrong with one Rust source.
pub(super) fn faults(file: &str, text: &str) -> Vec<Fault> {
    let mut faults = shape(file, text);
    let place = Place::of(file);
    let all = tokens(text);
    let shipped = without_tests(&all);
    for ban in BANS.iter().filter(|ban| (ban.applies)(&place)) {
        // A rule for shipped code leaves the tests alone; every other rule is for them too.
        let for_shipped_only = !(ban.applies)(&Place {
            room: place.room,
            shipped: false,
        });
        let code = if for_shipped_only { &shipped } else { &all };
        for pattern in ban.patterns {
            for line in lines_with(code, *pattern) {
                faults.push(Fault::new(file, line, ban.rule, ban.why));
            }
        }
    }
    faults
}

/// Rules about a file as text.
///
/// What is generated may be long and wide, and says first that it is generated.
fn shape(file: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let generated = text
        .strip_prefix("// ")
        .filter(|line| line.starts_with(GENERATED));
    let opening = generated.and_then(|line| line.split_once('\n'));
    let opening = opening.map_or(text, |(_, rest)| rest);
    let mut fault = |line, rule, why: &str| faults.push(Fault::new(file, line, rule, why));

    if !opening.trim_start().starts_with("//!") {
        fault(
            1,
            "opening",
            "a source opens with a `//!` sentence on what it is for",
        );
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && generated.is_none() {
        fault(
            lines,
            "length",
            &format!("{lines} lines; at most {LINES_MAX}, else divide it"),
        );
    }
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && generated.is_none() {
            fault(
                number + 1,
                "width",
                &format!("{columns} columns; at most {COLUMNS_MAX}"),
            );
        }
    }
    let nameless = file
        .split('/')
        .find(|part| NAMELESS.contains(&part.strip_suffix(".rs").unwrap_or(part)));
    if let Some(name) = nameless {
        fault(
            1,
            "name",
            &format!("`{name}` says nothing; name what is in it"),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, code: &str) -> Vec<&'static str> {
        faults(file, &format!("//! A file.\n{code}"))
            .into_iter()
            .map(|fault| fault.rule)
            .collect()
    }

    const FORMAT: &str = "crates/floe-format/src/nar.rs";
    const HASH: &str = "crates/floe-hash/src/lib.rs";
    const STORE: &str = "crates/floe-store/src/lib.rs";
    const CLI: &str = "crates/floe-cli/src/main.rs";

    #[test]
    fn floe_format_names_nothing_of_the_outside_world() {
        for code in [
            "use std::fs::File;",
            "use std::{io, net};",
            "std::thread::spawn(f);",
            "std::env::current_dir()",
            "use std::time::{Duration, Instant};",
            "std::time::SystemTime::now()",
        ] {
            assert_eq!(rules(FORMAT, code), ["pure"], "{code}");
            assert_eq!(rules(CLI, code), [""; 0], "{code}");
        }
        assert_eq!(
            rules(FORMAT, "use std::time::Duration; // std::fs"),
            [""; 0]
        );
        assert_eq!(
            rules(FORMAT, "#[cfg(test)] mod tests { use std::fs; }"),
            [""; 0]
        );
        assert_eq!(
            rules("crates/floe-format/tests/it/main.rs", "use std::fs;"),
            [""; 0]
        );
        assert_eq!(
            rules("crates/floe-format/src/nar/tests.rs", "use std::fs;"),
            [""; 0]
        );
    }

    #[test]
    fn libraries_neither_print_nor_exit_nor_read_the_environment() {
        for (code, rule) in [
            ("println!(\"x\");", "silent"),
            ("eprint!(\"x\");", "silent"),
            ("std::process::exit(1);", "exit"),
            ("use std::process::{Command, exit};", "exit"),
            ("std::env::var(\"HOME\");", "environment"),
            ("use std::env; fn f() { env::var_os(NAME); }", "environment"),
        ] {
            assert_eq!(rules(STORE, code), [rule], "{code}");
            assert_eq!(rules(CLI, code), [""; 0], "{code}");
            let test = format!("#[cfg(test)]\nmod tests {{ fn f() {{ {code} }} }}");
            assert_eq!(rules(STORE, &test), [""; 0], "{code}");
        }
        assert_eq!(
            rules(STORE, "/// println!(\"{}\")\nfn f() { env!(\"X\"); }"),
            [""; 0]
        );
    }

    #[test]
    fn hash_libraries_are_named_in_one_place() {
        for code in ["use ring::{digest, signature};", "sha2::Sha256::digest(b)"] {
            assert_eq!(rules(STORE, code), ["hash"], "{code}");
            assert_eq!(rules(HASH, code), [""; 0], "{code}");
        }
        assert_eq!(rules(STORE, "use ring::signature;"), [""; 0]);
    }

    #[test]
    fn the_server_does_not_know_the_engine() {
        let code = "use floe_engine::copy;";
        assert_eq!(rules("crates/floe-server/src/lib.rs", code), ["layers"]);
        assert_eq!(rules(CLI, code), [""; 0]);
    }

    #[test]
    fn nothing_is_mapped_and_unsafe_has_its_rooms() {
        assert_eq!(rules(HASH, "Mmap::map(f)"), ["mmap"]);
        assert_eq!(rules(CLI, "\"PRAGMA mmap_size\""), [""; 0]);
        assert_eq!(rules(STORE, "unsafe { f() }"), ["unsafe"]);
        assert_eq!(
            rules("fuzz/fuzz_targets/nar.rs", "unsafe { f() }"),
            ["unsafe"]
        );
        assert_eq!(rules(STORE, "#![forbid(unsafe_code)]"), [""; 0]);
        assert_eq!(rules(HASH, "unsafe { f() }"), [""; 0]);
    }

    #[test]
    fn nothing_is_left_unfinished_or_untested_even_in_tests() {
        for code in ["todo!()", "unimplemented!()", "dbg!(x)"] {
            assert_eq!(rules(CLI, code), ["unfinished"], "{code}");
        }
        for code in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "#[should_panic(expected = \"x\")]",
        ] {
            let test = format!("#[cfg(test)] mod tests {{ #[test] {code} fn f() {{}} }}");
            assert_eq!(rules(CLI, &test), ["tests"], "{code}");
        }
        assert_eq!(
            rules(CLI, "fn ignore() { let should_panic = 1; todo(); }"),
            [""; 0]
        );
    }

    #[test]
    fn a_file_opens_with_a_sentence_and_has_a_name_of_its_own() {
        let opening = |text| -> Vec<_> { faults(CLI, text).iter().map(|f| f.rule).collect() };
        assert_eq!(opening("use std::io;\n"), ["opening"]);
        assert_eq!(opening("\n//! A file.\n"), [""; 0]);
        for name in [
            "utils.rs",
            "common/mod.rs",
            "misc.rs",
            "types.rs",
            "helpers.rs",
        ] {
            assert_eq!(
                rules(&format!("crates/floe-cli/src/{name}"), ""),
                ["name"],
                "{name}"
            );
        }
        assert_eq!(rules("crates/floe-cli/src/commonplace.rs", ""), [""; 0]);
    }

    #[test]
    fn a_generated_file_says_so_and_may_be_long() {
        let wide = "é".repeat(101);
        let code = |first: &str| {
            format!(
                "{first}a.messages.\n//! A file.\n// {wide}{}",
                "\n".repeat(600)
            )
        };
        let found =
            |first: &str| -> Vec<_> { faults(CLI, &code(first)).iter().map(|f| f.rule).collect() };
        assert_eq!(found(&format!("// {GENERATED}")), [""; 0]);
        assert_eq!(
            found("// Made by hand from "),
            ["opening", "length", "width"]
        );
    }

    #[test]
    fn lines_and_files_have_an_end() {
        assert_eq!(rules(CLI, &format!("// {}", "é".repeat(97))), [""; 0]);
        assert_eq!(rules(CLI, &format!("// {}", "é".repeat(98))), ["width"]);
        assert_eq!(rules(CLI, &"\n".repeat(499)), [""; 0]);
        assert_eq!(rules(CLI, &"\n".repeat(500)), ["length"]);
    }
}
