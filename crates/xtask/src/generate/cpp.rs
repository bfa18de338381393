//! Writes the C++ header: structs that own their data, and their flat codec. `flat.hpp` beside this
//! file has the part that does not depend on the schema.

use super::GENERATED;
use super::schema::{Enum, Field, Kind, Message, SLOT_LEN, Schema, Type};

/// Writes the header with the include guard `guard`.
pub(super) fn write(schema: &Schema, guard: &str) -> String {
    let mut text = format!(
        "// {GENERATED}{}; do not edit.\n//\n\
         // Messages of libfloe as structs, for C++20. X::encode() returns the flat encoding.\n\
         // X::decode(bytes) checks and copies the fields, and throws floe::DecodeError.\n\
         #ifndef {guard}\n#define {guard}\n\n{}",
        schema.path,
        include_str!("flat.hpp")
    );
    if !schema.requests.is_empty() {
        text += &numbers(schema);
    }
    for it in &schema.enums {
        text += &enumeration(it);
    }
    for message in &schema.messages {
        text += &structure(schema, message);
    }
    if !schema.requests.is_empty() {
        text += &calls(schema);
    }
    text + &format!("}}  // namespace floe\n\n#endif  // {guard}\n")
}

fn numbers(schema: &Schema) -> String {
    let requests = schema.requests.iter().map(|it| {
        format!(
            "  /// {} -> {}\n  {} = {},\n",
            it.request, it.reply, it.name, it.number
        )
    });
    let events = schema
        .events
        .iter()
        .map(|it| format!("  /// {}\n  {} = {},\n", it.message, it.name, it.number));
    format!(
        "/// The hash of the schema. Compare it with floe_schema_hash().\n\
         inline constexpr std::uint64_t schema_hash = {:#018x};\n\n\
         /// The methods, each with its request and reply.\n\
         enum class Method : std::uint32_t {{\n{}}};\n\n\
         /// The events, each with its message.\n\
         enum class Event : std::uint32_t {{\n{}}};\n\n",
        schema.hash(),
        requests.collect::<String>(),
        events.collect::<String>()
    )
}

/// Writes the types of each method, for templates over methods.
fn calls(schema: &Schema) -> String {
    let calls = schema.requests.iter().map(|it| {
        format!(
            "template <>\nstruct Calls<Method::{}> {{\n  using Request = {};\n  \
             using Reply = {};\n}};\n\n",
            it.name, it.request, it.reply
        )
    });
    format!(
        "/// The request and the reply type of a method.\ntemplate <Method>\nstruct Calls;\n\n{}",
        calls.collect::<String>()
    )
}

fn enumeration(it: &Enum) -> String {
    let name = &it.name;
    let values = it.values.iter();
    let values = values.map(|value| {
        format!(
            "{}  {} = {},\n",
            doc("  ", &value.doc),
            value.name,
            value.number
        )
    });
    let arms = it
        .values
        .iter()
        .map(|value| format!("    case {name}::{0}:\n      return \"{0}\";\n", value.name));
    format!(
        "{}enum class {name} : std::uint32_t {{\n{}}};\n\n\
         /// Returns the name of a value; empty if it is unknown.\n\
         constexpr std::string_view name({name} value) {{\n  switch (value) {{\n{}  }}\n  \
         return {{}};\n}}\n\n",
        doc("", &it.doc),
        values.collect::<String>(),
        arms.collect::<String>()
    )
}

fn structure(schema: &Schema, message: &Message) -> String {
    let name = &message.name;
    let len = schema.fixed_len(message);
    let fields = message.fields.iter().map(|field| {
        let kind = field_type(&field.kind);
        format!(
            "{}  {kind} {}{};\n",
            doc("  ", &field.doc),
            field.name,
            initial(schema, field)
        )
    });
    let places = || schema.layout(message).into_iter();
    let puts: String = places().map(|(at, field)| put(schema, at, field)).collect();
    let takes: String = places()
        .map(|(at, field)| take(schema, at, field))
        .collect();
    let (writer, reader, at) = if message.fields.is_empty() {
        ("", "", "")
    } else {
        (" writer", " reader", " at")
    };
    format!(
        "{}struct {name} {{\n{}\n  \
         static constexpr std::uint32_t ID = {:#010x};\n  \
         static constexpr std::size_t FIXED_LEN = {len};\n\n  \
         bool operator==(const {name} &) const = default;\n\n  \
         Bytes encode() const {{\n    \
         detail::Writer writer(ID, FIXED_LEN);\n    \
         put(writer, detail::header_len);\n    \
         return writer.finish();\n  }}\n\n  \
         static {name} decode(std::span<const std::byte> data) {{\n    \
         detail::Reader reader(data, ID, FIXED_LEN);\n    \
         return take(reader, detail::header_len);\n  }}\n\n  \
         void put(detail::Writer &{}, std::size_t{at}) const {{\n{puts}  }}\n\n  \
         static {name} take(detail::Reader &{}, std::size_t{at}) {{\n    \
         {name} it;\n{takes}    return it;\n  }}\n}};\n\n",
        doc("", &message.doc),
        fields.collect::<String>(),
        schema.id(message),
        writer.trim_start(),
        reader.trim_start(),
    )
}

fn field_type(kind: &Kind) -> String {
    let inner = value_type(kind.inner());
    match kind {
        Kind::One(_) => inner,
        Kind::Optional(_) => format!("std::optional<{inner}>"),
        Kind::List(_) => format!("std::vector<{inner}>"),
    }
}

fn value_type(it: &Type) -> String {
    match it {
        Type::Bool => "bool".into(),
        Type::Uint => "std::uint64_t".into(),
        Type::Text => "std::string".into(),
        Type::Bytes => "Bytes".into(),
        Type::Enum(name) | Type::Message(name) => name.clone(),
    }
}

/// Enums begin with their first value. All other fields begin as zero, empty or absent.
fn initial(schema: &Schema, field: &Field) -> String {
    match &field.kind {
        Kind::One(Type::Enum(name)) => {
            let first = &schema.enumeration(name).values[0].name;
            format!(" = {name}::{first}")
        }
        _ => "{}".into(),
    }
}

fn put(schema: &Schema, at: usize, field: &Field) -> String {
    let name = &field.name;
    match &field.kind {
        Kind::One(it) => format!("    {}\n", put_value(it, &place(at), name)),
        Kind::Optional(it) => {
            let (present, at) = if it.has_contents() {
                (String::new(), at)
            } else {
                (
                    format!("      writer.number({}, 1);\n", place(at)),
                    at + SLOT_LEN,
                )
            };
            format!(
                "    if ({name}) {{\n{present}      {}\n    }}\n",
                put_value(it, &place(at), &format!("*{name}"))
            )
        }
        Kind::List(it) => format!(
            "    writer.list({}, {name}, {}, [&](std::size_t place, const {} &element) {{\n      \
             {}\n    }});\n",
            place(at),
            element_len(schema, it),
            value_type(it),
            put_value(it, "place", "element")
        ),
    }
}

fn put_value(it: &Type, at: &str, value: &str) -> String {
    match it {
        Type::Uint => format!("writer.number({at}, {value});"),
        Type::Bool => format!("writer.number({at}, {value} ? 1 : 0);"),
        Type::Enum(_) => {
            format!("writer.number({at}, static_cast<std::uint64_t>({value}));")
        }
        Type::Text => format!("writer.text({at}, {value});"),
        Type::Bytes => format!("writer.bytes({at}, {value});"),
        Type::Message(_) => {
            let value = value.strip_prefix('*').unwrap_or(value);
            format!("{value}.put(writer, {at});")
        }
    }
}

fn take(schema: &Schema, at: usize, field: &Field) -> String {
    let name = &field.name;
    match &field.kind {
        Kind::One(it) => format!("    it.{name} = {};\n", take_value(it, &place(at))),
        Kind::Optional(it) => {
            let (present, at) = if it.has_contents() {
                (format!("reader.number({}) != 0", place(at)), at)
            } else {
                (format!("reader.present({})", place(at)), at + SLOT_LEN)
            };
            format!(
                "    if ({present}) {{\n      it.{name} = {};\n    }}\n",
                take_value(it, &place(at))
            )
        }
        Kind::List(it) => {
            let value = value_type(it);
            format!(
                "    it.{name} = reader.list<{value}>({}, {}, [&](std::size_t place) {{\n      \
                 return {};\n    }});\n",
                place(at),
                element_len(schema, it),
                take_value(it, "place")
            )
        }
    }
}

fn take_value(it: &Type, at: &str) -> String {
    match it {
        Type::Uint => format!("reader.number({at})"),
        Type::Bool => format!("reader.boolean({at})"),
        Type::Text => format!("reader.text({at})"),
        Type::Bytes => format!("reader.bytes({at})"),
        Type::Enum(name) => format!("reader.value<{name}>({at})"),
        Type::Message(name) => format!("{name}::take(reader, {at})"),
    }
}

fn element_len(schema: &Schema, it: &Type) -> usize {
    match it {
        Type::Message(name) => schema.fixed_len(schema.message(name)),
        _ => SLOT_LEN,
    }
}

fn place(at: usize) -> String {
    match at {
        0 => "at".into(),
        _ => format!("at + {at}"),
    }
}

fn doc(indent: &str, lines: &[String]) -> String {
    let lines = lines.iter();
    lines.map(|line| format!("{indent}/// {line}\n")).collect()
}
