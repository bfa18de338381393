//! Writes the functions that encode and decode a flat message.

use super::rust_fields::{naming, or_named};
use super::schema::{Field, Kind, Message, SLOT_LEN, Schema, Type};

/// Writes the flat functions for `impl Encode`. Skips those whose default is correct.
pub(super) fn functions(schema: &Schema, message: &Message) -> String {
    let has_contents = schema.any(message, &|kind| match kind {
        Kind::One(it) | Kind::Optional(it) => it.has_contents(),
        Kind::List(_) => false,
    });
    let has_lists = schema.any(message, &|kind| matches!(kind, Kind::List(_)));
    let mut text = String::new();
    if has_contents {
        text += &format!(
            "#[inline]\nfn content_len(&self) -> usize {{\n{}\n}}\n\n",
            content_len(schema, message)
        );
    }
    let fixed = each(schema, message, &put_fixed);
    if !fixed.is_empty() {
        let end = if fixed.contains("end") { "end" } else { "_end" };
        text += &format!(
            "#[inline]\nfn put_fixed(&self, fixed: &mut [u8], {end}: &mut usize) {{\n{fixed}}}\n\n"
        );
    }
    if has_contents {
        let contents = each(schema, message, &append_contents);
        text += &format!(
            "#[inline]\nfn append_contents(&self, out: &mut Vec<u8>) {{\n{contents}}}\n\n"
        );
    }
    if has_lists {
        let lists = each(schema, message, &append_list);
        text += &format!(
            "#[inline]\nfn append_lists(&self, out: &mut Vec<u8>, start: usize, fixed: usize) {{\n\
             {lists}}}\n\n"
        );
    }
    text + &read(schema, message)
}

fn each(
    schema: &Schema,
    message: &Message,
    line: &dyn Fn(&Schema, usize, &Field) -> String,
) -> String {
    let fields = schema.layout(message).into_iter();
    fields.map(|(at, field)| line(schema, at, field)).collect()
}

fn content_len(schema: &Schema, message: &Message) -> String {
    let lengths = message.fields.iter().filter_map(|field| {
        let own = format!("self.{}", field.name);
        Some(match &field.kind {
            Kind::One(Type::Text) => format!("{own}.len() + 1"),
            Kind::One(Type::Bytes) => format!("{own}.len()"),
            Kind::Optional(Type::Text) => format!("{own}.map_or(0, |text| text.len() + 1)"),
            Kind::Optional(Type::Bytes) => format!("{own}.map_or(0, <[u8]>::len)"),
            Kind::One(Type::Message(inner)) if !schema.message(inner).fields.is_empty() => {
                format!("{own}.content_len()")
            }
            _ => return None,
        })
    });
    lengths.collect::<Vec<_>>().join(" + ")
}

fn put_fixed(schema: &Schema, at: usize, field: &Field) -> String {
    let own = format!("self.{}", field.name);
    match &field.kind {
        Kind::List(_) => String::new(),
        Kind::One(Type::Message(inner)) => match schema.fixed_len(schema.message(inner)) {
            0 => String::new(),
            len => format!("{own}.put_fixed(&mut fixed[{at}..{}], end);\n", at + len),
        },
        Kind::One(it) => format!("flat::put(fixed, {at}, {});\n", slot_value(it, &own)),
        Kind::Optional(it) if it.has_contents() => format!(
            "if let Some(value) = {own} {{\nflat::put(fixed, {at}, {});\n}}\n",
            slot_value(it, "value")
        ),
        Kind::Optional(it) => format!(
            "if let Some(value) = {own} {{\nflat::put(fixed, {at}, 1);\n\
             flat::put(fixed, {}, {});\n}}\n",
            at + SLOT_LEN,
            slot_value(it, "value")
        ),
    }
}

fn slot_value(it: &Type, value: &str) -> String {
    match it {
        Type::Bool => format!("u64::from({value})"),
        Type::Text => format!("flat::text_at(end, {value})"),
        Type::Bytes => format!("flat::bytes_at(end, {value})"),
        Type::Enum(_) => format!("u64::from({value}.number())"),
        Type::Uint | Type::Message(_) => value.to_owned(),
    }
}

fn append_contents(_schema: &Schema, _at: usize, field: &Field) -> String {
    let own = format!("self.{}", field.name);
    let append = |it: &Type, value: &str| match it {
        Type::Text => format!("flat::append_text(out, {value});\n"),
        Type::Bytes => format!("out.extend_from_slice({value});\n"),
        Type::Message(_) => format!("{value}.append_contents(out);\n"),
        _ => String::new(),
    };
    match &field.kind {
        Kind::One(it) => append(it, &own),
        Kind::Optional(it) if it.has_contents() => {
            format!("if let Some(value) = {own} {{\n{}}}\n", append(it, "value"))
        }
        _ => String::new(),
    }
}

fn append_list(_schema: &Schema, at: usize, field: &Field) -> String {
    let place = if at == 0 {
        "fixed".to_owned()
    } else {
        format!("fixed + {at}")
    };
    match &field.kind {
        Kind::List(_) => format!("self.{}.append_flat(out, start, {place});\n", field.name),
        Kind::One(Type::Message(_)) => {
            format!("self.{}.append_lists(out, start, {place});\n", field.name)
        }
        _ => String::new(),
    }
}

fn read(schema: &Schema, message: &Message) -> String {
    let len = schema.fixed_len(message);
    let values = each(schema, message, &read_field);
    let (reader, fixed) = if len == 0 {
        ("_reader", String::new())
    } else {
        (
            "reader",
            format!("let fixed = reader.fixed::<{len}>(at)?;\n"),
        )
    };
    let at = if len == 0 { "_at" } else { "at" };
    let body = naming(message, &format!("{fixed}Ok(Self {{\n{values}}})\n"));
    format!(
        "#[inline]\nfn read_flat({reader}: &mut flat::Reader<'a>, {at}: usize) \
         -> Result<Self, DecodeError> {{\n{body}}}\n"
    )
}

fn read_field(_schema: &Schema, at: usize, field: &Field) -> String {
    let named = or_named(field);
    let value = match &field.kind {
        Kind::List(_) => format!("List::read_flat(reader, &fixed, {at}){named}"),
        Kind::One(Type::Message(inner)) => {
            let place = if at == 0 {
                "at".to_owned()
            } else {
                format!("at + {at}")
            };
            format!("{inner}::read_flat(reader, {place}){named}")
        }
        Kind::One(it) => read_value(it, at, &named),
        Kind::Optional(it) if it.has_contents() => {
            let read = it.name();
            format!("reader.optional(&fixed, {at}, flat::Reader::{read}){named}")
        }
        Kind::Optional(it) => format!(
            "if fixed.present({at}){named} {{\nSome({})\n}} else {{\nNone\n}}",
            read_value(it, at + SLOT_LEN, &named)
        ),
    };
    format!("{}: {value},\n", field.name)
}

fn read_value(it: &Type, at: usize, named: &str) -> String {
    match it {
        Type::Uint => format!("fixed.uint({at})"),
        Type::Bool => format!("fixed.bool({at}){named}"),
        Type::Enum(name) => format!("fixed.value({at}, {name}::from_number){named}"),
        Type::Text | Type::Bytes | Type::Message(_) => {
            format!("reader.{}(&fixed, {at}){named}", it.name())
        }
    }
}
