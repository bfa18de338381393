//! Tests of the grammar. The tests of floe-cli compare it with Nix.

use proptest::prelude::*;

use super::*;

fn set<'a>(name: &'a str, value: &str) -> Statement<'a> {
    Statement::Set {
        name: name.as_bytes(),
        value: value.as_bytes().to_vec(),
    }
}

fn include(path: &str, may_be_missing: bool) -> Statement<'_> {
    Statement::Include {
        path: path.as_bytes(),
        may_be_missing,
    }
}

fn statements(text: &str) -> Vec<Statement<'_>> {
    let lines = parse(text.as_bytes()).unwrap();
    lines.into_iter().map(|line| line.statement).collect()
}

fn fault(text: &str) -> (usize, LineFault) {
    match parse(text.as_bytes()) {
        Err(NixConfError::Line { number, fault }) => (number, fault),
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[test]
fn statements_have_line_numbers() {
    let lines = parse(b"# first\n\nhttp2 = false # off\n \t\r\n#\n!include more.conf").unwrap();
    assert_eq!(
        lines,
        [
            Line {
                number: 3,
                statement: set("http2", "false")
            },
            Line {
                number: 6,
                statement: include("more.conf", true)
            },
        ]
    );
    assert_eq!(parse(b""), Ok(vec![]));
}

#[test]
fn values_are_joined_words_without_comments() {
    assert_eq!(statements("a =  b\t c\r"), [set("a", "b c")]);
    assert_eq!(statements("a = b#c d"), [set("a", "b")]);
    assert_eq!(statements("a ="), [set("a", "")]);
    assert_eq!(statements("a = #b"), [set("a", "")]);
    assert_eq!(statements("a = = b=c"), [set("a", "= b=c")]);
    assert_eq!(statements("a = b\x0bc"), [set("a", "b\x0bc")]);
}

#[test]
fn include_takes_exactly_one_word() {
    assert_eq!(statements("include /a/b"), [include("/a/b", false)]);
    assert_eq!(statements("include ="), [include("=", false)]);
    for (text, directive, words) in [
        ("include", "include", 0),
        ("x = y\n!include", "!include", 0),
        ("include a b", "include", 2),
        ("include = a", "include", 2),
    ] {
        let found = fault(text);
        assert_eq!(found.0, text.lines().count());
        assert_eq!(found.1, LineFault::NotOnePath { directive, words });
    }
    assert_eq!(statements("includes = a"), [set("includes", "a")]);
}

#[test]
fn missing_or_adjacent_equals_sign_is_error() {
    for text in ["http2", "http2=false", "http2 false", "http2 =false"] {
        let text = format!("a = b\n\n{text} # = x\nc = d");
        assert_eq!(fault(&text), (3, LineFault::NoEquals("http2".into())));
    }
}

#[test]
fn error_contains_no_value() {
    let error = parse(b"access-tokens=example.org=hunter2").unwrap_err();
    assert!(error.to_string().contains("line 1: \"access-tokens\""));
    assert!(!error.to_string().contains("hunter2"));
    let long = "x".repeat(PRINTED_CHARS_MAX + 1);
    assert!(
        !parse(long.as_bytes())
            .unwrap_err()
            .to_string()
            .contains(&long)
    );
}

#[test]
fn long_text_is_error() {
    let long = vec![b'#'; NIX_CONF_LEN_MAX + 1];
    assert_eq!(parse(&long), Err(NixConfError::TooLong(long.len())));
    assert_eq!(parse(&long[1..]), Ok(vec![]));
}

proptest! {
    #[test]
    fn parse_reverses_print(
        name in "[a-z=-]{1,8}",
        words in prop::collection::vec("[!-\"$-~äß]{1,6}", 0..4),
        path in "[!-\"$-~]{1,9}",
        may_be_missing: bool,
    ) {
        prop_assume!(name != INCLUDE);
        let directive = if may_be_missing { INCLUDE_OPTIONAL } else { INCLUDE };
        let value = words.join(" ");
        let text = format!("{name} = {value}\n{directive} {path}").into_bytes();
        let (set, include) = (set(&name, &value), include(&path, may_be_missing));
        let lines = parse(&text).unwrap();
        prop_assert_eq!(lines.len(), 2);
        prop_assert_eq!((lines[0].number, &lines[0].statement), (1, &set));
        prop_assert_eq!((lines[1].number, &lines[1].statement), (2, &include));
    }

    #[test]
    fn parsing_any_bytes_does_not_panic(
        text in prop::collection::vec(prop::sample::select(&b" \t\n\r#=!inclde\0\xff"[..]), 0..64),
    ) {
        let _: Result<Vec<Line<'_>>, NixConfError> = parse(&text);
    }
}
