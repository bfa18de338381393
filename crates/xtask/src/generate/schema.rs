//! The schema, and the values derived from it: layouts, sizes and IDs.

use super::names::camel;

/// A schema, in the order of its file.
#[derive(Debug)]
pub(super) struct Schema {
    /// The path of the file in the repository.
    pub(super) path: String,
    pub(super) enums: Vec<Enum>,
    pub(super) messages: Vec<Message>,
    pub(super) requests: Vec<Request>,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) values: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) number: u32,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) kind: Kind,
}

/// The multiplicity of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    One(Type),
    Optional(Type),
    List(Type),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Bool,
    Uint,
    Text,
    Bytes,
    Enum(String),
    Message(String),
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) number: u32,
    pub(super) request: String,
    pub(super) reply: String,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) number: u32,
    pub(super) message: String,
}

/// The length of a field in the fixed part.
pub(super) const SLOT_LEN: usize = 8;
/// The length of the header, before the fixed part.
pub(super) const HEADER_LEN: usize = 16;

impl Schema {
    pub(super) fn new(path: &str) -> Schema {
        Schema {
            path: path.into(),
            enums: Vec::new(),
            messages: Vec::new(),
            requests: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Returns a message. The parser accepts only names that exist.
    pub(super) fn message(&self, name: &str) -> &Message {
        let found = self.messages.iter().find(|message| message.name == name);
        found.expect("the parser checked that the message exists")
    }

    /// Returns an enum. The parser accepts only names that exist.
    pub(super) fn enumeration(&self, name: &str) -> &Enum {
        let found = self.enums.iter().find(|it| it.name == name);
        found.expect("the parser checked that the enum exists")
    }

    /// Returns whether `is` holds for a field of the message or of a message inside it.
    pub(super) fn any(&self, message: &Message, is: &dyn Fn(&Kind) -> bool) -> bool {
        message.fields.iter().any(|field| {
            is(&field.kind)
                || matches!(&field.kind, Kind::One(Type::Message(inner))
                    if self.any(self.message(inner), is))
        })
    }

    /// Returns the fields with their offsets in the fixed part.
    pub(super) fn layout<'s>(&self, message: &'s Message) -> Vec<(usize, &'s Field)> {
        let mut offset = 0;
        let place = |field| {
            let begin = offset;
            offset += self.flat_len(field);
            (begin, field)
        };
        message.fields.iter().map(place).collect()
    }

    /// Returns the length of the fixed part.
    pub(super) fn fixed_len(&self, message: &Message) -> usize {
        message
            .fields
            .iter()
            .map(|field| self.flat_len(field))
            .sum()
    }

    fn flat_len(&self, field: &Field) -> usize {
        match &field.kind {
            Kind::One(Type::Message(inner)) => self.fixed_len(self.message(inner)),
            Kind::Optional(it) if !it.has_contents() => 2 * SLOT_LEN,
            _ => SLOT_LEN,
        }
    }

    /// Returns the minimum length of the message in CBOR.
    pub(super) fn cbor_min(&self, message: &Message) -> usize {
        let required = |field: &Field| {
            let value = match &field.kind {
                Kind::Optional(_) => return 0,
                Kind::List(_) => 1,
                Kind::One(it) => self.cbor_value_min(it),
            };
            cbor_key(&field.name).len() + value
        };
        cbor_head(0xa0, message.fields.len()).len()
            + message.fields.iter().map(required).sum::<usize>()
    }

    fn cbor_value_min(&self, it: &Type) -> usize {
        match it {
            Type::Enum(name) => {
                let values = &self.enumeration(name).values;
                let lengths = values.iter().map(|value| 1 + value.name.len());
                lengths.min().unwrap_or(1)
            }
            Type::Message(name) => self.cbor_min(self.message(name)),
            _ => 1,
        }
    }

    /// Returns the FNV-1a hash of the fields and their types, including messages inside. It does
    /// not cover the values of enums: a new value does not change the layout, and readers reject
    /// unknown values.
    pub(super) fn id(&self, message: &Message) -> u32 {
        fnv_1a(&self.fields_text(message))
    }

    /// Returns the FNV-1a hash of the whole schema, with 64 bits.
    pub(super) fn hash(&self) -> u64 {
        let mut text = String::new();
        for it in &self.enums {
            let values = it.values.iter();
            let values: String = values
                .map(|v| format!("{}={},", v.name, v.number))
                .collect();
            text += &format!("{}{{{values}}}", it.name);
        }
        for message in &self.messages {
            text += &self.fields_text(message);
        }
        for it in &self.requests {
            text += &format!("{}={}:{}->{},", it.name, it.number, it.request, it.reply);
        }
        for it in &self.events {
            text += &format!("{}={}:{},", it.name, it.number, it.message);
        }
        let step =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    fn fields_text(&self, message: &Message) -> String {
        let type_text = |it: &Type| match it {
            Type::Message(name) => self.fields_text(self.message(name)),
            _ => it.name().to_owned(),
        };
        let fields = message.fields.iter().map(|field| {
            let kind = match &field.kind {
                Kind::One(it) => type_text(it),
                Kind::Optional(it) => format!("optional {}", type_text(it)),
                Kind::List(it) => format!("list {}", type_text(it)),
            };
            format!("{}:{kind},", field.name)
        });
        format!("{}{{{}}}", message.name, fields.collect::<String>())
    }
}

impl Kind {
    pub(super) fn inner(&self) -> &Type {
        match self {
            Kind::One(it) | Kind::Optional(it) | Kind::List(it) => it,
        }
    }

    /// Returns the type as in the schema.
    pub(super) fn text(&self) -> String {
        match self {
            Kind::One(it) => it.name().to_owned(),
            Kind::Optional(it) => format!("optional {}", it.name()),
            Kind::List(it) => format!("list {}", it.name()),
        }
    }
}

impl Type {
    /// Returns the name as in the schema.
    pub(super) fn name(&self) -> &str {
        match self {
            Type::Bool => "bool",
            Type::Uint => "uint",
            Type::Text => "text",
            Type::Bytes => "bytes",
            Type::Enum(name) | Type::Message(name) => name,
        }
    }

    /// Returns whether the value is stored behind the fixed part.
    pub(super) fn has_contents(&self) -> bool {
        matches!(self, Type::Text | Type::Bytes)
    }
}

/// Returns a key in CBOR, with its head.
pub(super) fn cbor_key(name: &str) -> Vec<u8> {
    let name = camel(name);
    let mut key = cbor_head(0x60, name.len());
    key.extend_from_slice(name.as_bytes());
    key
}

/// Returns the head of a short text or map.
pub(super) fn cbor_head(major: u8, len: usize) -> Vec<u8> {
    match u8::try_from(len) {
        Ok(len @ 0..24) => vec![major | len],
        Ok(len) => vec![major | 24, len],
        Err(_) => unreachable!("the parser rejects names and messages of this length"),
    }
}

/// Returns the fields in the order of deterministic CBOR: sorted by their encoded keys.
pub(super) fn cbor_order(message: &Message) -> Vec<&Field> {
    let mut fields: Vec<&Field> = message.fields.iter().collect();
    fields.sort_by_key(|field| cbor_key(&field.name));
    fields
}

/// A short and well-known hash. No attacker chooses the input.
fn fnv_1a(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}
