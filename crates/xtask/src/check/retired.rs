//! Words and names that must not return: see STYLE.md and the glossary of CONTRIBUTING.md.

use super::{Fault, prose};

/// Names that were replaced, as whole identifiers or options. Each has its successor.
const RETIRED_NAMES: &[(&str, &str)] = &[
    (
        "crates/floe-engine",
        "floe-transfer, floe-cache or floe-copy",
    ),
    ("floe-ingress", "floe-queue"),
    ("--side-cache", "--compressed-cache"),
    ("FLOE_STALE", "FLOE_BAD_HANDLE"),
    ("MoveRequest", "CopyRequest"),
    ("MoveReply", "CopyReply"),
    ("Mover", "ClosureCopy"),
    ("Surroundings", "Environment"),
    ("Patience", "LockWait"),
    ("NarCheck", "NarVerifier"),
    ("OtherStoreDir", "StoreDirMismatch"),
    ("FalseContentAddress", "ContentAddressMismatch"),
    ("InTheWay", "PathObstructed"),
    ("RootLink", "IndirectGcRoot"),
    ("SideCopies", "CompressedNarCache"),
    ("Contestant", "Variant"),
    ("takenPaths", "reusedPaths"),
    ("takenNarBytes", "reusedNarBytes"),
    ("waitingFor", "waitingForDatabase"),
];

/// Checks the prose and the names of one file.
pub(super) fn faults(file: &str, text: &str) -> Vec<Fault> {
    if !prose::is_judged(file) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for paragraph in prose::paragraphs(file, text) {
        let pronouns = prose::pronouns(&paragraph.text);
        for (pronoun, _) in pronouns.into_iter().filter(|(_, count)| *count > 0) {
            let why = format!("`{pronoun}` stands for an actor; name it");
            faults.push(Fault::new(file, paragraph.line, "words", &why));
        }
        for sentence in prose::relative_openings(&paragraph.text) {
            let begin: String = sentence.chars().take(40).collect();
            let why = format!("the sentence opens with a relative clause: {begin}");
            faults.push(Fault::new(file, paragraph.line, "words", &why));
        }
    }
    for (number, line) in text.lines().enumerate() {
        for (name, successor) in RETIRED_NAMES {
            if contains_name(line, name) {
                let why = format!("`{name}` is retired; use {successor}");
                faults.push(Fault::new(file, number + 1, "words", &why));
            }
        }
    }
    faults
}

/// Whether a line contains a name that is not a part of a longer one.
fn contains_name(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let faults = faults(file, text);
        faults.into_iter().map(|fault| fault.why).collect()
    }

    #[test]
    fn retired_names_are_faults_only_as_whole_names() {
        assert_eq!(found("a.rs", "struct Mover;").len(), 1);
        assert_eq!(found("a.md", "see crates/floe-engine/copy").len(), 1);
        for text in [
            "struct Movers;",
            "struct ReMover;",
            "fn floe_engine_open() {}",
        ] {
            assert_eq!(found("a.rs", text), [""; 0], "{text}");
        }
        assert_eq!(
            found("CHANGELOG.md", "`Mover` is now `ClosureCopy`"),
            [""; 0]
        );
    }

    #[test]
    fn pronouns_and_relative_openings_are_faults() {
        assert_eq!(found("a.rs", "// Nobody reads this.").len(), 1);
        assert_eq!(found("a.md", "What is kept is old.").len(), 1);
        assert_eq!(found("a.md", "What is kept?"), [""; 0]);
        assert_eq!(found("a.rs", "// The worker reads this."), [""; 0]);
    }
}
