//! The body of a request, taken out of the bytes of a connection.
//!
//! The source of the format is RFC 9112, sections 6 and 7.1. Any bytes are a body, the beginning of
//! one, or an error; none cause a panic.

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// The body has this length in bytes.
    Length(u64),
    /// The body is a list of chunks.
    Chunked,
    /// The body has codings that the server does not know, so that its end is not known either.
    Unknown,
}

/// Takes the contents of one body out of the bytes of a connection.
#[derive(Debug)]
pub struct BodyReader {
    state: BodyState,
    /// The length of the trailers so far, which the server ignores.
    trailers_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    /// This many bytes of a body of known length follow.
    Length(u64),
    /// The line with the length of a chunk follows.
    ChunkLine,
    /// This many bytes of a chunk follow.
    Chunk(u64),
    /// The end of the line after a chunk follows.
    ChunkEnd,
    /// Lines follow until an empty one.
    Trailers,
    Complete,
}

/// The next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyPart<'b> {
    /// Bytes of the contents, at least one.
    Bytes(&'b [u8]),
    /// The end of the body.
    End,
    /// More bytes are needed.
    Incomplete,
}

/// The bytes are no list of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidChunk;

impl BodyReader {
    /// Begins at the first byte after the head.
    pub fn new(framing: Framing) -> BodyReader {
        let state = match framing {
            Framing::None | Framing::Unknown => BodyState::Complete,
            Framing::Length(len) => BodyState::Length(len),
            Framing::Chunked => BodyState::ChunkLine,
        };
        BodyReader {
            state,
            trailers_len: 0,
        }
    }

    /// Returns the next part, and removes its bytes from the front of `input`.
    ///
    /// Errors: [`InvalidChunk`].
    pub fn next<'b>(&mut self, input: &mut &'b [u8]) -> Result<BodyPart<'b>, InvalidChunk> {
        loop {
            match self.state {
                BodyState::Complete | BodyState::Length(0) => {
                    self.state = BodyState::Complete;
                    return Ok(BodyPart::End);
                }
                BodyState::Length(left) => {
                    let part = take(input, left);
                    self.state = BodyState::Length(left - part.len() as u64);
                    return Ok(or_incomplete(part));
                }
                BodyState::Chunk(0) => self.state = BodyState::ChunkEnd,
                BodyState::Chunk(left) => {
                    let part = take(input, left);
                    self.state = BodyState::Chunk(left - part.len() as u64);
                    return Ok(or_incomplete(part));
                }
                BodyState::ChunkEnd => match take_line(input)? {
                    None => return Ok(BodyPart::Incomplete),
                    Some([]) => self.state = BodyState::ChunkLine,
                    Some(_) => return Err(InvalidChunk),
                },
                BodyState::ChunkLine => match take_line(input)? {
                    None => return Ok(BodyPart::Incomplete),
                    Some(line) => {
                        self.state = match chunk_len(line)? {
                            0 => BodyState::Trailers,
                            len => BodyState::Chunk(len),
                        }
                    }
                },
                // Nothing in them matters.
                BodyState::Trailers => match take_line(input)? {
                    None => return Ok(BodyPart::Incomplete),
                    Some([]) => self.state = BodyState::Complete,
                    Some(line) => {
                        self.trailers_len += line.len() + 1;
                        if self.trailers_len > TRAILERS_LEN_MAX {
                            return Err(InvalidChunk);
                        }
                    }
                },
            }
        }
    }
}

fn or_incomplete(part: &[u8]) -> BodyPart<'_> {
    if part.is_empty() {
        BodyPart::Incomplete
    } else {
        BodyPart::Bytes(part)
    }
}

fn take<'b>(input: &mut &'b [u8], max: u64) -> &'b [u8] {
    let len = usize::try_from(max).map_or(input.len(), |max| max.min(input.len()));
    let (part, rest) = input.split_at(len);
    *input = rest;
    part
}

/// Takes a line without its end. Returns `None` if its end has not arrived.
fn take_line<'b>(input: &mut &'b [u8]) -> Result<Option<&'b [u8]>, InvalidChunk> {
    let bytes = *input;
    let Some(end) = bytes
        .iter()
        .take(LINE_LEN_MAX)
        .position(|byte| *byte == b'\n')
    else {
        return if bytes.len() >= LINE_LEN_MAX {
            Err(InvalidChunk)
        } else {
            Ok(None)
        };
    };
    *input = &bytes[end + 1..];
    // A line that ends without a carriage return means another thing to some proxies.
    let line = bytes[..end].strip_suffix(b"\r").ok_or(InvalidChunk)?;
    Ok(Some(line))
}

/// Parses the length of a chunk. Extensions after a semicolon are ignored.
fn chunk_len(line: &[u8]) -> Result<u64, InvalidChunk> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(InvalidChunk);
    }
    let text = std::str::from_utf8(digits).map_err(|_| InvalidChunk)?;
    u64::from_str_radix(text, 16).map_err(|_| InvalidChunk)
}

/// The longest line between chunks, in bytes. A connection buffers one.
const LINE_LEN_MAX: usize = 4096;

/// The longest trailers, in bytes.
const TRAILERS_LEN_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The contents of a body, and the bytes behind it.
    type ReadBody = (Vec<u8>, Vec<u8>);

    /// Reads a body whose bytes arrive in pieces. Returns its contents and the bytes behind it;
    /// `None` if the body is not complete.
    fn read(
        framing: Framing,
        bytes: &[u8],
        piece: usize,
    ) -> Result<Option<ReadBody>, InvalidChunk> {
        let mut reader = BodyReader::new(framing);
        let (mut buffer, mut contents) = (Vec::new(), Vec::new());
        let mut pieces = bytes.chunks(piece.max(1));
        loop {
            let mut input = buffer.as_slice();
            let part = reader.next(&mut input)?;
            let is_end = part == BodyPart::End;
            if let BodyPart::Bytes(part) = part {
                contents.extend_from_slice(part);
            }
            let is_incomplete = part == BodyPart::Incomplete;
            let used = buffer.len() - input.len();
            buffer.drain(..used);
            if is_end {
                buffer.extend(pieces.flatten());
                return Ok(Some((contents, buffer)));
            }
            if is_incomplete {
                match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Ok(None),
                }
            }
        }
    }

    fn chunked(contents: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in contents.chunks(len.max(1)) {
            bytes.extend_from_slice(format!("{:x};x=y\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        bytes
    }

    #[test]
    fn trailers_have_an_end() {
        let with_trailers = |count: usize| {
            let mut bytes = b"0\r\n".to_vec();
            bytes.extend(b"Name: value\r\n".repeat(count));
            bytes.extend(b"\r\n");
            read(Framing::Chunked, &bytes, 100)
        };
        assert_eq!(with_trailers(100), Ok(Some((Vec::new(), Vec::new()))));
        assert_eq!(with_trailers(2000), Err(InvalidChunk));
    }

    #[test]
    fn wrong_chunks_are_refused() {
        for bytes in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b" 1\r\n",
            b"1\n",
            b"1\r\nab\r\n",
            b"1\r\na\n",
            b"10000000000000000\r\n",
            &[b'1'; LINE_LEN_MAX],
        ] {
            assert_eq!(
                read(Framing::Chunked, bytes, 1),
                Err(InvalidChunk),
                "{bytes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn body_ends_where_its_framing_says(
            contents in prop::collection::vec(any::<u8>(), 0..300),
            rest in prop::collection::vec(any::<u8>(), 0..20),
            len in 1usize..40,
            piece in 1usize..40,
        ) {
            let expected = Ok(Some((contents.clone(), rest.clone())));
            let bytes = [chunked(&contents, len), rest.clone()].concat();
            prop_assert_eq!(read(Framing::Chunked, &bytes, piece), expected.clone());
            let bytes = [contents.clone(), rest].concat();
            let framing = Framing::Length(contents.len() as u64);
            prop_assert_eq!(read(framing, &bytes, piece), expected);
            // A part of a body is not complete.
            let part = chunked(&contents, len);
            let part = &part[..part.len() - 1];
            prop_assert_eq!(read(Framing::Chunked, part, piece), Ok(None));
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            piece in 1usize..40,
        ) {
            let _ = read(Framing::Chunked, &bytes, piece);
        }
    }
}
