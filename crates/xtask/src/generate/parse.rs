//! Reads `*.messages`.
//!
//! Each thing stands on its own line. What is used was declared above, so no message can contain
//! itself. An error names the file, the line, and what is wrong there.

use anyhow::{Result, anyhow, bail, ensure};

use super::schema::{Enum, Event, Field, Kind, Message, Request, Schema, Type, Value};

/// Reads a definition; `path` is for errors and for the files that are made from it.
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
    /// The `///` lines since the last thing.
    doc: Vec<String>,
    open: Open,
}

/// What the next line belongs to.
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
                bail!("`{name}` has no closing `}}`")
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
        ensure!(!it.values.is_empty(), "the enum `{}` has no value", it.name);
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
            "`{name}` is a word of Rust, C or C++; choose another name"
        );
        ensure!(
            message.fields.iter().all(|field| field.name != name),
            "`{}` has two fields `{name}`",
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
                    "a message cannot be optional; `{rest}` is one"
                );
                Ok(Kind::Optional(it))
            }
            "list" => {
                let allowed = match &it {
                    Type::Uint | Type::Text | Type::Bytes => true,
                    // Elements without a byte could be without number.
                    Type::Message(name) => !self.schema.message(name).fields.is_empty(),
                    _ => false,
                };
                ensure!(
                    allowed,
                    "a list has elements of uint, text, bytes or a message with fields, \
                     not of `{rest}`"
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

    /// The name of a message that is there.
    fn message(&self, name: &str) -> Result<String> {
        let name = name.trim();
        ensure!(
            self.schema.messages.iter().any(|it| it.name == name),
            "unknown type `{name}`; types stand above their use"
        );
        Ok(name.to_owned())
    }

    fn new_type(&self, name: &str) -> Result<()> {
        let pascal_case = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        ensure!(pascal_case, "`{name}` is not a name as `PathInfo` is");
        ensure!(
            !RESERVED_TYPES.contains(&name),
            "`{name}` is a name of the crate that has the messages; choose another one"
        );
        let enums = self.schema.enums.iter().map(|it| &it.name);
        let messages = self.schema.messages.iter().map(|it| &it.name);
        ensure!(
            enums.chain(messages).all(|it| it != name),
            "there are two types `{name}`"
        );
        Ok(())
    }

    fn no_doc(&self) -> Result<()> {
        ensure!(self.doc.is_empty(), "the `///` above documents nothing");
        Ok(())
    }
}

/// Heads of up to 255 are all that the generator writes, and all of this are far too many.
const FIELDS_MAX: usize = 100;

/// Names of fields become names of fields in three languages, beside the functions of a message.
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

/// What the generated code imports.
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

/// `NAME = NUMBER: rest`
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
    number.map_err(|_| anyhow!("`{}` is not a number of 32 bits", text.trim()))
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
        "`{name}` is not a name as `nar_size` is"
    );
    Ok(name.to_owned())
}

fn unused<'a>(
    mut taken: impl Iterator<Item = (&'a str, u32)>,
    name: &str,
    number: u32,
) -> Result<()> {
    match taken.find(|(other, n)| *other == name || *n == number) {
        Some((other, _)) if other == name => bail!("there are two `{name}`"),
        Some((other, _)) => bail!("`{other}` has the number {number} already"),
        None => Ok(()),
    }
}
