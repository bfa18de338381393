//! Words and names that must not return: see STYLE.md and the glossary of CONTRIBUTING.md.

use super::{Fault, code, prose};

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

/// Words that were replaced in the identifiers of the code below a folder, with their successors.
const RETIRED_WORDS: &[(&str, &str, &str)] = &[
    ("answer", "", "reply, or response for HTTP"),
    ("answers", "", "replies, or responses for HTTP"),
    ("answered", "", "replied"),
    ("belief", "", "trust check"),
    ("contestant", "", "variant"),
    ("crew", "", "hash_pool"),
    ("item", "crates/floe-copy/", "planned path"),
    ("items", "crates/floe-copy/", "planned paths"),
    ("leftovers", "", "recovered trees"),
    ("nar_info", "", "narinfo"),
    ("oracle", "", "reference tool"),
    ("patience", "", "lock_wait"),
    ("side_cache", "", "compressed_nar_cache"),
    ("surroundings", "", "environment"),
];

/// Phrases that no native speaker uses, with their successors.
const RETIRED_PHRASES: &[(&str, &str)] = &[
    (
        concat!("from which", " on"),
        "`above this many`, or `when … expires`",
    ),
    (
        concat!("the be", "gin of"),
        "`the beginning of`, or `the prefix of`",
    ),
];

/// Names of other libraries: an associated type, and a method of hickory-proto.
const FOREIGN: &[(&str, &str)] = &[
    ("::", "Item"),
    ("<", "Item"),
    ("type", "Item"),
    (".", "answers"),
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
        let text = paragraph.text.to_lowercase();
        for (phrase, successor) in RETIRED_PHRASES.iter().filter(|it| text.contains(it.0)) {
            let why = format!("`{phrase}` is not English; use {successor}");
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
    if file.ends_with(".rs") && file.contains("/src/") {
        faults.extend(retired_words(file, text));
    }
    faults
}

/// Finds retired words inside the identifiers of a source file.
fn retired_words(file: &str, text: &str) -> Vec<Fault> {
    let tokens = code::tokens(text);
    let before = std::iter::once("").chain(tokens.iter().map(|token| token.text));
    let own = before
        .zip(&tokens)
        .filter(|(before, token)| !FOREIGN.contains(&(*before, token.text)));
    let pairs = own.flat_map(|(_, token)| RETIRED_WORDS.iter().map(move |word| (token, word)));
    let found = pairs.filter(|(token, (word, folder, _))| {
        file.starts_with(folder) && contains_word(token.text, word)
    });
    let fault = |(token, (word, _, successor)): (&code::Piece<'_>, &(&str, &str, &str))| {
        let why = format!("`{word}` in `{}` is retired; use {successor}", token.text);
        Fault::new(file, token.line, "words", &why)
    };
    found.map(fault).collect()
}

/// Whether an identifier in snake case or camel case contains a word, or several joined by `_`.
fn contains_word(identifier: &str, word: &str) -> bool {
    let mut snake = String::from("_");
    for letter in identifier.replace("NarInfo", "Narinfo").chars() {
        if letter.is_uppercase() && !snake.ends_with('_') && identifier.contains(char::is_lowercase)
        {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake.push('_');
    snake.contains(&format!("_{word}_"))
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
    fn retired_words_are_faults_inside_identifiers() {
        for text in [
            "let late_answer = 1;",
            "enum Answer {}",
            "struct LateAnswer;",
            "const ANSWER_MAX: u8 = 1;",
            "fn nar_info() {}",
            "use side_cache;",
            "let answers = 1;",
        ] {
            assert_eq!(found("crates/a/src/b.rs", text).len(), 1, "{text}");
        }
        for text in [
            "// The answer is \"answer\".",
            "let text = \"answer\";",
            "struct CachedNarInfo;",
            "type Item = u8;",
            "let narinfo = message.answers();",
            "let items = 1;",
        ] {
            assert_eq!(found("crates/a/src/b.rs", text), [""; 0], "{text}");
        }
        let items = "let items = 1;";
        assert_eq!(found("crates/floe-copy/src/b.rs", items).len(), 1);
    }

    #[test]
    fn retired_phrases_are_faults() {
        for phrase in RETIRED_PHRASES.iter().map(|it| it.0) {
            assert_eq!(found("a.md", &format!("It is {phrase} it.")).len(), 1);
            assert_eq!(found("a.rs", &format!("// {phrase} it\n")).len(), 1);
        }
        assert_eq!(
            found("a.md", "at the beginning of it, from then on"),
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
