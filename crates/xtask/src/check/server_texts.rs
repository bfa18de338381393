//! The rule that the text of a server reaches a message only through `plain_text`.

use super::code::Pattern::{self, Letters, Path};

/// The ways in which bytes of a server become text for a person.
pub(super) const PATTERNS: &[Pattern] = &[Path("String", "from_utf8_lossy"), Letters("unescape")];

pub(super) const WHY: &str = "the text of a server may have control characters and no end; pass it \
                              through plain_text of floe-transfer, and name the file in \
                              check/server_texts";

/// Whether the rule applies to a shipped file of a package.
pub(super) fn applies(package: &str, file: &str) -> bool {
    const PACKAGES: [&str; 3] = ["floe-cache", "floe-remote", "floe-wire"];
    let is_exempt = EXEMPT.iter().any(|(exempt, _)| *exempt == file);
    PACKAGES.contains(&package) && !is_exempt
}

/// Files that may make text of bytes, each with the reason.
const EXEMPT: &[(&str, &str)] = &[
    (
        "crates/floe-cache/src/request/error_document.rs",
        "it passes the code and the message through plain_text",
    ),
    (
        "crates/floe-cache/src/s3/deletion.rs",
        "it only compares the keys in a reply",
    ),
    (
        "crates/floe-cache/src/s3/list_page.rs",
        "it only checks the names in a reply",
    ),
    (
        "crates/floe-cache/src/request/redirect.rs",
        "a message shows only the parsed URL",
    ),
    (
        "crates/floe-cache/src/network/dns.rs",
        "it reads a file of this machine",
    ),
    (
        "crates/floe-remote/src/program_log.rs",
        "remote_log passes each line through plain_text",
    ),
    (
        "crates/floe-wire/src/input.rs",
        "floe-remote passes messages through plain_text",
    ),
    (
        "crates/floe-wire/src/error.rs",
        "it quotes a short beginning with escapes",
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::code::{lines_with, tokens, without_tests};
    use super::*;

    #[test]
    fn exempt_files_still_need_their_exemption() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, reason) in EXEMPT {
            let text = fs::read_to_string(root.join(file)).unwrap();
            let code = without_tests(&tokens(&text));
            let is_needed = |pattern: &&Pattern| !lines_with(&code, **pattern).is_empty();
            assert!(PATTERNS.iter().any(|it| is_needed(&it)), "{file}: {reason}");
        }
    }
}
