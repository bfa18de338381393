//! Sends bodies: small parts through the write buffer, large files past it.
//!
//! Framing and small files gather in the write buffer, which is written when it is full. A large
//! file goes from the page cache to the socket with `sendfile`. If the transport or the file
//! system does not support that, the file passes through the write buffer, too.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use floe_store::StoreError;
use rustix::io::{Errno, pread};

use super::transport::{FileSent, Transport, WriteHint};
use super::write_buffer::WriteBuffer;
use crate::body::nar_range::NarRange;
use crate::body::{Body, CHUNK_LEN_MAX, Piece, SENDFILE_MIN};

/// How far a body, a piece or a file has been sent or buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Complete,
    /// The rest can be sent at once. For a body: the allowed number of bytes is sent.
    Partial,
    /// The socket takes no more for now.
    Blocked,
}

/// The reason why a body cannot be sent to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the client has closed the connection: {0}")]
    Socket(Errno),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file other than the store's cannot be read.
    #[error("cannot read the file: {0}")]
    Read(io::Error),
}

/// Sends as much as the socket takes, but at most about `max_bytes`.
///
/// `output` may hold the head of the response. When the socket blocks it holds the bytes that are
/// to be sent next.
pub(crate) fn send_body(
    body: &mut Body,
    output: &mut WriteBuffer,
    transport: &mut Transport,
    max_bytes: u64,
) -> Result<Progress, SendError> {
    let mut turn = Turn {
        output,
        transport,
        left: max_bytes,
    };
    loop {
        let is_full = turn.output.len() >= CHUNK_LEN_MAX;
        let is_bypassed = body.bypasses_buffer(turn.transport.can_send_files);
        if !turn.output.is_empty() && (is_full || is_bypassed) {
            let hint = if body.is_sent() {
                WriteHint::Last
            } else {
                WriteHint::MoreFollows
            };
            if !turn.flush(hint)? {
                return Ok(Progress::Blocked);
            }
        }
        let Some(piece) = body.pieces.front_mut() else {
            return Ok(Progress::Complete);
        };
        if turn.left == 0 {
            return Ok(Progress::Partial);
        }
        match turn.send_piece(piece)? {
            Progress::Complete => {
                body.pieces.pop_front();
            }
            Progress::Partial => {}
            Progress::Blocked => return Ok(Progress::Blocked),
        }
    }
}

/// The arguments of one call of [`send_body`].
struct Turn<'c> {
    output: &'c mut WriteBuffer,
    transport: &'c mut Transport,
    /// How many bytes may still be sent.
    left: u64,
}

impl Progress {
    fn after(is_complete: bool) -> Progress {
        if is_complete {
            Progress::Complete
        } else {
            Progress::Partial
        }
    }
}

impl Turn<'_> {
    /// Writes the buffer. Returns `false` if the socket has not taken all of it.
    fn flush(&mut self, hint: WriteHint) -> Result<bool, SendError> {
        let len = self.output.len() as u64;
        let is_written = self.output.send(self.transport, hint);
        let is_written = is_written.map_err(SendError::Socket)?;
        if is_written {
            self.left = self.left.saturating_sub(len);
        }
        Ok(is_written)
    }

    fn send_piece(&mut self, piece: &mut Piece) -> Result<Progress, SendError> {
        let is_complete = match piece {
            Piece::Bytes(bytes) => {
                self.output.extend(bytes);
                true
            }
            Piece::Text { text, sent } => {
                let rest = text.as_str().as_bytes().get(*sent..).unwrap_or_default();
                let len = rest.len().min(CHUNK_LEN_MAX);
                self.output.extend(rest.get(..len).unwrap_or_default());
                *sent += len;
                len == rest.len()
            }
            Piece::Nar(nar) => return self.send_nar(nar),
            Piece::File { file, offset, end } => return self.send_file(file.as_fd(), offset, *end),
            // The piece stays until its bytes are written: it holds the permit for their memory.
            Piece::Readahead(half) if half.is_consumed() => true,
            Piece::Readahead(half) => {
                self.output.bytes = half.join()?;
                false
            }
            Piece::Stream(stream) => {
                let more = stream.read_chunk(&mut self.output.bytes);
                !more.map_err(SendError::Read)?
            }
        };
        Ok(Progress::after(is_complete))
    }

    fn send_nar(&mut self, nar: &mut NarRange) -> Result<Progress, SendError> {
        if let Some(slice) = nar.next(&mut self.output.bytes)? {
            let (start, mut offset) = (slice.offset, slice.offset);
            let step = self.send_file(slice.file, &mut offset, slice.end);
            nar.advance(offset - start);
            match step? {
                Progress::Complete => nar.close_file(),
                Progress::Partial => {}
                Progress::Blocked => return Ok(Progress::Blocked),
            }
        }
        Ok(Progress::after(nar.is_complete()))
    }

    /// Sends the bytes from `offset` to `end` of a file, and moves `offset` behind those that are
    /// sent or buffered.
    fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: &mut u64,
        end: u64,
    ) -> Result<Progress, SendError> {
        if end - *offset < SENDFILE_MIN || !self.transport.can_send_files {
            return self.buffer_file(file, offset, end);
        }
        // The bytes of the file must not overtake the buffer, which is flushed before the next
        // step.
        if !self.output.is_empty() {
            return Ok(Progress::Partial);
        }
        while *offset < end && self.left > 0 {
            let len = (end - *offset).min(SENDFILE_MAX).min(self.left);
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            match self.transport.send_file(file, offset, len) {
                Ok(FileSent::Bytes(0)) => return Err(file_was_cut()),
                Ok(FileSent::Bytes(sent)) => self.left = self.left.saturating_sub(sent as u64),
                Ok(FileSent::Blocked) => return Ok(Progress::Blocked),
                Ok(FileSent::Unsupported) => return Ok(Progress::Partial),
                // These are errors of a disk. All others are about the socket.
                Err(error @ (Errno::IO | Errno::STALE | Errno::UCLEAN | Errno::NOMEM)) => {
                    return Err(SendError::Read(error.into()));
                }
                Err(error) => return Err(SendError::Socket(error)),
            }
        }
        Ok(Progress::after(*offset == end))
    }

    /// Reads a file into the buffer: all of a small one, a chunk of a large one.
    fn buffer_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: &mut u64,
        end: u64,
    ) -> Result<Progress, SendError> {
        let chunk_end = end.min(*offset + CHUNK_LEN_MAX as u64);
        while *offset < chunk_end {
            let len = chunk_end - *offset;
            let read = self
                .output
                .read_from(len, |buffer| pread(file, buffer, *offset));
            match read.map_err(|error| SendError::Read(error.into()))? {
                0 => return Err(file_was_cut()),
                read => *offset += read,
            }
        }
        Ok(Progress::after(*offset == end))
    }
}

/// The file is shorter than it was when the length of the response was sent.
fn file_was_cut() -> SendError {
    SendError::Read(io::ErrorKind::UnexpectedEof.into())
}

/// The most bytes that one `sendfile` is asked for.
const SENDFILE_MAX: u64 = 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use floe_store::tree::plan::NarPlan;

    use super::*;

    fn pair() -> (Transport, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Transport::plain(ours.into()), theirs)
    }

    /// Sends a body to its end, in turns of `max_bytes`, and returns what the client received.
    fn send_all(mut transport: Transport, client: UnixStream, pieces: Vec<Piece>) -> Vec<u8> {
        let client = thread::spawn(move || {
            let (mut client, mut received) = (client, Vec::new());
            client.read_to_end(&mut received).unwrap();
            received
        });
        let (mut body, mut output) = (Body::new(pieces), WriteBuffer::default());
        output.extend(b"head ");
        while send_body(&mut body, &mut output, &mut transport, 50_000).unwrap()
            != Progress::Complete
        {
            assert!(output.len() <= 2 * CHUNK_LEN_MAX, "{}", output.len());
            transport.is_writable(Duration::from_secs(10));
        }
        drop(transport);
        client.join().unwrap()
    }

    fn file_piece(file: File, offset: u64, end: u64) -> Piece {
        let file = Arc::new(OwnedFd::from(file));
        Piece::File { file, offset, end }
    }

    fn numbers(len: usize) -> Vec<u8> {
        (0u32..).flat_map(u32::to_le_bytes).take(len).collect()
    }

    #[test]
    fn blocked_client_buffers_a_bounded_part_of_the_body() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..10_000 {
            std::os::unix::fs::symlink("target", dir.path().join(number.to_string())).unwrap();
        }
        let plan = Arc::new(NarPlan::new(dir.path()).unwrap());
        let (size, text) = (plan.nar_size(), "x".repeat(1_000_000));
        assert!(size > 1_000_000, "{size}");
        let nar = NarRange::open(plan, dir.path(), 0..size).unwrap();
        let text = Piece::Text {
            text: text.into(),
            sent: 0,
        };
        for piece in [Piece::Nar(nar), text] {
            let (mut transport, _client) = pair();
            let (mut body, mut output) = (Body::new([piece]), WriteBuffer::default());
            let sent = send_body(&mut body, &mut output, &mut transport, u64::MAX).unwrap();
            assert_eq!(sent, Progress::Blocked);
            assert!(
                output.bytes.len() <= 2 * CHUNK_LEN_MAX,
                "{}",
                output.bytes.len()
            );
        }
    }

    #[test]
    fn file_without_sendfile_is_read_and_written() {
        let bytes = numbers(300_000);
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let regular = || file_piece(File::open(&path).unwrap(), 1, 299_999);
        let (transport, client) = pair();
        let with_sendfile = send_all(transport, client, vec![regular()]);
        assert!(with_sendfile == [b"head ", &bytes[1..299_999]].concat());

        // `sendfile` does not support files of this kind. Addresses this low are never mapped, so
        // all of its bytes are zero.
        let unsupported = file_piece(File::open("/proc/self/pagemap").unwrap(), 0, 100_000);
        let (transport, client) = pair();
        let without_sendfile = send_all(transport, client, vec![unsupported, regular()]);
        let expected = [b"head ", &vec![0; 100_000][..], &bytes[1..299_999]].concat();
        assert!(without_sendfile == expected, "{}", without_sendfile.len());
    }

    #[test]
    fn nar_without_sendfile_has_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for (name, len) in [
            ("a", 5),
            ("b", 200_000),
            ("c", 40_000),
            ("d", 0),
            ("e", 9_000),
        ] {
            std::fs::write(dir.path().join(name), numbers(len)).unwrap();
        }
        let plan = Arc::new(NarPlan::new(dir.path()).unwrap());
        let nar = || {
            let range = NarRange::open(plan.clone(), dir.path(), 7..plan.nar_size()).unwrap();
            vec![Piece::Nar(range)]
        };
        let (transport, client) = pair();
        let with_sendfile = send_all(transport, client, nar());
        let (mut transport, client) = pair();
        let file = File::open("/proc/self/pagemap").unwrap();
        let refused = transport.send_file(file.as_fd(), &mut 0, 8).unwrap();
        assert_eq!(refused, FileSent::Unsupported);
        let without_sendfile = send_all(transport, client, nar());
        assert!(with_sendfile == without_sendfile);
        let mut expected = b"head ".to_vec();
        let mut whole = Vec::new();
        floe_store::tree::dump_path::<StoreError>(dir.path(), &mut |chunk| {
            whole.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        expected.extend_from_slice(&whole[7..]);
        assert!(with_sendfile == expected);
    }

    #[test]
    fn file_that_was_cut_is_an_error() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, numbers(20_000)).unwrap();
        for (offset, end) in [(0, 30_000), (19_000, 21_000)] {
            let (mut transport, _client) = pair();
            let mut body = Body::new([file_piece(File::open(&path).unwrap(), offset, end)]);
            let mut output = WriteBuffer::default();
            let sent = send_body(&mut body, &mut output, &mut transport, u64::MAX);
            assert!(matches!(sent, Err(SendError::Read(_))), "{sent:?}");
        }
    }
}
