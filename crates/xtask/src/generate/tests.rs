//! Tests of the schema language with small schemas, and of the generated files.

use super::parse::parse;
use super::schema::{Kind, Type, cbor_order};
use super::*;

fn schema(text: &str) -> Schema {
    parse("a.messages", text).expect("a definition")
}

fn error(text: &str) -> String {
    parse("a.messages", text).expect_err(text).to_string()
}

const SMALL: &str = "# A comment.\n/// Why.\nenum Cause {\n  none = 0\n  /// Much.\n  some = 5\n}\n\
    /// One.\n/// And more.\nmessage Inner {\n  /// Here.\n  label: text\n\
    \x20 count: optional uint\n}\nmessage Outer {\n  inner: Inner\n\
    \x20 inners: list Inner\n  cause: optional Cause\n  x: bool\n}\n\
    /// Asks.\nrequest ask = 3: Outer -> Inner\nevent told = 1: Inner\n";

#[test]
fn parse_reads_declarations_with_documentation() {
    let schema = schema(SMALL);
    let cause = schema.enumeration("Cause");
    assert_eq!(cause.doc, ["Why."]);
    assert_eq!(
        (&*cause.values[1].name, cause.values[1].number),
        ("some", 5)
    );
    assert_eq!(cause.values[1].doc, ["Much."]);
    let inner = schema.message("Inner");
    assert_eq!(inner.doc, ["One.", "And more."]);
    assert_eq!(inner.fields[0].doc, ["Here."]);
    let kinds: Vec<&Kind> = schema
        .message("Outer")
        .fields
        .iter()
        .map(|f| &f.kind)
        .collect();
    let message = || Type::Message("Inner".into());
    assert_eq!(kinds[..2], [&Kind::One(message()), &Kind::List(message())]);
    assert_eq!(kinds[2], &Kind::Optional(Type::Enum("Cause".into())));
    let request = &schema.requests[0];
    assert_eq!((&*request.name, request.number), ("ask", 3));
    assert_eq!((&*request.request, &*request.reply), ("Outer", "Inner"));
    assert_eq!(schema.events[0].message, "Inner");
}

#[test]
fn schema_gives_flat_offsets_and_cbor_order() {
    let schema = schema(SMALL);
    let outer = schema.message("Outer");
    let offsets: Vec<usize> = schema.layout(outer).iter().map(|(at, _)| *at).collect();
    assert_eq!(offsets, [0, 24, 32, 48]);
    assert_eq!(schema.fixed_len(outer), 56);
    let names: Vec<&str> = cbor_order(outer).iter().map(|f| &*f.name).collect();
    assert_eq!(names, ["x", "cause", "inner", "inners"]);
    // The head of the map, `label`, and an empty text.
    assert_eq!(schema.cbor_min(schema.message("Inner")), 1 + 6 + 1);
}

#[test]
fn id_changes_only_with_fields() {
    let id = |text: &str| {
        let schema = schema(text);
        schema.id(schema.message("Outer"))
    };
    let same = id(SMALL);
    assert_eq!(id(&SMALL.replace("/// Here.", "/// There.")), same);
    assert_eq!(id(&SMALL.replace("some = 5", "some = 6")), same);
    for (old, new) in [
        ("x: bool", "y: bool"),
        ("x: bool", "x: uint"),
        ("label: text", "l: text"),
    ] {
        assert_ne!(id(&SMALL.replace(old, new)), same, "{new}");
    }
}

#[test]
fn parse_error_names_file_line_and_problem() {
    let message = |fields: &str| format!("message M {{\n{fields}\n}}\n");
    for (text, wanted) in [
        (message("a: texts"), "a.messages:2: unknown type `texts`"),
        (message("a: list M"), "a.messages:2: `M` contains itself"),
        (
            message("a: B\n}\nmessage B {"),
            "a.messages:2: unknown type `B`",
        ),
        (
            message("a: text\na: text"),
            "a.messages:3: duplicate field `a` in `M`",
        ),
        (
            message("Name: text"),
            "a.messages:2: invalid name `Name`; use a name like `nar_size`",
        ),
        (message("a__b: text"), "a.messages:2: invalid name `a__b`"),
        (
            message("union: text"),
            "a.messages:2: cannot use `union`: it is a keyword",
        ),
        (message("a text"), "a.messages:2: expected `name: TYPE`"),
        (
            message("a: many text"),
            "a.messages:2: expected a type, `optional TYPE`",
        ),
        (
            message("a: list bool"),
            "a.messages:2: cannot use `bool` as a list element",
        ),
        (message("a: float"), "a.messages:2: unknown type `float`"),
        (
            message("a: optional list text"),
            "a.messages:2: unknown type `list text`",
        ),
        (
            message("/// x"),
            "a.messages:3: the `///` comment above documents nothing",
        ),
        (
            "message M {\n}\nmessage N {\na: list M\n}".into(),
            "a.messages:4: cannot use `M` as a list element",
        ),
        (
            "message M {\n}\nmessage N {\na: optional M\n}".into(),
            "a.messages:4: cannot use the message `M`",
        ),
        (
            "message M {\n}\nenum M {\n".into(),
            "a.messages:3: duplicate type `M`",
        ),
        (
            "message m {\n}\n".into(),
            "a.messages:1: invalid name `m`; use a name like `PathInfo`",
        ),
        (
            "message List {\n}\n".into(),
            "a.messages:1: cannot use `List`: the generated code",
        ),
        (
            "message M\n".into(),
            "a.messages:1: expected `message NAME {`",
        ),
        (
            "message M {\n".into(),
            "a.messages:1: missing the closing `}` of `M`",
        ),
        (
            "enum E {\n}\n".into(),
            "a.messages:2: missing values in the enum `E`",
        ),
        (
            "enum E {\na = 1\nb = 1\n}\n".into(),
            "a.messages:3: `a` already has the number 1",
        ),
        (
            "enum E {\na = 1\na = 2\n}\n".into(),
            "a.messages:3: duplicate name `a`",
        ),
        (
            "enum E {\na = -1\n}\n".into(),
            "a.messages:2: `-1` is not a 32-bit number",
        ),
        (
            "enum E {\na\n}\n".into(),
            "a.messages:2: expected `name = NUMBER`",
        ),
        (
            "struct S {\n}\n".into(),
            "a.messages:1: expected `enum`, `message`",
        ),
        (
            "request r = 1: A -> B".into(),
            "a.messages:1: unknown type `A`",
        ),
        (
            "message A {\n}\nrequest r = 1: A".into(),
            "a.messages:3: expected `request NAME",
        ),
        (
            "event e: A".into(),
            "a.messages:1: expected `NAME = NUMBER: …`",
        ),
        (
            "message A {\n}\nevent e = 1: A\nevent f = 1: A".into(),
            "a.messages:4: `e` already has the number 1",
        ),
    ] {
        let found = error(&text);
        assert!(found.starts_with(wanted), "{text}\n{found}");
    }
}

#[test]
fn generated_files_are_up_to_date() {
    let root = crate::root().unwrap();
    let old: Vec<&str> = outdated(&root)
        .unwrap()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(old, [""; 0], "run cargo xtask generate");
}
