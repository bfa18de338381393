//! Rules about Rust sources: which names a crate may use, and the shape of a file.
//!
//! clippy and rustc check printing, exiting, unsafe code and unfinished code; see the lints of the
//! workspace.

use super::Fault;
use super::code::Pattern::{Attribute, Letters, Path};
use super::code::{Pattern, lines_with, tokens, without_tests};
use super::{layers, plain_threads, server_texts, shared_directories, written_files};
use crate::generate::GENERATED;

/// Crates of grammars and state machines alone.
const PURE: &[&str] = &["floe-format", "floe-messages", "floe-wire"];

/// The crates that may read the environment. The command line reads it and passes options to all
/// others.
const READERS_OF_ENVIRONMENT: &[&str] = &["floe-bench", "floe-cli", "floe-ffi"];

fn is_library(package: &str) -> bool {
    layers::all().any(|name| name == package) && !READERS_OF_ENVIRONMENT.contains(&package)
}

/// A longer file has more than one subject.
const LINES_MAX: usize = 500;
/// The width of rustfmt, which breaks neither comments nor strings.
const COLUMNS_MAX: usize = 100;

/// File names that do not describe a content and so collect everything.
const NAMELESS: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "types", "misc",
];

/// The place of a file in the repository.
struct Place<'a> {
    file: &'a str,
    /// The directory below `crates/`; empty for other files.
    package: &'a str,
    /// Below `src/`, and not a test.
    is_shipped: bool,
}

impl Place<'_> {
    fn of(file: &str) -> Place<'_> {
        let (package, inner) = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
            .unwrap_or(("", file));
        let is_test = inner
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs");
        Place {
            file,
            package,
            is_shipped: inner.starts_with("src/") && !is_test,
        }
    }
}

/// Names that some files must not use.
struct Ban {
    rule: &'static str,
    applies: fn(&Place<'_>) -> bool,
    patterns: &'static [Pattern],
    why: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        rule: "pure",
        applies: |place| PURE.contains(&place.package) && place.is_shipped,
        patterns: &[
            Path("std", "fs"),
            Path("std", "net"),
            Path("std", "thread"),
            Path("std", "env"),
            Path("std", "process"),
            Path("time", "SystemTime"),
            Path("time", "Instant"),
        ],
        why: "formats and messages use no file, socket, thread, clock or environment",
    },
    Ban {
        rule: "environment",
        applies: |place| is_library(place.package) && place.is_shipped,
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
        why: "libraries do not read the environment; the command line passes options",
    },
    Ban {
        rule: "hash",
        applies: |place| place.package != "floe-hash",
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
        rule: "mmap",
        applies: |_| true,
        patterns: &[Letters("mmap")],
        why: "store files are never mapped: the kernel patches probes into mappings",
    },
    Ban {
        rule: "close",
        applies: |place| place.is_shipped && written_files::applies(place.package, place.file),
        patterns: written_files::PATTERNS,
        why: written_files::WHY,
    },
    Ban {
        rule: "directories",
        applies: |place| place.is_shipped && shared_directories::applies(place.file),
        patterns: shared_directories::PATTERNS,
        why: shared_directories::WHY,
    },
    Ban {
        rule: "threads",
        applies: |place| place.is_shipped && plain_threads::applies(place.package),
        patterns: plain_threads::PATTERNS,
        why: plain_threads::WHY,
    },
    Ban {
        rule: "texts",
        applies: |place| place.is_shipped && server_texts::applies(place.package, place.file),
        patterns: server_texts::PATTERNS,
        why: server_texts::WHY,
    },
    Ban {
        rule: "listing",
        applies: |place| {
            place.is_shipped && written_files::applies_to_listings(place.package, place.file)
        },
        patterns: written_files::LISTINGS,
        why: written_files::WHY_LISTINGS,
    },
    Ban {
        rule: "tests",
        applies: |_| true,
        patterns: &[Attribute("ignore"), Attribute("should_panic")],
        why: "every test runs and asserts its own result",
    },
];

/// Returns the faults of one Rust source.
pub(super) fn faults(file: &str, text: &str) -> Vec<Fault> {
    let mut faults = shape(file, text);
    let place = Place::of(file);
    let all = tokens(text);
    let shipped = without_tests(&all);
    for ban in BANS.iter().filter(|ban| (ban.applies)(&place)) {
        // A rule for shipped code does not apply to tests; every other rule does.
        let for_shipped_only = !(ban.applies)(&Place {
            is_shipped: false,
            ..place
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

/// Checks length, width, first line and name of a file. A generated file may be long and wide; its
/// first line says that it is generated.
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
            "a source opens with a `//!` sentence about its purpose",
        );
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && generated.is_none() {
        fault(
            lines,
            "length",
            &format!("{lines} lines; divide it into files of at most {LINES_MAX}"),
        );
    }
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        // An expected message stands on one line as the user sees it.
        let is_literal =
            line.trim_start().starts_with(['"', 'r']) && line.trim_end().ends_with(['"', '#']);
        if columns > COLUMNS_MAX && generated.is_none() && !is_literal {
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
            &format!("`{name}` describes no content; name the file by its content"),
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
    fn floe_format_uses_no_system_interface() {
        for code in [
            "use std::fs::File;",
            "use std::{io, net};",
            "std::thread::park();",
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
    fn libraries_do_not_read_the_environment() {
        for code in [
            "std::env::var(\"HOME\");",
            "use std::env; fn f() { env::var_os(NAME); }",
        ] {
            assert_eq!(rules(STORE, code), ["environment"], "{code}");
            assert_eq!(rules(CLI, code), [""; 0], "{code}");
            let test = format!("#[cfg(test)]\nmod tests {{ fn f() {{ {code} }} }}");
            assert_eq!(rules(STORE, &test), [""; 0], "{code}");
        }
        assert_eq!(rules(STORE, "fn f() { env!(\"X\"); }"), [""; 0]);
    }

    #[test]
    fn hash_libraries_belong_to_floe_hash() {
        for code in ["use ring::{digest, signature};", "sha2::Sha256::digest(b)"] {
            assert_eq!(rules(STORE, code), ["hash"], "{code}");
            assert_eq!(rules(HASH, code), [""; 0], "{code}");
        }
        assert_eq!(rules(STORE, "use ring::signature;"), [""; 0]);
    }

    #[test]
    fn mapping_is_forbidden_everywhere() {
        assert_eq!(rules(HASH, "Mmap::map(f)"), ["mmap"]);
        assert_eq!(rules(CLI, "\"PRAGMA mmap_size\""), [""; 0]);
    }

    #[test]
    fn files_are_created_only_as_written_files() {
        for code in [
            "File::create(path)",
            "std::fs::File::create_new(path)",
            "use std::fs::OpenOptions;",
            "File::options().append(true)",
            "fs::write(path, text)",
            "use std::fs::{self, copy};",
            "openat(CWD, path, OFlags::WRONLY | flags, mode)",
            "Builder::new().prefix(a).tempfile_in(place)",
            "tempfile::NamedTempFile::new()",
        ] {
            assert_eq!(rules(CLI, code), ["close"], "{code}");
            let test = format!("#[cfg(test)]\nmod tests {{ fn f() {{ {code} }} }}");
            assert_eq!(rules(CLI, &test), [""; 0], "{code}");
            for file in [
                "crates/floe-cli/tests/it/main.rs",
                "crates/floe-testkit/src/lib.rs",
                "crates/floe-store/src/disk/written_file.rs",
            ] {
                assert_eq!(rules(file, code), [""; 0], "{file}: {code}");
            }
        }
        for code in [
            "WrittenFile::create(path, mode)",
            "File::open(path)",
            "fs::read(path)",
            "use tempfile::TempPath;",
            "tempfile::tempdir()",
            "openat(CWD, path, OFlags::RDONLY, mode)",
        ] {
            assert_eq!(rules(CLI, code), [""; 0], "{code}");
        }
    }

    #[test]
    fn shared_directories_are_not_used_by_path() {
        let profile = "crates/floe-store/src/roots/profile/generations.rs";
        for code in [
            "fs::remove_file(path)",
            "std::fs::rename(a, b)",
            "use std::fs::{self, File};\nFile::open(path)",
            "std::os::unix::fs::symlink(a, b)",
            "openat(CWD, path, OFlags::PATH, mode)",
        ] {
            assert_eq!(rules(profile, code), ["directories"], "{code}");
            assert_eq!(
                rules("crates/floe-cli/src/links.rs", code),
                [""; 0],
                "{code}"
            );
        }
        for code in [
            "fs::read_link(path)",
            "entry.remove()",
            "fs::metadata(path)",
        ] {
            assert_eq!(rules(profile, code), [""; 0], "{code}");
        }
    }

    #[test]
    fn listing_of_a_store_does_not_use_the_standard_library() {
        let store = "crates/floe-store/src/lib.rs";
        for code in ["fs::read_dir(path)", "std::fs::remove_dir_all(path)"] {
            assert_eq!(rules(store, code), ["listing"], "{code}");
            assert_eq!(rules(CLI, code), [""; 0], "{code}");
        }
    }

    #[test]
    fn tests_are_neither_ignored_nor_expected_to_panic() {
        for code in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "#[should_panic(expected = \"x\")]",
        ] {
            let test = format!("#[cfg(test)] mod tests {{ #[test] {code} fn f() {{}} }}");
            assert_eq!(rules(CLI, &test), ["tests"], "{code}");
        }
        let code = "fn ignore() { let should_panic = 1; }";
        assert_eq!(rules(CLI, code), [""; 0]);
    }

    #[test]
    fn file_needs_a_first_sentence_and_a_name() {
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
    fn generated_file_may_be_long_and_wide() {
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
    fn lines_and_files_have_a_limit() {
        assert_eq!(rules(CLI, &format!("// {}", "é".repeat(97))), [""; 0]);
        assert_eq!(rules(CLI, &format!("// {}", "é".repeat(98))), ["width"]);
        let literal = format!("    \"{}\"", "é".repeat(98));
        assert_eq!(rules(CLI, &literal), [""; 0]);
        assert_eq!(rules(CLI, &"\n".repeat(499)), [""; 0]);
        assert_eq!(rules(CLI, &"\n".repeat(500)), ["length"]);
    }
}
