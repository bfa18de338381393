//! The state of one TLS connection, without a socket.
//!
//! The transport appends what the socket has to [`TlsStream::incoming`] and calls
//! [`TlsStream::decrypt`]. It sends [`TlsStream::outgoing`], which holds messages of the handshake
//! or a part of a response.

use std::fmt;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus, WriteTraffic,
};

/// A TLS connection of a server.
pub struct TlsStream {
    connection: UnbufferedServerConnection,
    /// Encrypted bytes of the client, not yet a whole record after [`TlsStream::decrypt`].
    pub incoming: Vec<u8>,
    /// Encrypted bytes for the client.
    outgoing: Vec<u8>,
    /// How many bytes of `outgoing` are sent.
    sent: usize,
    /// How many bytes of a response `outgoing` encrypts.
    encrypted: usize,
    progress: Progress,
}

// Keys must not appear in any output.
impl fmt::Debug for TlsStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("TlsStream");
        fields
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The client has sent nothing yet.
    New,
    /// The handshake has begun.
    Handshake,
    /// Requests and responses may be sent.
    Established,
    /// The client has closed its side as TLS demands.
    ClosedByPeer,
    /// The connection has failed.
    Failed(TlsFailure),
}

/// The reason why a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// The client has no certificate, or none that the server accepts.
    ClientCertificate,
    /// Any other failure.
    Protocol,
}

impl TlsStream {
    pub(super) fn new(connection: UnbufferedServerConnection) -> TlsStream {
        TlsStream {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            encrypted: 0,
            progress: Progress::New,
        }
    }

    /// Returns how far the connection has come.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns the encrypted bytes that are still to be sent.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.get(self.sent..).unwrap_or_default()
    }

    /// Notes that bytes of [`TlsStream::outgoing`] are sent.
    pub fn note_sent(&mut self, len: usize) {
        self.sent += len;
        if self.outgoing().is_empty() {
            self.outgoing = Vec::new();
            self.sent = 0;
        }
    }

    /// How many bytes of a response [`TlsStream::outgoing`] encrypts, or did before all of it was
    /// sent.
    pub(crate) fn encrypted(&self) -> usize {
        self.encrypted
    }

    /// As [`TlsStream::encrypted`], and forgets the number.
    pub(crate) fn take_encrypted(&mut self) -> usize {
        std::mem::take(&mut self.encrypted)
    }

    /// Keeps encrypted bytes of a response that the socket has not taken.
    pub(crate) fn keep_outgoing(&mut self, bytes: &[u8], encrypted: usize) {
        self.outgoing = bytes.to_vec();
        self.sent = 0;
        self.encrypted = encrypted;
    }

    /// Processes the incoming bytes: appends decrypted bytes of requests to `plaintext`, and
    /// messages of the handshake to [`TlsStream::outgoing`].
    pub fn decrypt(&mut self, plaintext: &mut Vec<u8>) {
        // The library keeps offsets into the buffer of a failed connection, which is gone.
        if matches!(self.progress, Progress::Failed(_)) {
            return;
        }
        if self.progress == Progress::New && !self.incoming.is_empty() {
            self.progress = match self.incoming.first() {
                Some(b'A'..=b'Z') => Progress::Failed(TlsFailure::PlainHttp),
                _ => Progress::Handshake,
            };
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut used = 0;
        while !matches!(self.progress, Progress::Failed(_)) {
            let rest = incoming.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(rest);
            let is_done = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(Ok(record)) = records.next_record() {
                        discard += record.discard;
                        plaintext.extend_from_slice(record.payload);
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    append(&mut message, &mut self.outgoing);
                    false
                }
                Ok(ConnectionState::TransmitTlsData(messages)) => {
                    messages.done();
                    false
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.progress = Progress::Established;
                    true
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.progress = Progress::ClosedByPeer;
                    true
                }
                Ok(ConnectionState::BlockedHandshake) => true,
                // The server accepts no early data.
                Ok(_) => {
                    self.progress = Progress::Failed(TlsFailure::Protocol);
                    true
                }
                Err(error) => {
                    self.progress = Progress::Failed(TlsFailure::of(&error));
                    true
                }
            };
            used += discard;
            if is_done {
                break;
            }
        }
        if matches!(self.progress, Progress::Failed(failure) if failure != TlsFailure::PlainHttp) {
            let rest = incoming.get_mut(used..).unwrap_or_default();
            self.encode_alert(rest);
        }
        // Most reads are of whole records, and an idle connection needs no buffer.
        if used < incoming.len() && !matches!(self.progress, Progress::Failed(_)) {
            incoming.drain(..used);
            self.incoming = incoming;
        }
    }

    /// Encrypts bytes of a response to the beginning of `out`, which grows if it is too short.
    /// Returns the length of the encrypted bytes.
    ///
    /// Errors: the connection can send nothing more.
    pub fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<usize, Closed> {
        self.write_traffic(out, 0, |traffic, out| traffic.encrypt(plaintext, out))
    }

    /// Tells the client that nothing more will be sent, so that it can tell the end of a response
    /// from a cut.
    ///
    /// Errors: the connection can send nothing more.
    pub(crate) fn encrypt_close(&mut self) -> Result<(), Closed> {
        let mut out = std::mem::take(&mut self.outgoing);
        let start = out.len();
        let end = self.write_traffic(&mut out, start, |traffic, out| {
            traffic.queue_close_notify(out)
        });
        self.outgoing = out;
        end.map(|_| ())
    }

    fn write_traffic(
        &mut self,
        out: &mut Vec<u8>,
        mut start: usize,
        mut write: impl FnMut(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Encrypted,
    ) -> Result<usize, Closed> {
        // The library keeps offsets into the buffer of a failed connection, which is gone.
        if matches!(self.progress, Progress::Failed(_)) {
            return Err(Closed);
        }
        loop {
            // `decrypt` has processed all whole records of `incoming`.
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    return encrypt_into(out, start, |free| write(&mut traffic, free));
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    start = encode(&mut message, out, start);
                }
                Ok(ConnectionState::TransmitTlsData(messages)) => messages.done(),
                Ok(ConnectionState::PeerClosed) => {}
                Ok(_) | Err(_) => return Err(Closed),
            }
            self.incoming.drain(..discard);
        }
    }

    /// Encodes the messages that still wait, and at last the alert with the reason of the failure.
    /// `rest` must be the unprocessed end of the buffer in which the failure was found: the library
    /// keeps offsets into this buffer.
    fn encode_alert(&mut self, rest: &mut [u8]) {
        let mut used = 0;
        // Another call would process the invalid bytes once more.
        while self.connection.wants_write() {
            let rest = rest.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            let Ok(ConnectionState::EncodeTlsData(mut message)) = state else {
                return;
            };
            append(&mut message, &mut self.outgoing);
            used += discard;
        }
    }
}

/// The connection can send nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

type Encrypted = Result<usize, EncryptError>;

impl TlsFailure {
    fn of(error: &rustls::Error) -> TlsFailure {
        match error {
            rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_) => {
                TlsFailure::ClientCertificate
            }
            _ => TlsFailure::Protocol,
        }
    }
}

fn append(message: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    let start = out.len();
    encode(message, out, start);
}

/// Writes a message of the handshake from `start` on. Returns its end.
fn encode(
    message: &mut EncodeTlsData<'_, ServerConnectionData>,
    out: &mut Vec<u8>,
    start: usize,
) -> usize {
    loop {
        match message.encode(out.get_mut(start..).unwrap_or_default()) {
            Ok(len) => return start + len,
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                out.resize(start + required_size, 0);
            }
            Err(EncodeError::AlreadyEncoded) => return start,
        }
    }
}

/// Lets `write` fill a buffer from `start` on, which grows if it is too short. Returns the end of
/// the bytes.
fn encrypt_into(
    out: &mut Vec<u8>,
    start: usize,
    mut write: impl FnMut(&mut [u8]) -> Encrypted,
) -> Result<usize, Closed> {
    loop {
        match write(out.get_mut(start..).unwrap_or_default()) {
            Ok(len) => return Ok(start + len),
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                out.resize(start + required_size, 0);
            }
            Err(EncryptError::EncryptExhausted) => return Err(Closed),
        }
    }
}
