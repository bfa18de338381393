//! Writes the functions that encode and decode a message as CBOR.
//!
//! The decoder expects the fields in their order and compares keys as bytes. If that fails, a
//! second decoder starts again and accepts any order.

use super::rust_fields::{all_fields, local, naming, or_named};
use super::schema::{Field, Kind, Message, Schema, Type, cbor_head, cbor_key, cbor_order};

/// Writes `write_cbor` and `read_cbor` for `impl Encode`.
pub(super) fn functions(schema: &Schema, message: &Message) -> String {
    format!(
        "#[inline]\nfn write_cbor(&self, out: &mut Vec<u8>) {{\n{}}}\n\n\
         #[inline]\nfn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError> {{\n\
         {}}}\n",
        writer(message),
        naming(message, &reader(schema, message)),
    )
}

fn writer(message: &Message) -> String {
    let order = cbor_order(message);
    let mut room: usize = order.iter().map(|it| cbor_key(&it.name).len()).sum();
    let optional = order.iter().filter(|field| is_optional(field));
    let mut head = cbor_head(0xa0, order.len());
    room += head.len();
    // The longest head of a field: one byte, and a number of 8 bytes.
    room += 9 * order.len();
    let mut text = format!("out.reserve({room} + self.content_len());\n");
    if optional.clone().next().is_some() {
        let counts = optional.map(|it| format!(" + u64::from(self.{}.is_some())", it.name));
        let required = order.iter().filter(|field| !is_optional(field)).count();
        text += &format!(
            "cbor::map(out, {required}{});\n",
            counts.collect::<String>()
        );
        head.clear();
    }
    if order.is_empty() {
        return format!("out.push({:#04x});\n", head[0]);
    }
    for field in order {
        // The head of the map and the first key are written together.
        let mut key = std::mem::take(&mut head);
        key.extend(cbor_key(&field.name));
        let key = format!("out.extend_from_slice({});\n", literal(&key));
        let own = format!("self.{}", field.name);
        text += &match &field.kind {
            Kind::One(it) => key + &write_value(it, &own),
            Kind::Optional(it) => format!(
                "if let Some(value) = {own} {{\n{key}{}}}\n",
                write_value(it, "value")
            ),
            Kind::List(_) => format!("{key}{own}.write_cbor(out);\n"),
        };
    }
    text
}

fn write_value(it: &Type, value: &str) -> String {
    match it {
        Type::Enum(_) => format!("cbor::text(out, {value}.as_text());\n"),
        Type::Message(_) => format!("{value}.write_cbor(out);\n"),
        _ => format!("cbor::{}(out, {value});\n", it.name()),
    }
}

fn reader(schema: &Schema, message: &Message) -> String {
    let order = cbor_order(message);
    if order.is_empty() {
        return "match reader.map()? {\n0 => Ok(Self {}),\n\
                _ => Err(reader.fault(Problem::UnknownKey)),\n}\n"
            .into();
    }
    let has_optional = order.iter().any(|field| is_optional(field));
    let required = order.iter().filter(|field| !is_optional(field)).count();
    let mut head = cbor_head(0xa0, order.len());
    let mut text = String::from("let begin = reader.clone();\n");
    if has_optional {
        text += "let count = reader.map()?;\n";
        text += &format!("let mut seen = {required};\n");
        head.clear();
    }
    // Without a required field, no key can break the order.
    text += if required > 0 { "'ordered: {\n" } else { "{\n" };
    for field in order {
        let mut key = std::mem::take(&mut head);
        key.extend(cbor_key(&field.name));
        let key = format!("reader.key({})", literal(&key));
        let name = local(&field.name);
        let value = format!("{}{}", read_value(schema, &field.kind), or_named(field));
        text += &if is_optional(field) {
            format!(
                "let mut {name} = None;\nif {key} {{\nseen += 1;\n\
                 if !reader.null() {{\n{name} = Some({value});\n}}\n}}\n"
            )
        } else {
            format!("if !{key} {{\nbreak 'ordered;\n}}\nlet {name} = {value};\n")
        };
    }
    let whole = format!("return Ok({});\n", all_fields(message));
    text += &if has_optional {
        format!("if seen == count {{\n{whole}}}\n")
    } else {
        whole
    };
    text + "}\n*reader = begin;\nSelf::read_cbor_in_any_order(reader)\n"
}

/// Writes the decoder for fields in any order, which also reports errors.
pub(super) fn in_any_order(schema: &Schema, message: &Message, name: &str) -> String {
    if message.fields.is_empty() {
        return String::new();
    }
    let mut text = String::from("let count = reader.map()?;\n");
    for field in &message.fields {
        text += &format!("let mut {} = None;\n", local(&field.name));
    }
    text += "for _ in 0..count {\nlet before = reader.clone();\nmatch reader.text()? {\n";
    for field in &message.fields {
        let key = super::names::camel(&field.name);
        let (name, named) = (local(&field.name), or_named(field));
        let mut value = format!("{}{named}", read_value(schema, &field.kind));
        if is_optional(field) {
            value = format!("if reader.null() {{ None }} else {{ Some({value}) }}");
        }
        text += &format!(
            "\"{key}\" => {{\nbefore.once({name}.is_some()){named};\n{name} = Some({value});\n}}\n"
        );
    }
    text += "_ => return Err(before.fault(Problem::UnknownKey)),\n}\n}\n";
    if message.fields.iter().any(|field| !is_optional(field)) {
        text += "let missing = |field| named(field)(reader.fault(Problem::Missing));\n";
    }
    text += "Ok(Self {\n";
    for field in &message.fields {
        let (name, value) = (&field.name, local(&field.name));
        text += &if is_optional(field) {
            format!("{name}: {value}.flatten(),\n")
        } else {
            format!("{name}: {value}.ok_or_else(|| missing(\"{name}\"))?,\n")
        };
    }
    text += "})\n";
    let generics = if name.ends_with('>') {
        ("<'a>", "'a")
    } else {
        ("", "'_")
    };
    format!(
        "impl{} {name} {{\n#[cold]\nfn read_cbor_in_any_order(\nreader: &mut cbor::Reader<{}>,\n\
         ) -> Result<Self, DecodeError> {{\n{}}}\n}}\n\n",
        generics.0,
        generics.1,
        naming(message, &text),
    )
}

fn read_value(schema: &Schema, kind: &Kind) -> String {
    match kind {
        Kind::List(_) => "List::read_cbor(reader)".into(),
        Kind::One(it) | Kind::Optional(it) => match it {
            Type::Enum(name) => format!("reader.value({name}::from_text)"),
            Type::Message(name) => {
                format!("{}::read_cbor(reader)", schema.message(name).name)
            }
            _ => format!("reader.{}()", it.name()),
        },
    }
}

pub(super) fn is_optional(field: &Field) -> bool {
    matches!(field.kind, Kind::Optional(_))
}

/// Returns a byte string literal: heads as numbers, names as letters.
fn literal(bytes: &[u8]) -> String {
    let byte = |&byte: &u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("\\x{byte:02x}")
        }
    };
    // Written as a number, because the head of a text looks like a letter.
    let keys_begin = bytes.iter().position(|byte| *byte & 0xe0 == 0x60);
    let (heads, name) = bytes.split_at(keys_begin.map_or(0, |at| at + 1));
    let heads = heads.iter().map(|head| format!("\\x{head:02x}"));
    format!(
        "b\"{}{}\"",
        heads.collect::<String>(),
        name.iter().map(byte).collect::<String>()
    )
}
