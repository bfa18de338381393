//! Finishes the requests of clients that the server closes without a response.

use super::Connection;
use super::state::State;
use crate::clock::Clock;
use crate::finish::{Finished, Finisher, Subject, Summary};
use crate::http::refusal::Refusal;
use crate::http::route_kind::RouteKind;
use crate::tls::stream::TlsFailure;

impl Connection {
    /// Finishes the request of a client that is closed because its head, or its part of the TLS
    /// handshake, did not come in time. Such a client gets no response.
    pub(crate) fn finish_late_head(&self, finisher: &mut Finisher, clock: &Clock) {
        if self.transport.has_part_of_proxy_header() {
            self.finish_unread(Refusal::ProxyHeader, finisher, clock);
        } else if self.transport.is_in_handshake() {
            self.finish_unread(Refusal::TlsTimeout, finisher, clock);
        } else if matches!(self.state, State::ReadingHead) {
            self.finish_unread(Refusal::HeadTimeout, finisher, clock);
        }
    }

    /// Finishes the request of a client with which TLS has failed, or whose proxy sends no header.
    pub(super) fn finish_failed_start(&self, finisher: &mut Finisher, clock: &Clock) {
        if self.transport.has_invalid_proxy_header() {
            self.finish_unread(Refusal::ProxyHeader, finisher, clock);
        } else if let Some(failure) = self.transport.tls_failure() {
            let refusal = match failure {
                TlsFailure::PlainHttp => Refusal::PlainHttp,
                TlsFailure::ClientCertificate => Refusal::ClientCertificate,
                TlsFailure::Protocol => Refusal::TlsProtocol,
            };
            self.finish_unread(refusal, finisher, clock);
        }
    }

    fn finish_unread(&self, refusal: Refusal, finisher: &mut Finisher, clock: &Clock) {
        finisher.finish_response(&Finished {
            peer: self.peer.name(),
            user: None,
            route: RouteKind::Other,
            request: Subject::Invalid(&self.input),
            summary: Summary::without_response(refusal),
            clock,
        });
    }
}
