//! Parts of generated Rust code about the fields of messages.

use super::schema::{Field, Message};

/// Returns the struct expression that takes each field from its local variable.
pub(super) fn all_fields(message: &Message) -> String {
    let fields = message.fields.iter();
    let fields: Vec<String> = fields
        .map(|field| format!("{}: {}", field.name, local(&field.name)))
        .collect();
    format!("Self {{ {} }}", fields.join(", "))
}

/// Returns the local variable of a field. The prefix avoids clashes with generated names.
pub(super) fn local(field: &str) -> String {
    format!("its_{field}")
}

/// Returns `body`, preceded by the closure `named` if `body` uses it.
pub(super) fn naming(message: &Message, body: &str) -> String {
    if !body.contains("named(") {
        return body.to_owned();
    }
    format!(
        "let named = |field| move |error: DecodeError| error.within(\"{}\", field);\n{body}",
        message.name
    )
}

/// Returns `.map_err(…)?` with the name of the field.
pub(super) fn or_named(field: &Field) -> String {
    format!(".map_err(named(\"{}\"))?", field.name)
}
