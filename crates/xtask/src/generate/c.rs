//! Writes the C header: structs with the layout of the fixed parts, and inline functions that
//! check, read and build messages. `flat.h` beside this file has the part that does not depend on
//! the schema.

use super::GENERATED;
use super::names::snake;
use super::schema::{Enum, Field, Kind, Message, SLOT_LEN, Schema, Type};

/// Writes the header with the include guard `guard`.
pub(super) fn write(schema: &Schema, guard: &str) -> String {
    let mut text = format!(
        "/* {GENERATED}{}; do not edit.\n *\n{}#ifndef {guard}\n#define {guard}\n\n{}\n",
        schema.path,
        OPENING,
        include_str!("flat.h")
    );
    if !schema.requests.is_empty() {
        text += &numbers(schema);
    }
    for it in &schema.enums {
        text += &enumeration(it);
    }
    for message in &schema.messages {
        text += &structure(schema, message);
        text += &check(schema, message);
        text += &readers(message);
        text += &setters(schema, message);
    }
    text + &format!("#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n")
}

const OPENING: &str = "\
 * Messages of libfloe in the flat encoding, for C99 and later.
 *
 * To read a message, call floe_X_view(data, len). It checks everything and returns the struct X,
 * or NULL. data must be aligned to 8 bytes, like memory from malloc. Read numbers from the struct.
 * Read texts, bytes and list elements with floe_X_FIELD(message, data) and the same data.
 *
 * To build a message, call floe_X_begin(&buffer), then floe_X_set_FIELD(&buffer, at, ...) once per
 * field with the result of begin as at, and then floe_flat_finish(&buffer), which returns 0 on
 * success. Setting a list of messages returns the position of the first one. The next one follows
 * after sizeof its struct.
 */
";

fn numbers(schema: &Schema) -> String {
    let mut text = format!(
        "/* The hash of the schema. Compare it with floe_schema_hash(). */\n\
         #define FLOE_SCHEMA_HASH ((uint64_t){:#018x})\n\n\
         /* The numbers of requests. */\nenum {{\n",
        schema.hash()
    );
    let requests = schema.requests.iter();
    let lines: Vec<String> = requests
        .map(|it| {
            let (name, about) = (upper(&it.name), format!("{} -> {}", it.request, it.reply));
            format!("  /* {about} */\n  FLOE_METHOD_{name} = {}", it.number)
        })
        .collect();
    text += &format!(
        "{}\n}};\n\n/* The numbers of events. */\nenum {{\n",
        lines.join(",\n")
    );
    let events = schema.events.iter();
    let lines: Vec<String> = events
        .map(|it| {
            let name = upper(&it.name);
            format!(
                "  /* {} */\n  FLOE_EVENT_{name} = {}",
                it.message, it.number
            )
        })
        .collect();
    text + &format!("{}\n}};\n\n", lines.join(",\n"))
}

fn enumeration(it: &Enum) -> String {
    let prefix = upper(&snake(&it.name));
    let name = snake(&it.name);
    let constant = |value: &str| format!("FLOE_{prefix}_{}", upper(value));
    let values = it.values.iter();
    let lines: Vec<String> = values
        .map(|value| {
            let line = format!("  {} = {}", constant(&value.name), value.number);
            comment("  ", &value.doc) + &line
        })
        .collect();
    let mut text = comment("", &it.doc);
    text += &format!("enum {{\n{}\n}};\n\n", lines.join(",\n"));
    let arms = it.values.iter().map(|value| {
        format!(
            "  case {}:\n    return \"{}\";\n",
            constant(&value.name),
            value.name
        )
    });
    text += &format!(
        "/* Returns the name of a value, or NULL if it is unknown. */\n\
         static inline const char *floe_{name}_text(uint32_t value) {{\n  switch (value) {{\n\
         {}  default:\n    return NULL;\n  }}\n}}\n\n",
        arms.collect::<String>()
    );
    text
}

fn structure(schema: &Schema, message: &Message) -> String {
    let name = c_name(&message.name);
    let id = format!("{}_ID", upper(&name));
    let len = schema.fixed_len(message);
    let mut text = format!("#define {id} ((uint32_t){:#010x})\n\n", schema.id(message));
    if len == 0 {
        text = comment("", &message.doc) + &text;
    } else {
        text += &comment("", &message.doc);
        text += &format!("typedef struct {name} {{\n");
        for field in &message.fields {
            text += &comment("  ", &field.doc);
            text += &members(field);
        }
        text += &format!("}} {name};\n\n");
        // C99 has no static assertion, but an array cannot have a negative length.
        let mut holds = vec![format!("sizeof({name}) == {len}")];
        for (at, field) in schema.layout(message) {
            let optional = matches!(&field.kind, Kind::Optional(it) if !it.has_contents());
            let at = if optional { at + SLOT_LEN } else { at };
            holds.push(format!("offsetof({name}, {}) == {at}", field.name));
        }
        text += &format!(
            "typedef char {name}_has_its_layout[({}) ? 1 : -1];\n\n",
            holds.join(" &&\n    ")
        );
    }
    text + &format!(
        "static inline size_t {name}_begin(floe_buffer *buffer) {{\n  \
         return floe_flat_begin(buffer, {id}, {len});\n}}\n\n"
    )
}

fn members(field: &Field) -> String {
    let name = &field.name;
    let value = |it: &Type| match it {
        Type::Uint => format!("  uint64_t {name};\n"),
        Type::Bool | Type::Enum(_) => format!("  uint32_t {name};\n  uint32_t {name}_zero;\n"),
        Type::Text | Type::Bytes => format!("  floe_ref {name};\n"),
        Type::Message(inner) => format!("  {} {name};\n", c_name(inner)),
    };
    match &field.kind {
        Kind::List(_) => format!("  floe_ref {name};\n"),
        Kind::Optional(it) if !it.has_contents() => {
            format!(
                "  uint32_t has_{name};\n  uint32_t has_{name}_zero;\n{}",
                value(it)
            )
        }
        Kind::One(it) | Kind::Optional(it) => value(it),
    }
}

fn check(schema: &Schema, message: &Message) -> String {
    let name = c_name(&message.name);
    let id = format!("{}_ID", upper(&name));
    let len = schema.fixed_len(message);
    if len == 0 {
        return format!(
            "/* Returns NULL if the bytes are not this message. */\n\
             static inline const void *{name}_view(const void *data, size_t len) {{\n  \
             floe_flat_check check;\n  \
             return floe_flat_open(&check, data, len, {id}, {len});\n}}\n\n"
        );
    }
    let mut tests: Vec<String> = Vec::new();
    let mut loops = String::new();
    for field in &message.fields {
        let own = format!("message->{}", field.name);
        match &field.kind {
            Kind::One(it) => tests.extend(value_test(it, &own)),
            Kind::Optional(it) if it.has_contents() => tests.extend(value_test(it, &own)),
            Kind::Optional(it) => {
                let has = format!("message->has_{}", field.name);
                tests.push(format!("{has} <= 1 && {has}_zero == 0"));
                let zero = match it {
                    Type::Bool | Type::Enum(_) => format!("{own} == 0 && {own}_zero == 0"),
                    _ => format!("{own} == 0"),
                };
                let holds = value_test(it, &own).unwrap_or_else(|| "1".into());
                tests.push(format!("({has} ? ({holds}) : ({zero}))"));
            }
            Kind::List(it) => {
                tests.push(list_test(schema, it, &own));
                if let Type::Message(inner) = it {
                    loops += &element_loop(&c_name(inner), &own);
                }
            }
        }
    }
    let declared = if loops.is_empty() {
        ""
    } else {
        "  size_t i;\n"
    };
    // A message of numbers needs no check, and its parameters would be unused.
    let unused = match (
        tests.is_empty(),
        tests.iter().any(|it| it.contains("check,")),
    ) {
        (true, _) => "  (void)check;\n  (void)message;\n",
        (false, false) => "  (void)check;\n",
        (false, true) => "",
    };
    let tested = if tests.is_empty() {
        String::new()
    } else {
        format!(
            "  if (!({})) {{\n    return 0;\n  }}\n",
            tests.join(" &&\n        ")
        )
    };
    format!(
        "static inline int {name}_check(floe_flat_check *check, const {name} *message) {{\n\
         {declared}{unused}{tested}{loops}  return 1;\n}}\n\n\
         /* Returns NULL if the bytes are not a valid message of this type. */\n\
         static inline const {name} *{name}_view(const void *data, size_t len) {{\n  \
         floe_flat_check check;\n  const {name} *message = (const {name} *)\n      \
         floe_flat_open(&check, data, len, {id}, {len});\n  \
         return message && {name}_check(&check, message) ? message : NULL;\n}}\n\n"
    )
}

/// Returns the condition of a valid value, or `None` if every value is valid.
fn value_test(it: &Type, own: &str) -> Option<String> {
    Some(match it {
        Type::Uint => return None,
        Type::Bool => format!("{own} <= 1 && {own}_zero == 0"),
        Type::Enum(name) => format!(
            "floe_{}_text({own}) != NULL && {own}_zero == 0",
            snake(name)
        ),
        Type::Text => format!("floe_flat_check_text(check, {own})"),
        Type::Bytes => format!("floe_flat_check_bytes(check, {own})"),
        Type::Message(inner) => format!("{}_check(check, &{own})", c_name(inner)),
    })
}

fn list_test(schema: &Schema, it: &Type, own: &str) -> String {
    match it {
        Type::Text => format!("floe_flat_check_texts(check, {own})"),
        Type::Bytes => format!("floe_flat_check_byte_strings(check, {own})"),
        Type::Message(inner) => {
            let len = schema.fixed_len(schema.message(inner));
            format!("floe_flat_check_list(check, {own}, {len})")
        }
        _ => format!("floe_flat_check_list(check, {own}, {SLOT_LEN})"),
    }
}

fn element_loop(inner: &str, own: &str) -> String {
    format!(
        "  for (i = 0; i < {own}.length; i++) {{\n    \
         const {inner} *element = (const {inner} *)\n        \
         floe_flat_element({own}, check->data, i, sizeof(*element));\n    \
         if (!{inner}_check(check, element)) {{\n      return 0;\n    }}\n  }}\n"
    )
}

fn readers(message: &Message) -> String {
    let name = c_name(&message.name);
    let mut text = String::new();
    for field in &message.fields {
        let own = format!("message->{}", field.name);
        let (kind, suffix, parameter, body) = match &field.kind {
            Kind::One(Type::Text) | Kind::Optional(Type::Text) => (
                "floe_text ".into(),
                "",
                "",
                format!("floe_flat_text({own}, data)"),
            ),
            Kind::One(Type::Bytes) | Kind::Optional(Type::Bytes) => (
                "floe_bytes ".into(),
                "",
                "",
                format!("floe_flat_bytes({own}, data)"),
            ),
            Kind::List(it) => {
                let reference = format!("floe_flat_ref_at({own}, data, i)");
                let (kind, body) = match it {
                    Type::Text => (
                        "floe_text ".into(),
                        format!("floe_flat_text({reference}, data)"),
                    ),
                    Type::Bytes => (
                        "floe_bytes ".into(),
                        format!("floe_flat_bytes({reference}, data)"),
                    ),
                    Type::Message(inner) => pointer_to(&c_name(inner), &own),
                    _ => number(&own),
                };
                (kind, "_at", ", size_t i", body)
            }
            _ => continue,
        };
        let field = &field.name;
        text += &format!(
            "static inline {kind}{name}_{field}{suffix}(const {name} *message, \
             const void *data{parameter}) {{\n  return {body};\n}}\n\n"
        );
    }
    text
}

fn pointer_to(inner: &str, own: &str) -> (String, String) {
    let element = format!("floe_flat_element({own}, data, i, sizeof({inner}))");
    (
        format!("const {inner} *"),
        format!("(const {inner} *){element}"),
    )
}

/// The cast is aligned, because lists are aligned to 8 bytes within the message.
fn number(own: &str) -> (String, String) {
    let element = format!("floe_flat_element({own}, data, i, {SLOT_LEN})");
    ("uint64_t ".into(), format!("*(const uint64_t *){element}"))
}

fn setters(schema: &Schema, message: &Message) -> String {
    let name = c_name(&message.name);
    let mut text = String::new();
    for (offset, field) in schema.layout(message) {
        let place = |more: usize| match offset + more {
            0 => "at".to_owned(),
            offset => format!("at + {offset}"),
        };
        let head = format!("{name}_set_{}(floe_buffer *buffer, size_t at", field.name);
        let (result, parameters, body) = match &field.kind {
            Kind::One(Type::Message(_)) => {
                let text_of = format!("return {};", place(0));
                (
                    "size_t",
                    String::new(),
                    format!("(void)buffer;\n  {text_of}"),
                )
            }
            Kind::One(it) => set_value(it, &place(0)),
            Kind::Optional(it) if it.has_contents() => set_value(it, &place(0)),
            Kind::Optional(it) => {
                let (result, parameters, body) = set_value(it, &place(SLOT_LEN));
                let has = format!("floe_flat_put_u32(buffer, {}, 1);", place(0));
                (result, parameters, format!("{has}\n  {body}"))
            }
            Kind::List(it) => set_list(it, &place(0)),
        };
        text += &format!("static inline {result} {head}{parameters}) {{\n  {body}\n}}\n\n");
    }
    text
}

/// Returns the result type, the parameters with a leading comma, and the body.
fn set_value(it: &Type, at: &str) -> (&'static str, String, String) {
    let (parameter, body) = match it {
        Type::Bool => (
            "int",
            format!("floe_flat_put_u32(buffer, {at}, value ? 1 : 0);"),
        ),
        Type::Enum(_) => (
            "uint32_t",
            format!("floe_flat_put_u32(buffer, {at}, value);"),
        ),
        Type::Text => (
            "floe_text",
            format!("floe_flat_put_text(buffer, {at}, value.data, value.len);"),
        ),
        Type::Bytes => (
            "floe_bytes",
            format!("floe_flat_put_bytes(buffer, {at}, value.data, value.len);"),
        ),
        Type::Uint | Type::Message(_) => (
            "uint64_t",
            format!("floe_flat_put_u64(buffer, {at}, value);"),
        ),
    };
    ("void", format!(", {parameter} value"), body)
}

fn set_list(it: &Type, at: &str) -> (&'static str, String, String) {
    let (kind, function) = match it {
        Type::Message(inner) => {
            let len = format!("sizeof({})", c_name(inner));
            let body = format!("return floe_flat_put_list(buffer, {at}, count, {len});");
            return ("size_t", ", size_t count".into(), body);
        }
        Type::Text => ("floe_text", "texts"),
        Type::Bytes => ("floe_bytes", "byte_strings"),
        _ => ("uint64_t", "numbers"),
    };
    let body = format!("floe_flat_put_{function}(buffer, {at}, items, count);");
    ("void", format!(", const {kind} *items, size_t count"), body)
}

/// Returns the name of a message in C.
fn c_name(name: &str) -> String {
    format!("floe_{}", snake(name))
}

fn upper(name: &str) -> String {
    name.to_uppercase()
}

fn comment(indent: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("{indent}/* {} */\n", lines.join(&format!("\n{indent} * ")))
}
