//! Writes the CDDL of a schema (RFC 8610): one rule per message and per enum.

use super::GENERATED;
use super::names::camel;
use super::schema::{Kind, Schema, Type, cbor_order};

pub(super) fn write(schema: &Schema) -> String {
    let mut text = format!(
        "; {GENERATED}{}; do not edit.\n;\n\
         ; The encoding is deterministic (RFC 8949, section 4.2.1). A reader accepts keys in any\n\
         ; order, and null for an absent optional field.\n;\n",
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
        // bool and uint have the same names in the CDDL prelude.
        _ => it.name(),
    }
}
