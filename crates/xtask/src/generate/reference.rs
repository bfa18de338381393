//! Writes the reference documentation of a schema.

use super::GENERATED;
use super::schema::{Enum, Field, Kind, Message, Schema, Type};

pub(super) fn write(schema: &Schema) -> String {
    let mut text = format!(
        "<!-- {GENERATED}{}; do not edit. -->\n\n# Messages of libfloe\n\n\
         Every request has a number, a request message and a reply message. If a request fails,\n\
         the reply is [Error](#error) instead. Messages are encoded as CBOR, described by\n\
         [floe.cddl](../crates/floe-messages/floe.cddl), or flat, like a C struct.\n\n\
         Names are spelled as in Rust, C and C++. The CBOR key of `nar_size` is `narSize`. An\n\
         optional field may be absent. All other fields are present, and a list may be empty.\n\n",
        schema.path
    );
    text += "## Requests\n\n| number | request | message | reply |\n|---|---|---|---|\n";
    for it in &schema.requests {
        text += &format!(
            "| {} | {} | {} | {} |\n",
            it.number,
            it.name,
            link(&it.request),
            link(&it.reply)
        );
    }
    text += "\n## Events\n\n| number | event | message |\n|---|---|---|\n";
    for it in &schema.events {
        text += &format!("| {} | {} | {} |\n", it.number, it.name, link(&it.message));
    }
    text += "\n## Types of fields\n\n";
    for (name, meaning) in [
        ("bool", "true or false"),
        ("uint", "a number from 0 to 2^64 - 1"),
        ("text", "UTF-8, which may contain NUL bytes"),
        ("bytes", "any bytes"),
    ] {
        text += &format!("- `{name}`: {meaning}\n");
    }
    text += "\n## All messages\n";
    for message in &schema.messages {
        text += &section(message);
    }
    text += "\n## Enums\n";
    for it in &schema.enums {
        text += &enumeration(it);
    }
    text
}

fn section(message: &Message) -> String {
    let mut text = format!("\n### {}\n\n", message.name);
    if !message.doc.is_empty() {
        text += &format!("{}\n\n", message.doc.join("\n"));
    }
    if message.fields.is_empty() {
        return text + "No fields.\n";
    }
    text += "| field | type | |\n|---|---|---|\n";
    for Field { name, doc, kind } in &message.fields {
        let inner = match kind.inner() {
            Type::Enum(name) | Type::Message(name) => link(name),
            it => it.name().to_owned(),
        };
        let kind = match kind {
            Kind::One(_) => inner,
            Kind::Optional(_) => format!("optional {inner}"),
            Kind::List(_) => format!("list of {inner}"),
        };
        text += &format!("| `{name}` | {kind} | {} |\n", cell(doc));
    }
    text
}

fn enumeration(it: &Enum) -> String {
    let mut text = format!("\n### {}\n\n", it.name);
    if !it.doc.is_empty() {
        text += &format!("{}\n\n", it.doc.join("\n"));
    }
    text += "| number | value | |\n|---|---|---|\n";
    for value in &it.values {
        text += &format!(
            "| {} | `{}` | {} |\n",
            value.number,
            value.name,
            cell(&value.doc)
        );
    }
    text
}

/// Links to a heading of the page.
fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

fn cell(doc: &[String]) -> String {
    doc.join(" ").replace('|', "\\|")
}
