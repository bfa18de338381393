//! Bodies that are read while they are sent.
//!
//! A body is a row of pieces. Small things (framing, small files) gather in the connection's
//! output, which goes out when it is full; the contents of large files go from the disk's cache
//! to the socket without passing through this process.

pub(crate) mod nar_reader;
pub(crate) mod readahead;
pub(crate) mod text;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_store::StoreError;
use floe_store::tree::plan::{NarPlan, PlanPart, TreeRoot, open_tree_root};
use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::SendFlags;

use crate::body::text::Text;
use crate::net::write_buffer::WriteBuffer;
use readahead::Readahead;

/// What is still to be sent.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) pieces: VecDeque<Piece>,
}

/// A part of a body.
pub(crate) enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A text, from some byte on.
    Text { text: Text, sent: usize },
    /// A range of a NAR.
    Nar(NarRange),
    /// A range of a NAR that another thread reads meanwhile.
    Readahead(Readahead),
    /// A range of a file.
    File {
        file: Arc<OwnedFd>,
        offset: u64,
        end: u64,
    },
    /// What a reader gives; in chunks, unless the client is too old for them.
    Stream {
        reader: Box<dyn Read + Send>,
        in_chunks: bool,
    },
}

impl fmt::Debug for Piece {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Piece::Bytes(_) => "Bytes",
            Piece::Text { .. } => "Text",
            Piece::Nar(_) => "Nar",
            Piece::Readahead(_) => "Readahead",
            Piece::File { .. } => "File",
            Piece::Stream { .. } => "Stream",
        })
    }
}

impl Piece {
    /// All of a text.
    pub(crate) fn text(text: Text) -> Piece {
        Piece::Text { text, sent: 0 }
    }
}

/// Where the sending of a body stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// All of it is out.
    Complete,
    /// The socket takes no more for now.
    Blocked,
    /// It has had its max_bytes for now.
    Yielded,
}

/// Why a body cannot be sent to its end. The connection is broken off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The client is gone.
    #[error("the client is gone: {0}")]
    Socket(Errno),
    /// The store does not have it any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that read ahead has panicked.
    #[error("reading ahead has failed")]
    ReadaheadPanicked,
    /// A file other than the store's cannot be read.
    #[error("reading: {0}")]
    Read(io::Error),
}

impl Body {
    pub(crate) fn of(pieces: impl IntoIterator<Item = Piece>) -> Body {
        Body {
            pieces: pieces.into_iter().collect(),
        }
    }

    /// Sends as much as the socket takes, or `max_bytes` bytes. `output` may hold bytes that stand
    /// before the body, and holds those that are ready when the socket blocks.
    pub(crate) fn send(
        &mut self,
        output: &mut WriteBuffer,
        socket: BorrowedFd<'_>,
        max_bytes: u64,
    ) -> Result<SendProgress, SendError> {
        let mut left = max_bytes;
        loop {
            if !output.is_empty() && (output.len() >= OUTPUT_FULL || self.wants_flush()) {
                // Whatever is promised has to follow: a part of a packet waits for it.
                let more = match self.is_last() {
                    true => SendFlags::empty(),
                    false => SendFlags::MORE,
                };
                let before = output.len();
                match output.send(socket, more) {
                    Ok(true) => left = left.saturating_sub(before as u64),
                    Ok(false) => return Ok(SendProgress::Blocked),
                    Err(error) => return Err(SendError::Socket(error)),
                }
            }
            let Some(piece) = self.pieces.front_mut() else {
                match output.is_empty() {
                    true => return Ok(SendProgress::Complete),
                    false => continue,
                }
            };
            if left == 0 {
                return Ok(SendProgress::Yielded);
            }
            let is_done = match piece {
                Piece::Bytes(bytes) => {
                    output.extend(bytes);
                    true
                }
                Piece::Text { text, sent } => {
                    let rest = text.as_str().as_bytes().get(*sent..).unwrap_or_default();
                    let len = rest.len().min(OUTPUT_FULL);
                    output.extend(rest.get(..len).unwrap_or_default());
                    *sent += len;
                    len == rest.len()
                }
                Piece::Nar(nar) => match nar.advance(output, socket, &mut left)? {
                    Some(is_done) => is_done,
                    None => return Ok(SendProgress::Blocked),
                },
                Piece::File { file, offset, end } => {
                    match copy(file.as_fd(), offset, *end, output, socket, &mut left)? {
                        Some(is_done) => is_done,
                        None => return Ok(SendProgress::Blocked),
                    }
                }
                // Its memory counts until all of it is out.
                Piece::Readahead(ahead) if ahead.is_consumed() => true,
                Piece::Readahead(ahead) => {
                    output.bytes = ahead.take()?;
                    false
                }
                Piece::Stream { reader, in_chunks } => {
                    pull(reader, *in_chunks, output).map_err(SendError::Read)?
                }
            };
            if is_done {
                self.pieces.pop_front();
            }
        }
    }

    /// Whether nothing is to be sent after the output.
    fn is_last(&self) -> bool {
        self.pieces
            .iter()
            .all(|piece| matches!(piece, Piece::Readahead(ahead) if ahead.is_consumed()))
    }

    /// Whether what is next goes to the socket past the output, or nothing is next.
    fn wants_flush(&self) -> bool {
        match self.pieces.front() {
            None => true,
            Some(Piece::Nar(nar)) => nar.next_is_large(),
            Some(Piece::File { .. } | Piece::Readahead(_)) => true,
            Some(_) => false,
        }
    }
}

/// A range of a NAR that is being sent.
#[derive(Debug)]
pub(crate) struct NarRange {
    plan: Arc<NarPlan>,
    path: PathBuf,
    /// Opened when it is needed.
    root: Option<TreeRoot>,
    position: u64,
    end: u64,
    /// The number of the file that is open.
    open: Option<(usize, OwnedFd)>,
}

impl NarRange {
    /// Begins a range of the NAR of the tree at `path`. Opens what comes first, so that a path
    /// that has vanished is an error while that can still be said.
    pub(crate) fn begin(
        plan: Arc<NarPlan>,
        path: &Path,
        start: u64,
        end: u64,
    ) -> Result<NarRange, StoreError> {
        let mut root = open_tree_root(path)?;
        let first = match plan.part(start) {
            Some(PlanPart::Framing(bytes)) => plan.part(start + bytes.len() as u64),
            Some(PlanPart::Packed { len, .. }) => plan.part(start + len),
            contents => contents,
        };
        let open = match first {
            Some(PlanPart::Contents { file, .. }) => Some((file, plan.open(&mut root, file)?)),
            _ => None,
        };
        Ok(NarRange {
            plan,
            path: path.into(),
            root: Some(root),
            position: start,
            end,
            open,
        })
    }

    /// Another range of the same NAR, of which nothing is opened before its turn comes: sixteen
    /// ranges would hold the files of sixteen connections.
    pub(crate) fn later(plan: Arc<NarPlan>, path: &Path, start: u64, end: u64) -> NarRange {
        NarRange {
            plan,
            path: path.into(),
            root: None,
            position: start,
            end,
            open: None,
        }
    }

    fn root(&mut self) -> Result<&mut TreeRoot, StoreError> {
        match self.root {
            Some(ref mut root) => Ok(root),
            ref mut root @ None => Ok(root.insert(open_tree_root(&self.path)?)),
        }
    }

    fn next_is_large(&self) -> bool {
        match self.plan.part(self.position) {
            Some(PlanPart::Contents { len, .. } | PlanPart::Packed { len, .. }) => {
                len.min(self.end - self.position) >= SENDFILE_MIN
            }
            _ => false,
        }
    }

    /// Moves the next part into the output or past it to the socket. `Some(true)` when the range
    /// is done, `None` when the socket blocks.
    fn advance(
        &mut self,
        output: &mut WriteBuffer,
        socket: BorrowedFd<'_>,
        left: &mut u64,
    ) -> Result<Option<bool>, SendError> {
        let wanted = self.end - self.position;
        let plan = self.plan.clone();
        match plan.part(self.position) {
            None => {}
            Some(PlanPart::Framing(bytes)) => {
                // A tree of a million symlinks has nothing but framing.
                let len = bytes
                    .len()
                    .min(usize::try_from(wanted).unwrap_or(usize::MAX))
                    .min(OUTPUT_FULL);
                output.extend(bytes.get(..len).unwrap_or_default());
                self.position += len as u64;
            }
            Some(PlanPart::Packed { file, offset, len }) => {
                let mut at = offset;
                let is_done = copy(
                    file,
                    &mut at,
                    offset + len.min(wanted),
                    output,
                    socket,
                    left,
                )?;
                self.position += at - offset;
                if is_done.is_none() {
                    return Ok(None);
                }
            }
            // All of a small file.
            Some(PlanPart::Contents {
                file,
                len,
                offset: 0,
            }) if len < SENDFILE_MIN && len <= wanted && self.open.is_none() => {
                plan.read(self.root()?, file, &mut output.bytes)?;
                self.position += len;
            }
            Some(PlanPart::Contents { file, offset, len }) => {
                let mut at = offset;
                let end = offset + len.min(wanted);
                let opened = match self.open.take() {
                    Some((index, opened)) if index == file => opened,
                    _ => plan.open(self.root()?, file)?,
                };
                let is_done = copy(opened.as_fd(), &mut at, end, output, socket, left)?;
                self.position += at - offset;
                if is_done != Some(true) {
                    self.open = Some((file, opened));
                }
                if is_done.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(self.position >= self.end))
    }
}

/// Moves a range of a file: a small one into the output, a large one past it. `Some(true)` when
/// it is done, `None` when the socket blocks.
fn copy(
    file: BorrowedFd<'_>,
    offset: &mut u64,
    end: u64,
    output: &mut WriteBuffer,
    socket: BorrowedFd<'_>,
    left: &mut u64,
) -> Result<Option<bool>, SendError> {
    let vanished = || SendError::Read(io::ErrorKind::UnexpectedEof.into());
    if end - *offset < SENDFILE_MIN {
        while *offset < end {
            let read = output.read_from(end - *offset, |buffer| pread(file, buffer, *offset));
            match read.map_err(|error| SendError::Read(error.into()))? {
                0 => return Err(vanished()),
                read => *offset += read,
            }
        }
        return Ok(Some(true));
    }
    if !output.is_empty() {
        // The caller sends what stands before it first.
        return Ok(Some(false));
    }
    while *offset < end && *left > 0 {
        let piece = (end - *offset).min(SENDFILE_MAX).min(*left);
        let piece = usize::try_from(piece).unwrap_or(usize::MAX);
        match sendfile(socket, file, Some(offset), piece) {
            Ok(0) => return Err(vanished()),
            Ok(sent) => *left = left.saturating_sub(sent as u64),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            // What a disk may say; everything else is about the client's end.
            Err(error @ (Errno::IO | Errno::STALE | Errno::UCLEAN | Errno::NOMEM)) => {
                return Err(SendError::Read(error.into()));
            }
            Err(error) => return Err(SendError::Socket(error)),
        }
    }
    Ok(Some(*offset == end))
}

/// Moves the next bytes of a reader into the output. True at its end.
fn pull(reader: &mut dyn Read, in_chunks: bool, output: &mut WriteBuffer) -> io::Result<bool> {
    let mut buffer = vec![0; STREAM_CHUNK_LEN];
    let read = loop {
        match reader.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    let bytes = buffer.get(..read).unwrap_or_default();
    match (in_chunks, read) {
        (false, _) => output.extend(bytes),
        (true, 0) => output.extend(b"0\r\n\r\n"),
        (true, _) => {
            output.extend(format!("{read:x}\r\n").as_bytes());
            output.extend(bytes);
            output.extend(b"\r\n");
        }
    }
    Ok(read == 0)
}

/// Files from this size on go out by `sendfile`: below, its fixed cost is more than that of a
/// copy through memory that is in the processor's cache.
const SENDFILE_MIN: u64 = 16 * 1024;

/// The most that one `sendfile` is asked for.
const SENDFILE_MAX: u64 = 1024 * 1024 * 1024;

/// The output goes out when it has grown to this. A thousand clients that take nothing hold a
/// thousand hits as much.
const OUTPUT_FULL: usize = 64 * 1024;

/// How much is read of a stream at once.
const STREAM_CHUNK_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn blocked_client_buffers_a_bounded_part_of_the_body() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..10_000 {
            std::os::unix::fs::symlink("target", dir.path().join(number.to_string())).unwrap();
        }
        let plan = Arc::new(NarPlan::new(dir.path()).unwrap());
        let (size, text) = (plan.nar_size(), "x".repeat(1_000_000));
        assert!(size > 1_000_000, "{size}");
        let nar = NarRange::begin(plan, dir.path(), 0, size).unwrap();
        for piece in [Piece::Nar(nar), Piece::text(text.into())] {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let (mut body, mut output) = (Body::of([piece]), WriteBuffer::default());
            let sent = body.send(&mut output, ours.as_fd(), u64::MAX).unwrap();
            assert_eq!(sent, SendProgress::Blocked);
            assert!(
                output.bytes.len() <= 2 * OUTPUT_FULL,
                "{}",
                output.bytes.len()
            );
        }
    }
}
