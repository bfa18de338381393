//! Writes the Rust source of a schema: structs that borrow, enums, and their codecs.

use super::names::pascal;
use super::schema::{Enum, Event, HEADER_LEN, Kind, Message, Request, Schema, Type, Value};
use super::{GENERATED, rust_cbor, rust_flat};

/// Writes the source. `krate` is the path of the traits: `crate` or `floe_messages`.
pub(super) fn write(schema: &Schema, krate: &str) -> String {
    let mut text = format!(
        "// {GENERATED}{}; do not edit.\n\
         //! The messages of `{}`.\n\n\
         use {krate}::{{cbor, flat, DecodeError, List, Message, Encode, Problem}};\n\n",
        schema.path,
        schema.path.rsplit('/').next().unwrap_or_default(),
    );
    if !schema.requests.is_empty() {
        text += &format!(
            "/// The hash of the schema, which the C headers contain too.\n\
             pub const SCHEMA_HASH: u64 = {:#018x};\n\n",
            schema.hash()
        );
        text += &enumeration(&methods(&schema.requests), "name");
        text += &enumeration(&events(&schema.events), "name");
    }
    for it in &schema.enums {
        text += &enumeration(it, "text");
    }
    for message in &schema.messages {
        text += &structure(schema, message);
        text += &part(schema, message);
    }
    text
}

fn methods(requests: &[Request]) -> Enum {
    let value = |it: &Request| {
        let mut doc = it.doc.clone();
        doc.push(format!("[`{}`] → [`{}`].", it.request, it.reply));
        Value {
            name: it.name.clone(),
            doc,
            number: it.number,
        }
    };
    Enum {
        name: "Method".into(),
        doc: vec!["The methods, each with its request and reply.".into()],
        values: requests.iter().map(value).collect(),
    }
}

fn events(events: &[Event]) -> Enum {
    let value = |it: &Event| {
        let mut doc = it.doc.clone();
        doc.push(format!("[`{}`].", it.message));
        Value {
            name: it.name.clone(),
            doc,
            number: it.number,
        }
    };
    Enum {
        name: "EventKind".into(),
        doc: vec!["The events, each with its message.".into()],
        values: events.iter().map(value).collect(),
    }
}

/// Writes an enum. `word` is the kind of its names in the schema: `text` or `name`.
fn enumeration(it: &Enum, word: &str) -> String {
    let name = &it.name;
    let as_word = if word == "text" { "as_text" } else { word };
    let mut text = doc(&it.doc, &format!("The enum `{name}`."));
    // Methods and events have no sensible default.
    let default = if word == "text" { "Default, " } else { "" };
    text += &format!(
        "#[derive(Clone, Copy, Debug, {default}PartialEq, Eq, PartialOrd, Ord, Hash)]\n\
         #[repr(u32)]\npub enum {name} {{\n"
    );
    for (i, value) in it.values.iter().enumerate() {
        text += &doc(&value.doc, &format!("`{}`.", value.name));
        if i == 0 && !default.is_empty() {
            text += "#[default]\n";
        }
        text += &format!("{} = {},\n", pascal(&value.name), value.number);
    }
    let each = |arm: &dyn Fn(&Value, &str) -> String| -> String {
        let values = it.values.iter();
        values
            .map(|value| arm(value, &pascal(&value.name)))
            .collect()
    };
    text += &format!(
        "}}\n\nimpl {name} {{\n\
         /// All values, in the order of the schema.\n\
         pub const ALL: &'static [{name}] = &[{}];\n\n\
         /// Returns the number of the value.\n\
         pub const fn number(self) -> u32 {{ self as u32 }}\n\n\
         /// Returns the value with this number.\n\
         pub const fn from_number(number: u32) -> Option<{name}> {{ match number {{\n{}\
         _ => None,\n}} }}\n\n\
         /// Returns the {word} of the value, as in the schema.\n\
         pub const fn {as_word}(self) -> &'static str {{ match self {{\n{}}} }}\n\n\
         /// Returns the value with this {word}.\n\
         pub fn from_{word}({word}: &str) -> Option<{name}> {{ match {word} {{\n{}\
         _ => None,\n}} }}\n}}\n\n",
        each(&|_, variant| format!("{name}::{variant}, ")),
        each(&|value, variant| format!("{} => Some({name}::{variant}),\n", value.number)),
        each(&|value, variant| format!("{name}::{variant} => \"{}\",\n", value.name)),
        each(&|value, variant| format!("\"{}\" => Some({name}::{variant}),\n", value.name)),
    );
    text
}

fn structure(schema: &Schema, message: &Message) -> String {
    let mut text = doc(&message.doc, &format!("The message `{}`.", message.name));
    let copy = if schema.any(message, &|kind| matches!(kind, Kind::List(_))) {
        ""
    } else {
        "Copy, "
    };
    text += &format!("#[derive(Clone, {copy}Debug, Default, PartialEq)]\n");
    text += &format!("pub struct {} {{\n", type_name(schema, &message.name, "'a"));
    for field in &message.fields {
        let default = format!(
            "The field `{}` of type `{}`.",
            field.name,
            field.kind.text()
        );
        text += &doc(&field.doc, &default);
        text += &format!("pub {}: {},\n", field.name, field_type(schema, &field.kind));
    }
    text + "}\n\n"
}

fn part(schema: &Schema, message: &Message) -> String {
    let name = type_name(schema, &message.name, "'a");
    let len = schema.fixed_len(message);
    let mut text = format!(
        "impl<'a> Message<'a> for {name} {{\n\
         const NAME: &'static str = \"{}\";\n\
         const ID: u32 = {:#010x};\n\
         const FLAT_BLANK: &'static [u8] = &flat::blank::<{}>(Self::ID);\n}}\n\n",
        message.name,
        schema.id(message),
        HEADER_LEN + len,
    );
    text += &format!(
        "impl<'a> Encode<'a> for {name} {{\n\
         const CBOR_MIN: usize = {};\n\
         const FLAT_LEN: usize = {len};\n\n{}\n{}}}\n\n",
        schema.cbor_min(message),
        rust_cbor::functions(schema, message),
        rust_flat::functions(schema, message),
    );
    text += &rust_cbor::in_any_order(schema, message, &name);
    text
}

/// Returns the type of a message, which has a lifetime only if it borrows.
pub(super) fn type_name(schema: &Schema, name: &str, lifetime: &str) -> String {
    let borrows = |kind: &Kind| match kind {
        Kind::List(_) => true,
        Kind::One(it) | Kind::Optional(it) => it.has_contents(),
    };
    if schema.any(schema.message(name), &borrows) {
        format!("{name}<{lifetime}>")
    } else {
        name.to_owned()
    }
}

fn field_type(schema: &Schema, kind: &Kind) -> String {
    let inner = match kind.inner() {
        Type::Bool => "bool".into(),
        Type::Uint => "u64".into(),
        Type::Text => "&'a str".into(),
        Type::Bytes => "&'a [u8]".into(),
        Type::Enum(name) => name.clone(),
        Type::Message(name) => type_name(schema, name, "'a"),
    };
    match kind {
        Kind::One(_) => inner,
        Kind::Optional(_) => format!("Option<{inner}>"),
        Kind::List(_) => format!("List<'a, {inner}>"),
    }
}

/// Returns documentation lines, or `default` if the schema has none.
fn doc(lines: &[String], default: &str) -> String {
    if lines.is_empty() {
        return format!("/// {default}\n");
    }
    lines.iter().map(|line| format!("/// {line}\n")).collect()
}
