//! Writes the CDDL of a definition (RFC 8610): a rule for each message, and one for each enum.

use super::GENERATED;
use super::names::camel;
use super::schema::{Kind, Schema, Type, cbor_order};

pub(super) fn write(schema: &Schema) -> String {
    let mut text = format!(
        "; {GENERATED}{}; do not edit.\n;\n\
         ; The encoding is deterministic as in RFC 8949, 4.2.1. A reader takes the keys in any\n\
         ; order, and null for an optional field that is absent.\n;\n",
        schema.path
    );
    for it in &schema.requests {
        text += &format!(
            "; request {} = {}: {} -> {}\n",
            it.name, it.number, it.request, it.reply
        );
    }
    for it in &schema.events {
        text += &format!("; event {} = {}: {}\n", it.name, it.number, it.message);
    }
    for it in &schema.enums {
        let values: Vec<String> = it
            .values
            .iter()
            .map(|it| format!("\"{}\"", it.name))
            .collect();
        text += "\n";
        text += &comments("", &it.doc);
        text += &format!("{} = {}\n", it.name, values.join(" / "));
    }
    for message in &schema.messages {
        text += "\n";
        text += &comments("", &message.doc);
        text += &format!("{} = {{\n", message.name);
        for field in cbor_order(message) {
            let key = camel(&field.name);
            let inner = type_name(field.kind.inner());
            text += &comments("  ", &field.doc);
            text += &match field.kind {
                Kind::One(_) => format!("  {key}: {inner},\n"),
                Kind::Optional(_) => format!("  ? {key}: {inner},\n"),
                Kind::List(_) => format!("  {key}: [* {inner}],\n"),
            };
        }
        text += "}\n";
    }
    text
}

fn comments(indent: &str, lines: &[String]) -> String {
    let lines = lines.iter();
    lines.map(|line| format!("{indent}; {line}\n")).collect()
}

fn type_name(it: &Type) -> &str {
    match it {
        Type::Text => "tstr",
        Type::Bytes => "bstr",
        // The prelude has the others under the same names: bool, uint.
        _ => it.name(),
    }
}
