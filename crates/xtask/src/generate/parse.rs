//! Parses `*.messages`.
//!
//! Each declaration and each field has its own line. A type must be declared before its use, so no
//! message can contain itself. An error names the file, the line and the problem.

use anyhow::{Result, anyhow, bail, ensure};

use super::schema::{Enum, Event, Field, Kind, Message, Request, Schema, Type, Value};

/// Parses a schema. `path` appears in errors and in the generated files.
pub(super) fn parse(path: &str, text: &str) -> Result<Schema> {
    let mut parser = Parser {
        schema: Schema::new(path),
        doc: Vec::new(),
        open: Open::Nothing,
    };
    for (number, line) in text.lines().enumerate() {
        let result = parser.line(line.trim());
        result.map_err(|error| anyhow!("{path}:{}: {error}", number + 1))?;
    }
    let last = text.lines().count();
    parser
        .finish()
        .map_err(|error| anyhow!("{path}:{last}: {error}"))
}

struct Parser {
    schema: Schema,
    /// The `///` lines since the last declaration.
    doc: Vec<String>,
    open: Open,
}

/// The block to which the next line belongs.
enum Open {
    Nothing,
    Enum(Enum),
    Message(Message),
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<()> {
        if let Some(doc) = line.strip_prefix("///") {
            self.doc.push(doc.trim().to_owned());
            return Ok(());
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => self.begin(line),
            Open::Enum(it) if line == "}" => self.end_enum(it),
            Open::Message(message) if line == "}" => {
                self.no_doc()?;
                self.schema.messages.push(message);
                Ok(())
            }
            Open::Enum(mut it) => {
                let value = self.value(&it, line)?;
                it.values.push(value);
                self.open = Open::Enum(it);
                Ok(())
            }
            Open::Message(mut message) => {
                let field = self.field(&message, line)?;
                message.fields.push(field);
                self.open = Open::Message(message);
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Schema> {
        self.no_doc()?;
        match self.open {
            Open::Nothing => Ok(self.schema),
            Open::Enum(Enum { name, .. }) | Open::Message(Message { name, .. }) => {
                bail!("missing the closing `}}` of `{name}`")
            }
        }
    }

    fn begin(&mut self, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let doc = std::mem::take(&mut self.doc);
        match word {
            "enum" | "message" => {
                let Some(name) = rest.strip_suffix('{').map(str::trim) else {
                    bail!("expected `{word} NAME {{`");
                };
                self.new_type(name)?;
                let name = name.to_owned();
                self.open = if word == "enum" {
                    let values = Vec::new();
                    Open::Enum(Enum { name, doc, values })
                } else {
                    let fields = Vec::new();
                    Open::Message(Message { name, doc, fields })
                };
            }
            "request" => {
                let (name, number, types) = numbered(rest)?;
                let Some((request, reply)) = types.split_once("->") else {
                    bail!("expected `request NAME = NUMBER: MESSAGE -> MESSAGE`");
                };
                let taken = self.schema.requests.iter();
                unused(taken.map(|it| (&*it.name, it.number)), &name, number)?;
                let (request, reply) = (self.message(request)?, self.message(reply)?);
                self.schema.requests.push(Request {
                    name,
                    doc,
                    number,
                    request,
                    reply,
                });
            }
            "event" => {
                let (name, number, message) = numbered(rest)?;
                let taken = self.schema.events.iter();
                unused(taken.map(|it| (&*it.name, it.number)), &name, number)?;
                let message = self.message(message)?;
                self.schema.events.push(Event {
                    name,
                    doc,
                    number,
                    message,
                });
            }
            _ => bail!("expected `enum`, `message`, `request` or `event`, found `{word}`"),
        }
        Ok(())
    }

    fn end_enum(&mut self, it: Enum) -> Result<()> {
        self.no_doc()?;
        ensure!(
            !it.values.is_empty(),
            "missing values in the enum `{}`",
            it.name
        );
        self.schema.enums.push(it);
        Ok(())
    }

    fn value(&mut self, it: &Enum, line: &str) -> Result<Value> {
        let Some((name, number)) = line.split_once('=') else {
            bail!("expected `name = NUMBER`, found `{line}`");
        };
        let (name, number) = (snake_case(name)?, parse_number(number)?);
        unused(
            it.values.iter().map(|value| (&*value.name, value.number)),
            &name,
            number,
        )?;
        let doc = std::mem::take(&mut self.doc);
        Ok(Value { name, doc, number })
    }

    fn field(&mut self, message: &Message, line: &str) -> Result<Field> {
        let Some((name, kind)) = line.split_once(':') else {
            bail!("expected `name: TYPE`, found `{line}`");
        };
        let name = snake_case(name)?;
        ensure!(
            !RESERVED.contains(&&*name),
            "cannot use `{name}`: it is a keyword of Rust, C or C++; use another name"
        );
        ensure!(
            message.fields.iter().all(|field| field.name != name),
            "duplicate field `{name}` in `{}`",
            message.name
        );
        ensure!(
            message.fields.len() < FIELDS_MAX,
            "`{}` has more than {FIELDS_MAX} fields",
            message.name
        );
        let kind = self.kind(message, kind.trim())?;
        let doc = std::mem::take(&mut self.doc);
        Ok(Field { name, doc, kind })
    }

    fn kind(&self, message: &Message, text: &str) -> Result<Kind> {
        let (word, rest) = text.split_once(' ').unwrap_or(("", text));
        let it = self.resolve(message, rest.trim())?;
        match word {
            "" => Ok(Kind::One(it)),
            "optional" => {
                ensure!(
                    !matches!(it, Type::Message(_)),
                    "cannot use the message `{rest}` as an optional field"
                );
                Ok(Kind::Optional(it))
            }
            "list" => {
                let allowed = match &it {
                    Type::Uint | Type::Text | Type::Bytes => true,
                    // Elements of zero bytes could occur in any number.
                    Type::Message(name) => !self.schema.message(name).fields.is_empty(),
                    _ => false,
                };
                ensure!(
                    allowed,
                    "cannot use `{rest}` as a list element; use uint, text, bytes or a message \
                     with fields"
                );
                Ok(Kind::List(it))
            }
            _ => bail!("expected a type, `optional TYPE` or `list TYPE`, found `{text}`"),
        }
    }

    fn resolve(&self, message: &Message, name: &str) -> Result<Type> {
        Ok(match name {
            "bool" => Type::Bool,
            "uint" => Type::Uint,
            "text" => Type::Text,
            "bytes" => Type::Bytes,
            _ if name == message.name => bail!("`{name}` contains itself"),
            _ if self.schema.enums.iter().any(|it| it.name == name) => Type::Enum(name.into()),
            _ => Type::Message(self.message(name)?),
        })
    }

    /// Returns the name of a declared message.
    fn message(&self, name: &str) -> Result<String> {
        let name = name.trim();
        ensure!(
            self.schema.messages.iter().any(|it| it.name == name),
            "unknown type `{name}`; declare it above its use"
        );
        Ok(name.to_owned())
    }

    fn new_type(&self, name: &str) -> Result<()> {
        let pascal_case = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        ensure!(
            pascal_case,
            "invalid name `{name}`; use a name like `PathInfo`"
        );
        ensure!(
            !RESERVED_TYPES.contains(&name),
            "cannot use `{name}`: the generated code imports it; use another name"
        );
        let enums = self.schema.enums.iter().map(|it| &it.name);
        let messages = self.schema.messages.iter().map(|it| &it.name);
        ensure!(
            enums.chain(messages).all(|it| it != name),
            "duplicate type `{name}`"
        );
        Ok(())
    }

    fn no_doc(&self) -> Result<()> {
        ensure!(
            self.doc.is_empty(),
            "the `///` comment above documents nothing"
        );
        Ok(())
    }
}

/// The generated CBOR heads support up to 255 fields. A message with this many fields is a mistake.
const FIELDS_MAX: usize = 100;

/// Field names become names in three languages, where messages also have functions.
const RESERVED: &[&str] = &[
    "as",
    "async",
    "auto",
    "await",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "crate",
    "decode",
    "default",
    "delete",
    "do",
    "double",
    "dyn",
    "else",
    "encode",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "fn",
    "for",
    "friend",
    "gen",
    "goto",
    "if",
    "impl",
    "in",
    "inline",
    "int",
    "let",
    "long",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "namespace",
    "new",
    "operator",
    "private",
    "protected",
    "pub",
    "public",
    "put",
    "ref",
    "register",
    "return",
    "self",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "super",
    "switch",
    "take",
    "template",
    "this",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typedef",
    "typename",
    "union",
    "unsafe",
    "unsigned",
    "use",
    "using",
    "virtual",
    "void",
    "volatile",
    "where",
    "while",
    "xor",
    "yield",
];

/// Names that the generated code imports.
const RESERVED_TYPES: &[&str] = &[
    "Codec",
    "DecodeError",
    "EventKind",
    "FlatList",
    "Iter",
    "List",
    "Message",
    "Method",
    "None",
    "Ok",
    "Err",
    "Option",
    "Encode",
    "Problem",
    "Result",
    "Self",
    "Some",
    "Vec",
];

/// Parses `NAME = NUMBER: rest`.
fn numbered(text: &str) -> Result<(String, u32, &str)> {
    let parts = text
        .split_once('=')
        .and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
    let Some((name, (number, rest))) = parts else {
        bail!("expected `NAME = NUMBER: …`, found `{text}`");
    };
    Ok((snake_case(name)?, parse_number(number)?, rest))
}

fn parse_number(text: &str) -> Result<u32> {
    let number = text.trim().parse();
    number.map_err(|_| anyhow!("`{}` is not a 32-bit number", text.trim()))
}

fn snake_case(name: &str) -> Result<String> {
    let name = name.trim();
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && word
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    ensure!(
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split('_').all(word),
        "invalid name `{name}`; use a name like `nar_size`"
    );
    Ok(name.to_owned())
}

fn unused<'a>(
    mut taken: impl Iterator<Item = (&'a str, u32)>,
    name: &str,
    number: u32,
) -> Result<()> {
    match taken.find(|(other, n)| *other == name || *n == number) {
        Some((other, _)) if other == name => bail!("duplicate name `{name}`"),
        Some((other, _)) => bail!("`{other}` already has the number {number}"),
        None => Ok(()),
    }
}
