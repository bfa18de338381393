//! The ABI of each version, as `abi/MAJOR.MINOR.txt` has it: the declarations of `floe.h`, and the
//! numbers of both headers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::{run, scratch};

use crate::languages::compiler;

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the declarations of a header without comments, one a line, in the order of the header.
fn declarations(preprocessed: &str, header: &Path) -> String {
    let name = header.to_str().unwrap();
    let mut text = String::new();
    let mut is_own = false;
    for line in preprocessed.lines() {
        // `# LINE "FILE"` tells where the lines after it come from.
        match line.strip_prefix("# ") {
            Some(marker) => is_own = marker.contains(name),
            None if is_own => text += &format!("{line}\n"),
            None => {}
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    // A declaration ends outside of braces.
    let mut depth = 0_usize;
    let mut lines = String::new();
    for character in words.join(" ").chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        lines.push(character);
        if character == ';' && depth == 0 {
            lines.push('\n');
        }
    }
    let lines = lines.lines().map(|line| format!("{}\n", line.trim()));
    lines.collect()
}

/// Returns the current ABI, and its version.
fn abi() -> Option<(String, String)> {
    let scratch = scratch();
    let source = scratch.join("abi.c");
    fs::write(
        &source,
        "#include \"floe.h\"\n#include \"floe_messages.h\"\n",
    )
    .unwrap();
    let header = crate_dir().join("include/floe.h");
    let preprocessed = run(compiler("cc")?.arg("-E").arg(&source)).expect(0).stdout;
    let declarations = declarations(&preprocessed, &header);
    assert!(declarations.contains("floe_submit"), "{declarations}");
    let macros = run(compiler("cc")?.args(["-E", "-dM"]).arg(&source))
        .expect(0)
        .stdout;
    let numbers: BTreeSet<&str> = macros
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        // A macro without a value guards a header.
        .filter(|line| line.starts_with("FLOE_") && line.trim().contains(' '))
        .collect();
    assert!(numbers.len() > 5, "{numbers:?}");
    let version = floe::floe_abi_version();
    let version = format!("{}.{}", version >> 16, version & 0xffff);
    let numbers: Vec<&str> = numbers.into_iter().collect();
    Some((version, format!("{declarations}\n{}\n", numbers.join("\n"))))
}

fn file(version: &str) -> PathBuf {
    crate_dir().join(format!("abi/{version}.txt"))
}

/// A new version gets its file by `UPDATE_EXPECT=1`. An existing file never changes.
#[test]
fn abi_changes_only_with_its_version() {
    let Some((version, abi)) = abi() else { return };
    let file = file(&version);
    if !file.exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, &abi).unwrap();
    }
    let recorded = fs::read_to_string(&file);
    let recorded = recorded.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (old, new) = (lines(&recorded), lines(&abi));
    let gone: Vec<&String> = old.difference(&new).collect();
    let added: Vec<&String> = new.difference(&old).collect();
    assert!(
        abi == recorded,
        "the ABI differs from version {version}: raise FLOE_ABI_VERSION, and run this test with \
         UPDATE_EXPECT=1\ngone: {gone:#?}\nadded: {added:#?}"
    );
}

#[test]
fn changes_of_declarations_are_seen() {
    let header = Path::new("/include/floe.h");
    let text = |body: &str| {
        let other = "# 1 \"/usr/include/stdint.h\"\ntypedef int other;\n";
        declarations(
            &format!("{other}# 1 \"/include/floe.h\"\n{body}\n{other}"),
            header,
        )
    };
    let before = text("typedef struct a { int x;\n\n int y; } a;\nvoid f(void);");
    assert_eq!(
        before,
        "typedef struct a { int x; int y; } a;\nvoid f(void);\n"
    );
    assert_ne!(
        before,
        text("typedef struct a { int y; int x; } a;\nvoid f(void);")
    );
}
